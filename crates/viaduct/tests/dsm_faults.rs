//! Shared memory where something is missing: memory, a link between hosts. Deaths of processes are in `tests/faults`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use viaduct_kit::leaks::descendants;
use viaduct_kit::watchdog::Watchdog;

use crate::launching::cluster::Cluster;
use crate::launching::{Folder, finish, verb_command, wait_for};

#[test]
fn a_run_without_memory_for_its_network_says_so() {
    let folder = Folder::new();
    let mut command = verb_command(&folder, &["dsm", "sor", "--size", "64", "--allow-root"]);
    command.env("VIADUCT_SHM_MEMORY_BUDGET", "300K");
    let run = finish(command);
    assert_ne!(run.status, 0, "{}", run.out);
    assert!(run.err.contains("budget"), "{}", run.err);
}

#[test]
fn a_run_without_room_for_its_memory_says_so() {
    let folder = Folder::new();
    let program = env!("CARGO_BIN_EXE_viaduct");
    // The processes have little address space; the launcher has more than they ask for.
    let script = format!("ulimit -v 2000000; exec {program} dsm sor --size 64 --memory 4G --allow-root");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]).env("VIADUCT_RUNTIME_DIR", folder.path());
    let run = finish(command);
    assert_ne!(run.status, 0, "{}", run.out);
    for word in ["sharing memory with the node", "out of memory", "hint: free memory", "RLIMIT_AS"] {
        assert!(run.err.contains(word), "{word}: {}", run.err);
    }
}

/// A memory group of its own below ours, with a limit; `None` where this process may make none.
fn small_group(limit: &str) -> Option<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = |controller: &str| {
        table.lines().find_map(|line| {
            let (head, path) = line.rsplit_once(':')?;
            (head.split_once(':')?.1 == controller).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let first =
        group("memory").map(|path| (Path::new("/sys/fs/cgroup/memory").join(path), "memory.limit_in_bytes"));
    let second = group("").map(|path| (Path::new("/sys/fs/cgroup").join(path), "memory.max"));
    first.into_iter().chain(second).find_map(|(above, file)| {
        let group = above.join(format!("viaduct-test-{}", std::process::id()));
        std::fs::create_dir(&group).ok()?;
        match std::fs::write(group.join(file), limit) {
            Ok(()) => Some(group),
            Err(_) => std::fs::remove_dir(&group).ok().and(None),
        }
    })
}

#[test]
fn a_run_that_outgrows_its_container_says_so() {
    let _watchdog = Watchdog::arm(Duration::from_secs(300), "a run in a small container");
    let Some(group) = small_group("48M") else {
        viaduct_kit::skip!("no memory group can be made here");
    };
    let folder = Folder::new();
    let program = env!("CARGO_BIN_EXE_viaduct");
    // 72 MB and their copies at other nodes.
    let script = format!(
        "echo $$ > {}/cgroup.procs && exec {program} dsm sor --size 3000 --rounds 2 --allow-root",
        group.display()
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]).env("VIADUCT_RUNTIME_DIR", folder.path());
    let run = finish(command);
    wait_for("the group to be empty", || std::fs::remove_dir(&group).is_ok());
    assert_ne!(run.status, 0, "{}", run.out);
    for word in ["killed a process of this host for want of memory", "hint", "touch less"] {
        assert!(run.err.contains(word), "{word}: {}", run.err);
    }
}

#[test]
fn arrays_that_do_not_fit_are_refused_with_a_hint() {
    let folder = Folder::new();
    let run =
        finish(verb_command(&folder, &["dsm", "sor", "--size", "1024", "--memory", "1M", "--allow-root"]));
    assert_ne!(run.status, 0, "{}", run.out);
    for word in ["do not fit into the", "bytes of shared memory", "hint: give the run more", "--memory"] {
        assert!(run.err.contains(word), "{word}: {}", run.err);
    }
}

/// Ten times the time after which a silent network is noticed: what takes longer hangs.
const HANG: Duration = Duration::from_secs(30);

#[test]
fn a_cut_link_between_nodes_ends_the_run() {
    let Some(cluster) = Cluster::new(2) else { return };
    let _watchdog = Watchdog::arm(Duration::from_secs(300), "a cut link between nodes");
    let words = ["dsm", "sor", "--hosts", "h0,h1", "--size", "128", "--rounds", "100000000", "--allow-root"];
    let mut command = cluster.verb(&words);
    let run = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let run = run.expect("the program starts");
    let below = |host| descendants(cluster.agent(host)).iter().map(|one| one.pid).collect::<Vec<_>>();
    wait_for("a server and a worker on each host", || {
        (0..2).all(|host| std::panic::catch_unwind(|| below(host).len() >= 3).unwrap_or(false))
    });
    let family: Vec<u32> = (0..2).flat_map(below).collect();
    cluster.hosts.cut(1);
    let _hang = Watchdog::arm(HANG, "the end of a run whose link was cut");
    let output = run.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(255), "{said}");
    let lost = "viaduct launch: rank 2: h1: nothing was heard of it for 2.5 s; --silence allows more";
    assert!(said.lines().any(|line| line == lost), "{said}");
    for pid in family {
        wait_for(&format!("the end of process {pid}"), || {
            !std::path::Path::new(&format!("/proc/{pid}/exe")).exists()
        });
    }
    cluster.hosts.mend(1);
}
