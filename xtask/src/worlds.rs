//! The worlds of the conformance suite: some in every run, the others only in full ones.

/// The package whose tests start with the name of their world.
const PACKAGE: &str = "viaduct-conformance";

/// In every run: one of each provider, and the one between users. Nothing is to be left out of these.
#[cfg(test)]
const ALWAYS: [&str; 5] = ["auto", "loopback", "ofi_tcp", "shm", "shm_isolated"];

/// The same providers with other settings and with hooks around them.
const FURTHER: [&str; 10] = [
    "loopback_counted",
    "loopback_delayed",
    "loopback_traced",
    "ofi_counted",
    "ofi_cramped",
    "shm_copying",
    "shm_counted",
    "shm_cramped",
    "shm_delayed",
    "shm_without_vm",
];

/// The expression for nextest that leaves out these worlds and nothing else.
pub(crate) fn without(worlds: &[&str]) -> String {
    if worlds.is_empty() {
        return "all()".to_owned();
    }
    format!("not (package({PACKAGE}) and test(/^({})::/))", worlds.join("|"))
}

/// The worlds that this run leaves out.
pub(crate) fn left_out(full: bool) -> &'static [&'static str] {
    if full { &[] } else { &FURTHER }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_world_is_listed() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/conformance/tests/main.rs");
        let text = std::fs::read_to_string(file).unwrap();
        let there: BTreeSet<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("viaduct_conformance::suite!(")?.strip_suffix(");"))
            .collect();
        let listed: BTreeSet<_> = ALWAYS.iter().chain(&FURTHER).copied().collect();
        assert_eq!(there, listed);
        assert_eq!(listed.len(), ALWAYS.len() + FURTHER.len());
    }

    #[test]
    fn a_full_run_has_every_world() {
        assert_eq!(without(left_out(true)), "all()");
        let filter = without(left_out(false));
        assert!(FURTHER.iter().all(|world| filter.contains(world)), "{filter}");
        // `shm` itself is no prefix of what is left out: the names end with `::`.
        assert!(!filter.contains("(shm|") && !filter.contains("|shm|"), "{filter}");
    }
}
