//! `viaduct sort` on several nodes: the output of one node, from files that all see and from files of their own, over every
//! transport.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use viaduct_kit::effort::{self, scaled};
use viaduct_kit::packages::{need_program, skip};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_providers::config::OfiConfig;

use crate::launching::cluster::Cluster;
use crate::launching::{Folder, finish, verb_command};
use crate::sort_faults::said;

pub(crate) fn watch() -> Watchdog {
    Watchdog::arm(scaled(Duration::from_secs(180)), "a sort on nodes")
}

/// A place for files, and one for the jobs.
pub(crate) struct Scene {
    files: TempDir,
    jobs: Folder,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene { files: TempDir::new("sort-nodes"), jobs: Folder::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.files.path()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = verb_command(&self.jobs, &[&["sort"], args].concat());
        command.current_dir(self.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn sort(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program starts")
    }

    pub(crate) fn good(&self, args: &[&str]) {
        let done = self.sort(args);
        assert_eq!(done.status.code(), Some(0), "{args:?}: {}", said(&done));
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) fn summary(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path().join("s")).unwrap()).unwrap()
    }
}

/// Records of the edges of all nodes whose name begins so.
fn carried(summary: &Value, name: &str) -> u64 {
    carried_of(summary, name, "records")
}

/// As [`carried`], of bytes or whatever edges count.
fn carried_of(summary: &Value, name: &str, what: &str) -> u64 {
    let nodes = summary["nodes"].as_array().unwrap().iter();
    let edges = nodes.flat_map(|node| node["edges"].as_array().unwrap());
    let fits = |edge: &&Value| edge["name"].as_str().unwrap().starts_with(name);
    edges.filter(fits).map(|edge| edge[what].as_u64().unwrap()).sum()
}

#[test]
fn nodes_sort_a_file_that_all_see_over_shared_memory_and_over_tcp() {
    let _watchdog = watch();
    let scene = Scene::new();
    scene.good(&["gen", "200K", "-s", "-o", "in"]);
    scene.good(&["in", "-o", "one"]);
    let expected = std::fs::read(scene.path().join("one")).unwrap();
    for (nodes, transport, memory, passes, direct) in [
        ("3", "shm", "1G", 1, "auto"),
        ("2", "shm", "16M", 2, "auto"),
        ("2", "tcp", "1G", 1, "auto"),
        ("3", "tcp", "16M", 2, "auto"),
        // Parts of one file meet within a block, which both write through the page cache.
        ("3", "shm", "1G", 1, "on"),
        ("2", "shm", "16M", 2, "on"),
    ] {
        let args = ["--nodes", nodes, "--transport", transport, "--memory", memory, "--direct", direct];
        scene.good(&[&args[..], &["in", "-o", "out", "--summary", "s"]].concat());
        assert!(std::fs::read(scene.path().join("out")).unwrap() == expected, "{args:?}");
        let summary = scene.summary();
        assert_eq!((&summary["passes"], &summary["records"]), (&passes.into(), &200_000.into()), "{args:?}");
        assert_eq!(summary["transport"], transport);
        assert_eq!(summary["nodes"].as_array().unwrap().len().to_string(), nodes);
        for edge in ["input", "output"] {
            assert_eq!(carried(&summary, edge), 200_000, "{args:?}: {edge}");
            assert_eq!(carried_of(&summary, edge, "bytes"), 20_000_000, "{args:?}: {edge}");
        }
        let spilled = carried_of(&summary, "spill", "bytes");
        assert_eq!(spilled, if passes == 2 { 20_000_000 } else { 0 }, "{args:?}");
        let (to, from, here) =
            (carried(&summary, "to "), carried(&summary, "from "), carried(&summary, "here"));
        assert_eq!((to, to + here), (from, 200_000), "{args:?}");
        assert!(to > 0);
        for node in summary["nodes"].as_array().unwrap() {
            let causes = node["overhead"].as_object().unwrap().values().map(|cause| cause.as_f64().unwrap());
            let (named, all) = (causes.sum::<f64>(), node["phases"]["overhead"].as_f64().unwrap());
            assert!((0.8..1.01).contains(&(named / all)), "{args:?}: {node}");
        }
    }
    assert_eq!(scene.names(), ["in", "one", "out", "s"], "nothing is left behind");
}

#[test]
fn nodes_of_one_host_load_no_libfabric() {
    let _watchdog = watch();
    let scene = Scene::new();
    scene.good(&["gen", "2K", "-o", "in"]);
    std::fs::create_dir(scene.path().join("loaded")).unwrap();
    let mut command = scene.command(&["--nodes", "2", "in", "-o", "out"]);
    command.env("LD_DEBUG", "libs").env("LD_DEBUG_OUTPUT", scene.path().join("loaded/by"));
    let done = command.output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    let mut seen = 0;
    for entry in std::fs::read_dir(scene.path().join("loaded")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        seen += usize::from(text.contains("libc.so"));
        assert!(!text.contains("libfabric"), "{text}");
    }
    if seen == 0 {
        skip("the loader does not tell which libraries it loads");
        return;
    }
    assert!(seen >= 3, "{seen} told of the launcher and two nodes");
}

