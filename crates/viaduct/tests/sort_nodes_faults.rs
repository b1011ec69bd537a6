//! What becomes of `viaduct sort --nodes` when a node dies, stops for a while, gets more than it has memory for, or is interrupted.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use viaduct_kit::effort;
use viaduct_kit::leaks::descendants;
use viaduct_kit::packages::skip;
use viaduct_kit::process::has_ended;
use viaduct_providers::config::OfiConfig;
use viaduct_providers::ofi::{self, Found};

use crate::launching::cluster::Cluster;
use crate::launching::{finish, signal, wait_for as wait_for_end};
use crate::sort_faults::{names, said};
use crate::sort_nodes::{Scene, watch};

const TRANSPORTS: [&str; 2] = ["shm", "tcp"];

/// A sort on three nodes in two passes.
fn on_three(scene: &Scene, transport: &str) -> Child {
    let words = ["--nodes", "3", "--transport", transport, "--memory", "16M", "in", "-o", "out"];
    scene.command(&words).stderr(Stdio::piped()).spawn().unwrap()
}

/// The nodes that a sort has started and that are there.
fn nodes(sort: &Child) -> Vec<u32> {
    nodes_below(sort.id())
}

/// The nodes that a launcher or an agent has started and that are there.
fn nodes_below(starter: u32) -> Vec<u32> {
    let is_node = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.windows(9).any(|piece| piece == b"--as-node")
    };
    descendants(starter).iter().map(|process| process.pid).filter(is_node).collect()
}

/// Waits until `found` gives something; `None` if the sort ends before.
fn wait_for<T>(sort: &Child, found: impl Fn() -> Option<T>) -> Option<T> {
    loop {
        match found() {
            None if !has_ended(sort.id()) => std::thread::yield_now(),
            other => return other,
        }
    }
}

/// Whether a node has an output or spilled records, which are files of the folder without a name or with a hidden one.
fn is_in_the_middle(folder: &Path, pid: u32) -> bool {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut names = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    names.any(|name| name.parent() == Some(folder) && !name.ends_with("in"))
}

/// A node in the middle of its work.
fn busy_node(scene: &Scene, sort: &Child) -> Option<u32> {
    wait_for(sort, || nodes(sort).into_iter().rfind(|&pid| is_in_the_middle(scene.path(), pid)))
}

#[test]
fn a_node_that_is_killed_ends_the_sort_and_leaves_nothing() {
    let _watchdog = watch();
    let scene = Scene::new();
    scene.good(&["gen", "300K", "-o", "in"]);
    for transport in TRANSPORTS {
        let last = effort::rounds(1, 8);
        for round in 0.. {
            let child = on_three(&scene, transport);
            let node = wait_for(&child, || nodes(&child).pop());
            // Later in every round, so that they die in different places.
            std::thread::sleep(Duration::from_millis(25 * round));
            if let Some(pid) = node {
                // SAFETY: a plain system call; the process may have ended meanwhile.
                unsafe { libc::kill(pid as i32, libc::SIGKILL) };
            }
            let output = child.wait_with_output().unwrap();
            if output.status.success() {
                // It was done already: there is no later place.
                assert!(round > 0, "not one was caught over {transport}");
                std::fs::remove_file(scene.path().join("out")).unwrap();
                break;
            }
            assert_eq!(scene.names(), ["in"], "{transport}: {}", said(&output));
            if round >= last {
                break;
            }
        }
    }
}

