//! The variables of a rank: its number, the size of the job, and where its launcher listens. Pure.
//!
//! `VIADUCT_*` is ours; `PMI_*` is what MPICH, Intel MPI and our own ranks read; `MPI_LOCAL*` is what programs read that
//! choose a device by it.

use crate::plan::NodePlan;

/// Variables of the launcher that go along to other hosts: those that say how programs behave, and nothing that only
/// makes sense here. More go with `-x NAME`.
pub const FORWARDED: &[&str] = &[
    "LANG",
    "LC_",
    "TZ",
    "OMP_",
    "KMP_",
    "MPICH_",
    "MPIR_CVAR_",
    "I_MPI_",
    "FI_",
    "UCX_",
    "PSM3_",
    "VIADUCT_",
    "RUST_BACKTRACE",
    "RUST_LOG",
];

/// Those of ours that are about this host or this process only.
const STAYING: &[&str] =
    &["VIADUCT_HOST", "VIADUCT_RUNTIME", "VIADUCT_CACHE", "VIADUCT_SKIP_LOG", "VIADUCT_TEST"];

/// Whether a variable of the launcher goes along to other hosts.
pub fn is_forwarded(name: &str) -> bool {
    let fits = |list: &[&str]| list.iter().any(|start| name.starts_with(start));
    fits(FORWARDED) && !fits(STAYING)
}

/// What rank number `local` of the node gets, beyond what it inherits. `pmi` is the number of its socket.
pub fn of_rank(plan: &NodePlan, local: usize, pmi: i32) -> Vec<(String, String)> {
    let rank = plan.ranks[local];
    let (count, size) = (plan.ranks.len(), plan.size);
    let mut list: Vec<(String, String)> = plan.variables.clone();
    if let Some(program) = plan.programs.get(rank.app as usize) {
        list.extend(program.variables.iter().cloned());
    }
    let own: [(&str, String); 16] = [
        ("VIADUCT_JOB", plan.job.clone()),
        ("VIADUCT_RANK", rank.rank.to_string()),
        ("VIADUCT_SIZE", size.to_string()),
        ("VIADUCT_LOCAL_RANK", local.to_string()),
        ("VIADUCT_LOCAL_SIZE", count.to_string()),
        ("VIADUCT_NODE", plan.node.0.to_string()),
        ("VIADUCT_NODES", plan.node.1.to_string()),
        ("VIADUCT_NODE_NAME", plan.host.clone()),
        ("VIADUCT_APP", rank.app.to_string()),
        ("PMI_FD", pmi.to_string()),
        ("PMI_RANK", rank.rank.to_string()),
        ("PMI_SIZE", size.to_string()),
        ("PMI_SPAWNED", "0".to_owned()),
        ("MPI_LOCALRANKID", local.to_string()),
        ("MPI_LOCALNRANKS", count.to_string()),
        ("PMI_APPNUM", rank.app.to_string()),
    ];
    list.extend(own.map(|(name, value)| (name.to_owned(), value)));
    list
}

/// Variables of other launchers that would lead a program of ours astray if they stayed.
pub const REMOVED: &[&str] =
    &["PMI_PORT", "PMI_ID", "PMIX_RANK", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Program, Rank};

    #[test]
    fn settings_of_programs_go_along_and_those_of_a_host_stay() {
        for name in ["LC_ALL", "OMP_NUM_THREADS", "VIADUCT_PROVIDER", "MPIR_CVAR_CH4_NETMOD", "PSM3_DEVICES"]
        {
            assert!(is_forwarded(name), "{name}");
        }
        assert!(!is_forwarded("PATH") && !is_forwarded("SSH_AUTH_SOCK") && !is_forwarded("VIADUCT_HOST"));
    }

    #[test]
    fn a_rank_knows_its_number() {
        let program =
            |value: &str| Program { variables: vec![("X".into(), value.into())], ..Program::default() };
        let plan = NodePlan {
            job: "j".into(),
            size: 5,
            node: (1, 2),
            host: "b".into(),
            ranks: vec![Rank { rank: 3, app: 0 }, Rank { rank: 4, app: 1 }],
            programs: vec![program("0"), program("1")],
            variables: vec![("X".into(), "all".into())],
            ..NodePlan::default()
        };
        let list = of_rank(&plan, 1, 7);
        let value = |name: &str| list.iter().rev().find(|(n, _)| n == name).map(|(_, v)| &**v);
        assert_eq!(
            (value("VIADUCT_RANK"), value("PMI_SIZE"), value("PMI_FD")),
            (Some("4"), Some("5"), Some("7"))
        );
        assert_eq!((value("VIADUCT_LOCAL_RANK"), value("VIADUCT_NODE_NAME")), (Some("1"), Some("b")));
        assert_eq!(value("X"), Some("1"), "the program's own value wins");
    }
}