#[test]
fn nodes_may_write_over_what_they_read() {
    let _watchdog = watch();
    let scene = Scene::new();
    let make = || {
        scene.good(&["gen", "200K", "-o", "in"]);
        scene.good(&["gen", "100K", "-o", "own0"]);
        scene.good(&["gen", "100K", "-b", "100000", "-o", "own1"]);
    };
    make();
    scene.good(&["in", "-o", "sorted"]);
    let expected = std::fs::read(scene.path().join("sorted")).unwrap();
    for memory in ["16M", "1G"] {
        make();
        scene.good(&["--nodes", "2", "--memory", memory, "in", "-o", "in"]);
        assert!(std::fs::read(scene.path().join("in")).unwrap() == expected, "{memory}");
        scene.good(&["--nodes", "2", "--memory", memory, "own%r", "-o", "own%r"]);
        let both = ["own0", "own1"].map(|name| std::fs::read(scene.path().join(name)).unwrap()).concat();
        assert!(both == expected, "{memory}");
    }
    assert_eq!(scene.names(), ["in", "own0", "own1", "sorted"]);
}

#[test]
fn nodes_sort_nothing_at_all() {
    let _watchdog = watch();
    let scene = Scene::new();
    for name in ["none", "none0", "none1"] {
        std::fs::write(scene.path().join(name), "").unwrap();
    }
    for more in [&[][..], &["--lines"], &["--transport", "tcp"]] {
        scene.good(&[&["--nodes", "2", "none", "-o", "out"], more].concat());
        scene.good(&[&["--nodes", "2", "none%r", "-o", "out%r", "--summary", "s"], more].concat());
        for name in ["out", "out0", "out1"] {
            assert_eq!(std::fs::metadata(scene.path().join(name)).unwrap().len(), 0, "{more:?}: {name}");
            std::fs::remove_file(scene.path().join(name)).unwrap();
        }
        assert_eq!(scene.summary()["records_out"], 0);
    }
    assert_eq!(scene.names(), ["none", "none0", "none1", "s"]);
}

#[test]
fn each_node_reads_and_writes_files_of_its_own() {
    let _watchdog = watch();
    let scene = Scene::new();
    for node in 0..3 {
        std::fs::create_dir(scene.path().join(format!("d{node}"))).unwrap();
        // The last has none at all.
        let count = ["40000", "7", "0"][node];
        scene.good(&["gen", count, "-b", &(node * 1_000_000).to_string(), "-o", &format!("d{node}/in")]);
    }
    scene.good(&["--nodes", "3", "--window", "1M", "d%r/in", "-o", "d%r/out"]);
    let check = scene.sort(&["check", "d0/out", "d1/out", "d2/out"]);
    let inputs = scene.sort(&["check", "d0/in", "d1/in", "d2/in"]);
    assert_eq!(check.status.code(), Some(0), "{}", said(&check));
    let sum = |text: &str| text.lines().find(|line| line.starts_with("Checksum")).map(str::to_owned);
    assert!(said(&check).contains("Records: 40007") && sum(&said(&check)) == sum(&said(&inputs)));
    let lengths = [0, 1, 2].map(|n| std::fs::metadata(scene.path().join(format!("d{n}/out"))).unwrap().len());
    assert!(lengths.iter().all(|&len| len > 1_000_000), "{lengths:?}");
}

#[test]
fn lines_on_nodes_come_out_like_from_gnu_sort() {
    let Some(gnu) = need_program("sort", "coreutils") else { return };
    let _watchdog = watch();
    let scene = Scene::new();
    let mut text = String::new();
    for n in 0..60_000u64 {
        let number = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        text += &format!("{} {}:{}\n", number % 1000, number, number % 77);
    }
    // A line that no message holds, and equal ones.
    text += &"m".repeat(700_000);
    text += "\n";
    text += &"5 same\n".repeat(3000);
    std::fs::write(scene.path().join("in"), &text).unwrap();
    let ways: [&[&str]; 6] = [
        &[],
        &["-s", "-k1,1n"],
        &["-u", "-k1,1"],
        &["-r"],
        &["-k2,2n", "-k1,1r"],
        // A word that the launcher gives a meaning of its own.
        &["-t", ":", "-k2,2n"],
    ];
    for (n, words) in ways.into_iter().enumerate() {
        let expected =
            Command::new(&gnu).args(words).arg("in").current_dir(scene.path()).env("LC_ALL", "C").output();
        let memory = if n % 2 == 0 { "1G" } else { "16M" };
        let transport = if n == 2 { "tcp" } else { "shm" };
        let direct = if n < 3 { "auto" } else { "on" };
        let args = ["--lines", "--nodes", "3", "--transport", transport, "--memory", memory];
        scene.good(&[words, &args, &["--direct", direct, "in", "-o", "out"]].concat());
        assert!(std::fs::read(scene.path().join("out")).unwrap() == expected.unwrap().stdout, "{words:?}");
    }
}