#[test]
fn a_node_that_stops_for_a_while_goes_on_and_the_sort_with_it() {
    let _watchdog = watch();
    let scene = Scene::new();
    scene.good(&["gen", "300K", "-o", "in"]);
    scene.good(&["in", "-o", "sorted"]);
    let expected = std::fs::read(scene.path().join("sorted")).unwrap();
    for transport in TRANSPORTS {
        let mut child = on_three(&scene, transport);
        let node =
            busy_node(&scene, &child).unwrap_or_else(|| panic!("no node was seen at work over {transport}"));
        signal(node, libc::SIGSTOP);
        std::thread::sleep(effort::scaled(Duration::from_millis(700)));
        assert!(
            child.try_wait().unwrap().is_none(),
            "a sort over {transport} ended without one of its nodes"
        );
        signal(node, libc::SIGCONT);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{transport}: {}", said(&output));
        assert!(std::fs::read(scene.path().join("out")).unwrap() == expected, "{transport}");
        std::fs::remove_file(scene.path().join("out")).unwrap();
    }
}

#[test]
fn an_interrupt_ends_all_nodes_and_leaves_nothing() {
    let _watchdog = watch();
    let scene = Scene::new();
    scene.good(&["gen", "300K", "-o", "in"]);
    let mut hits = 0;
    for round in 0..effort::rounds(2, 8) {
        let child = on_three(&scene, TRANSPORTS[(round / 2 % 2) as usize]);
        // While nodes start, and while they work: there later in every round.
        let seen = if round % 2 == 0 {
            wait_for(&child, || descendants(child.id()).pop().map(|process| process.pid))
        } else {
            busy_node(&scene, &child)
        };
        std::thread::sleep(Duration::from_millis(20 * (round / 2)));
        let nodes: Vec<u32> = descendants(child.id()).iter().map(|process| process.pid).collect();
        assert!(seen.is_some(), "nothing was started");
        signal(child.id(), libc::SIGINT);
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            // It was done already.
            std::fs::remove_file(scene.path().join("out")).unwrap();
            continue;
        }
        assert_eq!(output.status.code(), Some(130), "round {round}: {}", said(&output));
        hits += u64::from(round % 2 == 1);
        assert_eq!(scene.names(), ["in"], "{}", said(&output));
        for pid in nodes {
            while !has_ended(pid) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    assert!(hits > 0, "not one was interrupted at work");
}

/// Three nodes on two hosts, which share a folder.
struct OnHosts {
    cluster: Cluster,
    folder: PathBuf,
}

impl OnHosts {
    /// `None`, and the test logged as skipped, where there are no hosts or nothing between them. The agents are there.
    fn new() -> Option<OnHosts> {
        let tcp = |found: Found| found.offers.iter().any(|offer| offer.name == "tcp");
        if !ofi::find(&OfiConfig::default()).is_ok_and(tcp) {
            skip("libfabric with TCP is not here (Debian: libfabric1)");
            return None;
        }
        let cluster = Cluster::new(2)?;
        let folder = cluster.file("files");
        std::fs::create_dir(&folder).unwrap();
        let made = finish(cluster.verb(&["sort", "gen", "300K", "-o", "files/in"]));
        assert_eq!(made.status, 0, "{}", made.err);
        let hosts = OnHosts { cluster, folder };
        let first = hosts.start().wait_with_output().unwrap();
        assert_eq!(first.status.code(), Some(0), "{}", said(&first));
        hosts.forget();
        Some(hosts)
    }

    fn start(&self) -> Child {
        let words = ["sort", "--allow-root", "--hosts", "h0*2,h1", "--transport", "auto", "--memory", "16M"];
        let mut command = self.cluster.verb(&[&words[..], &["files/in", "-o", "files/out"]].concat());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn nodes(&self) -> Vec<u32> {
        [0, 1].into_iter().flat_map(|host| nodes_below(self.cluster.agent(host))).collect()
    }

    /// The node of the second host, in the middle of its work; `None` if the sort ends before.
    fn busy_far_node(&self, sort: &Child) -> Option<u32> {
        let agent = self.cluster.agent(1);
        wait_for(sort, || nodes_below(agent).into_iter().find(|&pid| is_in_the_middle(&self.folder, pid)))
    }

    /// Removes an output that was completed.
    fn forget(&self) {
        std::fs::remove_file(self.folder.join("out")).unwrap();
    }
}

#[test]
fn a_node_that_is_killed_on_another_host_ends_the_sort_and_leaves_nothing() {
    let _watchdog = watch();
    let Some(hosts) = OnHosts::new() else { return };
    let mut hits = 0;
    for round in 0..effort::rounds(2, 8) {
        let child = hosts.start();
        let node = hosts.busy_far_node(&child);
        std::thread::sleep(Duration::from_millis(25 * round));
        if let Some(pid) = node {
            // SAFETY: a plain system call; the process may have ended meanwhile.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            hosts.forget();
            continue;
        }
        hits += 1;
        assert!(said(&output).contains("h1"), "round {round}, the host is named: {}", said(&output));
        assert_eq!(names(&hosts.folder), ["in"], "round {round}: {}", said(&output));
        wait_for_end("the nodes of both hosts", || hosts.nodes().is_empty());
    }
    assert!(hits > 0, "not one was caught");
}

#[test]
fn an_interrupt_ends_the_nodes_of_all_hosts_and_leaves_nothing() {
    let _watchdog = watch();
    let Some(hosts) = OnHosts::new() else { return };
    let mut hits = 0;
    for round in 0..effort::rounds(2, 8) {
        let child = hosts.start();
        hosts.busy_far_node(&child);
        std::thread::sleep(Duration::from_millis(25 * round));
        let nodes = hosts.nodes();
        signal(child.id(), libc::SIGINT);
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            hosts.forget();
            continue;
        }
        hits += 1;
        assert_eq!(output.status.code(), Some(130), "round {round}: {}", said(&output));
        assert_eq!(names(&hosts.folder), ["in"], "round {round}: {}", said(&output));
        wait_for_end("the nodes of both hosts", || nodes.iter().all(|&pid| has_ended(pid)));
    }
    assert!(hits > 0, "not one was interrupted at work");
}

/// The places that nodes take their samples from are known. Here they say that keys are spread evenly, and all other records are
/// those of one node.
#[test]
fn a_sample_that_misleads_does_not_make_a_node_use_more_than_its_memory() {
    const RECORDS: u64 = 400_000;
    let _watchdog = watch();
    let scene = Scene::new();
    let mut bytes = vec![0xFF; 100 * RECORDS as usize];
    for (n, record) in (0u64..).zip(bytes.chunks_mut(100)) {
        record[10..18].copy_from_slice(&n.to_be_bytes());
    }
    for node in 0..2u64 {
        let mut at = node.wrapping_mul(0xD1B5_4A32_D192_ED03);
        for _ in 0..400 {
            at = at.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let first = ((u128::from(at) * u128::from(100 * RECORDS)) >> 64) as usize / 100;
            for n in first..(first + 10).min(RECORDS as usize) {
                let key = (n as u64).wrapping_mul(0xD1B5_4A32_D192_ED03);
                bytes[100 * n..100 * n + 8].copy_from_slice(&key.to_be_bytes());
            }
        }
    }
    std::fs::write(scene.path().join("in"), &bytes).unwrap();
    let with = |memory: &str| {
        let words =
            ["--nodes", "2", "--parallel", "1", "--memory", memory, "in", "-o", "out", "--summary", "s"];
        scene.sort(&words)
    };
    let refused = with("48M");
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(
        said(&refused).contains("more than a sample") && said(&refused).contains("--memory"),
        "{refused:?}"
    );
    assert_eq!(scene.names(), ["in"]);
    // As the hint says.
    for (memory, passes) in [("20M", 2), ("128M", 1)] {
        let done = with(memory);
        assert_eq!(done.status.code(), Some(0), "{memory}: {}", said(&done));
        assert_eq!(scene.summary()["passes"], passes, "{memory}");
        let mut expected: Vec<&[u8]> = bytes.chunks(100).collect();
        expected.sort_unstable();
        assert!(std::fs::read(scene.path().join("out")).unwrap() == expected.concat(), "{memory}");
    }
}
