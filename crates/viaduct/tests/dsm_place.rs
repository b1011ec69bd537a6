//! `viaduct dsm` on the machine it finds: userfaultfd that is refused, workers on cores, nodes of both kinds in one run.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use viaduct_kit::leaks::descendants;
use viaduct_kit::watchdog::Watchdog;

use crate::launching::cluster::Cluster;
use crate::launching::{Folder, finish, verb_command, wait_for};

/// Has the command and all that it starts run where userfaultfd is refused, as containers do.
fn refuse_userfaultfd(command: &mut Command) {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let filter = [
        step(0x20, 0, 0, 0),
        step(0x15, 0, 1, libc::SYS_userfaultfd as u32),
        step(0x06, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let mut filter = filter;
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program is whole, and the kernel copies it.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        };
        if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure makes two system calls and allocates nothing, which is allowed between fork and exec.
    unsafe { command.pre_exec(install) };
}

#[test]
fn where_userfaultfd_is_refused_runs_take_mprotect_or_say_why_not() {
    let _watchdog = Watchdog::arm(Duration::from_secs(300), "runs without userfaultfd");
    let run = |words: &[&str]| {
        let folder = Folder::new();
        let problem = ["dsm", "sor", "--size", "32", "--rounds", "2", "--check", "--json", "--allow-root"];
        let mut command = verb_command(&folder, &[&problem[..], words].concat());
        refuse_userfaultfd(&mut command);
        finish(command)
    };
    for words in [&[][..], &["--engine", "auto"], &["--engine", "mprotect"]] {
        let run = run(words);
        assert_eq!(run.status, 0, "{words:?}: {}{}", run.out, run.err);
        let line: serde_json::Value = serde_json::from_str(run.out.trim()).expect("a line of JSON");
        assert_eq!(
            (&line["engine"], &line["equal"]),
            (&"mprotect".into(), &true.into()),
            "{words:?}: {line}"
        );
    }
    let refused = run(&["--engine", "uffd-sync"]);
    assert_ne!(refused.status, 0, "{}", refused.out);
    for word in ["userfaultfd failed", "`--engine mprotect` needs no userfaultfd"] {
        assert!(refused.err.contains(word), "{word}: {}", refused.err);
    }
}

/// The processes of a run that have mapped the window: its workers, which have been bound before.
fn workers(run: u32) -> Vec<u32> {
    let has_window = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/maps"))
            .is_ok_and(|maps| maps.lines().any(|line| line.starts_with("2a0000000000-")))
    };
    descendants(run).into_iter().map(|process| process.pid).filter(has_window).collect()
}

fn cores(pid: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("its cores").trim().to_owned()
}

#[test]
fn workers_stay_on_cores_as_the_run_is_told() {
    let _watchdog = Watchdog::arm(Duration::from_secs(300), "workers on cores");
    let ours = cores("self");
    if ours.parse::<u32>().is_ok() {
        viaduct_kit::skip!("one core");
    }
    let have = viaduct_os::cpu::allowed().len();
    // `auto` gives each worker a core, where there are enough of them. A run of more workers than many cores would be large.
    let turns = [("core", 2), ("none", 2), ("auto", 1), ("auto", have / 2 + 1)];
    for (bind, procs) in turns.into_iter().filter(|(_, procs)| *procs <= 8) {
        let (folder, number) = (Folder::new(), procs.to_string());
        let words =
            ["dsm", "sor", "--procs", &number, "--size", "128", "--rounds", "100000000", "--allow-root"];
        let mut run = verb_command(&folder, &[&words[..], &["--bind", bind]].concat())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        wait_for("the workers", || workers(run.id()).len() == 2 * procs);
        let mut found: Vec<String> =
            workers(run.id()).into_iter().map(|pid| cores(&pid.to_string())).collect();
        // The launcher ends its ranks.
        crate::launching::signal(run.id(), libc::SIGTERM);
        run.wait().expect("it ends");
        if bind == "none" || (bind == "auto" && 2 * procs > have) {
            assert!(found.iter().all(|cores| *cores == ours), "{bind}, {procs}: {found:?}, not {ours}");
        } else {
            assert!(
                found.iter().all(|cores| cores.parse::<u32>().is_ok()),
                "{bind}: one core each: {found:?}"
            );
            // Workers go over all cores before one has two of them.
            let wanted = have.min(2 * procs);
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), wanted, "{bind}, {procs}: {found:?}");
        }
    }
}

#[test]
fn nodes_of_one_host_and_of_another_share_memory_in_one_run() {
    let Some(cluster) = Cluster::new(2) else { return };
    let _watchdog = Watchdog::arm(Duration::from_secs(600), "nodes on one host and on another");
    // Between two nodes the board and the shared memory, to the third the network.
    for (app, variant) in [("litmus", "dms"), ("gauss", "none-mg")] {
        let words = ["dsm", app, "--variant", variant, "--rounds", "2", "--size", "48", "--check"];
        let run = finish(cluster.verb(&[&words[..], &["--allow-root", "--hosts", "h0*2,h1"]].concat()));
        assert_eq!(run.status, 0, "{app} {variant}: {}{}", run.out, run.err);
        assert!(run.out.contains("3 nodes of 1 workers"), "{}", run.out);
    }
}