/// One node gets everything.
#[test]
fn records_that_are_all_equal_are_sorted_on_nodes() {
    let _watchdog = watch();
    let scene = Scene::new();
    let mut record = [b'='; 100];
    record[10..].fill(7);
    std::fs::write(scene.path().join("in"), record.repeat(200_000)).unwrap();
    for (memory, passes) in [("1G", 1), ("16M", 2)] {
        scene.good(&["--nodes", "3", "--memory", memory, "in", "-o", "out", "--summary", "s"]);
        let summary = scene.summary();
        assert_eq!((&summary["passes"], &summary["records_out"]), (&passes.into(), &200_000.into()));
        assert!(std::fs::read(scene.path().join("out")).unwrap() == record.repeat(200_000), "{memory}");
    }
}

#[test]
fn failures_of_nodes_have_a_cause_and_leave_no_output() {
    let _watchdog = watch();
    let scene = Scene::new();
    scene.good(&["gen", "2K", "-o", "in"]);
    std::fs::write(scene.path().join("own0"), [7; 1000]).unwrap();
    std::fs::write(scene.path().join("own1"), [7; 1050]).unwrap();
    std::fs::write(scene.path().join("text"), "one line\nanother line\n".repeat(50)).unwrap();
    // Whole records by its length, and seen by its node alone.
    std::fs::write(scene.path().join("lines0"), "a line of text\n".repeat(20)).unwrap();
    std::fs::write(scene.path().join("lines1"), "another line of text\n".repeat(100)).unwrap();
    let before = scene.names();
    let cases: [(&[&str], &str); 10] = [
        (&["in", "missing", "-o", "out"], "missing"),
        (&["own%r", "-o", "out"], "own1: the last record is cut"),
        (&["in", "own%r", "-o", "out"], "%r"),
        (&["in", "-o", "no/such"], "no/such"),
        (&["in", "-o", "no/such%r"], "no/such"),
        (&["in"], "-o FILE"),
        (&["-", "-o", "out"], "no streams"),
        (&["in", "-o", "out", "--transport", "pigeon"], "pigeon"),
        (&["text", "-o", "out"], "--lines"),
        (&["lines%r", "-o", "out"], "--lines"),
    ];
    for (args, cause) in cases {
        let answer = scene.sort(&[&["--nodes", "2"], args].concat());
        assert_eq!(answer.status.code(), Some(2), "{args:?}: {}", said(&answer));
        assert!(said(&answer).contains(cause), "{args:?}: {}", said(&answer));
        assert_eq!(scene.names(), before, "{args:?}");
    }
}

#[test]
fn the_first_node_tells_of_progress() {
    let _watchdog = watch();
    let scene = Scene::new();
    scene.good(&["gen", "2K", "-o", "in"]);
    let done = scene.sort(&["--nodes", "2", "--progress", "lines", "in", "-o", "out"]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert_eq!(said(&done).matches("node 0: ended after").count(), 1, "{}", said(&done));
    assert!(!said(&done).contains("node 1: "), "{}", said(&done));
}

#[test]
fn nodes_on_hosts_sort_folders_of_their_own() {
    let tcp = |found: viaduct_providers::ofi::Found| found.offers.iter().any(|offer| offer.name == "tcp");
    if !viaduct_providers::ofi::find(&OfiConfig::default()).is_ok_and(tcp) {
        skip("libfabric with TCP is not here (Debian: libfabric1)");
        return;
    }
    let Some(cluster) = Cluster::new(2) else { return };
    let _watchdog = watch();
    let run = |args: &[&str]| {
        let run = finish(cluster.verb(&[&["sort"], args].concat()));
        assert_eq!(run.status, 0, "{args:?}: {}", run.err);
        run
    };
    for node in 0..3 {
        std::fs::create_dir(cluster.file(&format!("disk{node}"))).unwrap();
        run(&["gen", "20K", "-b", &(node * 20_000).to_string(), "-o", &format!("disk{node}/in")]);
    }
    let whole = run(&["gen", "60K", "-c", "-o", "shared"]);
    // Which of them a quick run takes does not matter: `auto` has both kinds of edges.
    let transports = ["auto", "tcp", "ofi"];
    for transport in &transports[..effort::rounds(1, 3) as usize] {
        // Two nodes share a host and one is alone; without a network between them neither half would come.
        let hosts = ["--allow-root", "--hosts", "h0*2,h1", "--transport", transport];
        run(&[&hosts[..], &["disk%r/in", "-o", "disk%r/out", "--summary", "s"]].concat());
        let check = run(&["check", "disk0/out", "disk1/out", "disk2/out"]);
        assert!(
            check.err.contains("Records: 60000") && check.err.contains(whole.err.trim()),
            "{}",
            check.err
        );
        let summary: Value = serde_json::from_slice(&std::fs::read(cluster.file("s")).unwrap()).unwrap();
        assert_eq!((&summary["transport"], carried(&summary, "output")), (&(*transport).into(), 60_000));
        run(&[&hosts[..], &["shared", "-o", "sorted"]].concat());
        run(&["check", "sorted"]);
        std::fs::remove_file(cluster.file("sorted")).unwrap();
    }
}
