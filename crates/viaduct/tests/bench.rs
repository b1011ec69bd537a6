//! Short runs of every case with the reference layers: valid data, the promised JSON, no process left behind.
//! No test looks at a time.

use crate::common;

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{bench, two_cores};
use serde_json::Value;
use viaduct_kit::effort::scaled;
use viaduct_kit::watchdog::Watchdog;

/// Checks what every run promises; returns the layers that were measured.
fn check(lines: &[Value], case: &str) -> BTreeSet<String> {
    let mut layers = BTreeSet::new();
    for line in lines {
        assert_eq!(line["schema"], 1);
        assert_eq!(line["case"], case);
        if line.get("ratio").is_some() {
            assert!(line["ratio"].as_f64().unwrap() > 0.0, "{line}");
            continue;
        }
        layers.insert(line["layer"].as_str().unwrap().to_owned());
        assert_eq!(line["valid"], true, "{line}");
        let (p50, ci) = (line["p50"].as_f64().unwrap(), &line["ci95"]);
        assert!(ci[0].as_f64().unwrap() <= p50 && p50 <= ci[1].as_f64().unwrap(), "{line}");
        assert!(line["n"].as_u64().unwrap() >= 1 && line["samples"].as_u64().unwrap() >= 1, "{line}");
        assert!(line["noisy"].is_boolean() && line["unit"].is_string() && line["size"].is_u64(), "{line}");
    }
    layers
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn latency_of_the_references() {
    if two_cores() {
        let lines = bench(&[
            "latency",
            "--layer",
            "raw",
            "--compare",
            "unix,unix-spin,pipe,tcp",
            "--sizes",
            "8,100,4K",
        ]);
        assert_eq!(check(&lines, "latency"), set(&["raw", "unix", "unix-spin", "pipe", "tcp", "tcp-spin"]));
    }
}

#[test]
fn the_layer_via_goes_by_the_provider() {
    if two_cores() {
        let lines = bench(&[
            "latency",
            "--layer",
            "raw",
            "--compare",
            "via",
            "--provider",
            "loopback",
            "--sizes",
            "8",
        ]);
        assert_eq!(check(&lines, "latency"), set(&["raw", "loopback"]));
    }
}

#[test]
fn bandwidth_of_the_references() {
    if two_cores() {
        let lines = bench(&[
            "bandwidth",
            "--layer",
            "copy",
            "--compare",
            "raw,unix,pipe,tcp,tcp-spin",
            "--sizes",
            "1000,64K",
        ]);
        assert_eq!(check(&lines, "bandwidth"), set(&["copy", "raw", "unix", "pipe", "tcp", "tcp-spin"]));
    }
}

#[test]
fn rate_of_the_references() {
    if two_cores() {
        let lines = bench(&["rate", "--layer", "raw", "--compare", "tcp,unix,pipe"]);
        assert_eq!(check(&lines, "rate"), set(&["raw", "tcp", "tcp-nodelay", "unix", "pipe"]));
    }
}

#[test]
fn every_case_on_the_loopback_provider() {
    if two_cores() {
        for (case, size) in [("latency", "8,4K"), ("bandwidth", "64K"), ("rate", "8"), ("connections", "16")]
        {
            let lines = bench(&[case, "--provider", "loopback", "--sizes", size, "--connections", "1,8"]);
            assert_eq!(check(&lines, case), set(&["loopback"]));
            assert!(lines.iter().filter(|l| l.get("ratio").is_none()).all(|l| l["provider"] == "loopback"));
        }
    }
}

#[test]
fn connections_of_the_references() {
    let lines = bench(&["connections", "--layer", "tcp", "--compare", "pipe", "--connections", "1,20"]);
    assert_eq!(check(&lines, "connections"), set(&["tcp", "pipe"]));
    // Of one layer with itself only different places are compared, and those are named.
    let layer = |name: &Value| name.as_str().unwrap().split('@').next().unwrap().to_owned();
    for pair in lines.iter().filter(|line| line.get("ratio").is_some()) {
        let alone = layer(&pair["a"]) == layer(&pair["b"]);
        assert!(!alone || pair["a"].as_str().unwrap().contains('@'), "{pair}");
    }
}

#[test]
fn one_core_for_both() {
    let lines = bench(&[
        "latency",
        "--layer",
        "tcp",
        "--compare",
        "unix,pipe,raw",
        "--cpus",
        "0,0",
        "--wait",
        "block",
        "--sizes",
        "8",
    ]);
    assert_eq!(check(&lines, "latency"), set(&["tcp", "unix", "pipe", "raw"]));
    for line in &lines {
        assert_eq!(line["placement"], "same");
    }
    // One placement, so there are ratios for all ordered pairs, and opposite ones are reciprocal.
    let ratio = |a: &str, b: &str| {
        let pair = lines.iter().find(|line| line["a"] == a && line["b"] == b).expect("every ordered pair");
        pair["ratio"].as_f64().unwrap()
    };
    for (a, b) in [("tcp", "unix"), ("unix", "raw"), ("raw", "pipe"), ("pipe", "tcp")] {
        assert!((ratio(a, b) * ratio(b, a) - 1.0).abs() < 1e-9);
    }
}

#[test]
fn table_and_csv() {
    for (format, words) in
        [("table", &["# latency", "p50 us", "tcp"][..]), ("csv", &["case,layer,provider", "latency,tcp,"])]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
        command.args([
            "bench",
            "latency",
            "--layer",
            "tcp",
            "--sizes",
            "8",
            "--time",
            "0.05",
            "--launches",
            "1",
        ]);
        let output = command.args(["--format", format]).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(output.stderr.is_empty(), "no talk and no progress bar unless on a terminal");
    }
}

#[test]
fn a_killed_run_leaves_no_second_process() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    command.args(["bench", "latency", "--layer", "tcp", "--time", "60"]).stdout(Stdio::null());
    let mut parent = command.spawn().unwrap();
    let pid = parent.id();
    let mut child = None;
    for _ in 0..500 {
        child = child_of(pid);
        if child.is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let child = child.expect("a second process");
    parent.kill().unwrap();
    parent.wait().unwrap();
    for _ in 0..500 {
        if !std::path::Path::new(&format!("/proc/{child}")).exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("process {child} outlived its parent");
}

/// Whatever the set-up had come to, the first process says that the second is gone, and not that it does not answer, for
/// which it would have to wait for a time of its own.
#[test]
fn a_second_process_that_dies_while_streams_are_set_up_is_missed() {
    if !two_cores() {
        return;
    }
    let _dog = Watchdog::arm(scaled(Duration::from_secs(120)), "a benchmark without its second process");
    for delay in [0, 2, 4, 6, 8, 10, 13, 16, 20, 25, 30, 40, 60] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
        command.args(["bench", "sockets-stream", "--layer", "shm", "--time", "60"]);
        let run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let child = loop {
            if let Some(child) = child_of(run.id()) {
                break child;
            }
            std::thread::yield_now();
        };
        std::thread::sleep(Duration::from_millis(delay));
        assert!(Command::new("kill").args(["-KILL", &child.to_string()]).status().unwrap().success());
        let output = run.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "after {delay} ms: {said}");
        assert!(said.contains("the peer process ended unexpectedly while"), "after {delay} ms: {said}");
    }
}

fn child_of(parent: u32) -> Option<u32> {
    let mut found = None;
    for task in std::fs::read_dir(format!("/proc/{parent}/task")).ok()?.flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found = found.or_else(|| children.split_whitespace().next()?.parse().ok());
    }
    found
}

#[test]
fn every_case_on_the_shm_provider() {
    if two_cores() {
        let lines = bench(&["latency", "--provider", "shm", "--compare", "raw", "--sizes", "0,8,4K,100K"]);
        assert_eq!(check(&lines, "latency"), set(&["shm", "raw"]));
        let lines = bench(&["latency", "--provider", "shm", "--wait", "block", "--sizes", "8,64K"]);
        assert_eq!(check(&lines, "latency"), set(&["shm"]));
        let lines = bench(&["bandwidth", "--provider", "shm", "--compare", "copy", "--sizes", "1000,64K"]);
        assert_eq!(check(&lines, "bandwidth"), set(&["shm", "copy"]));
        let lines = bench(&["latency", "--provider", "shm", "--send", "descriptor", "--sizes", "8,4K"]);
        assert_eq!(check(&lines, "latency"), set(&["shm"]));
        assert!(
            lines.iter().filter(|l| l.get("ratio").is_none()).all(|l| l["config"]["send"] == "descriptor")
        );
        for window in ["1", "2", "7", "64", "300"] {
            let lines = bench(&["rate", "--provider", "shm", "--window", window]);
            assert_eq!(check(&lines, "rate"), set(&["shm"]), "window {window}");
        }
    }
    let lines = bench(&[
        "latency",
        "--provider",
        "shm",
        "--cpus",
        "0,0",
        "--wait",
        "block",
        "--compare",
        "tcp",
        "--sizes",
        "8",
    ]);
    assert_eq!(check(&lines, "latency"), set(&["shm", "tcp"]));
    let lines = bench(&["connections", "--provider", "shm", "--wait", "block", "--connections", "1,100"]);
    assert_eq!(check(&lines, "connections"), set(&["shm"]));
}

#[test]
fn out_of_the_cache() {
    if two_cores() {
        for case in ["latency", "bandwidth"] {
            let lines =
                bench(&[case, "--provider", "shm", "--cold", "--compare", "pipe", "--sizes", "8,4K,100K"]);
            assert_eq!(check(&lines, case), set(&["shm", "pipe"]));
            let cold = lines.iter().filter(|line| line["series"] == "cold");
            let seen: BTreeSet<_> =
                cold.map(|l| (l["layer"].as_str().unwrap(), l["size"].as_u64().unwrap())).collect();
            let wanted = [4096, 102_400].into_iter().flat_map(|size| [("shm", size), ("pipe", size)]);
            assert_eq!(seen, wanted.collect(), "{case}: small messages would all fit");
        }
    }
}

#[test]
fn the_whole_suite_in_a_hurry() {
    if !two_cores() {
        return;
    }
    let folder = viaduct_kit::tempdir::TempDir::new("results");
    let file = folder.path().join("results.jsonl");
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    command.args(["bench", "all", "--quick", "--format", "json", "-o"]).arg(&file);
    if !viaduct_kit::effort::full() {
        // So short that data is checked with a hundred messages instead of a thousand.
        command.args(["--time", "0.04"]);
    }
    let output = command.env_remove("VIADUCT_PROVIDER").stdin(Stdio::null()).output().unwrap();
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{talk}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), printed, "the file has what was printed");
    let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: BTreeSet<&str> = lines.iter().map(|line| line["case"].as_str().unwrap()).collect();
    let wanted: BTreeSet<&str> = viaduct_bench::cases::ALL.iter().map(|case| case.name).collect();
    assert_eq!(seen, wanted);
    let values = lines.iter().filter(|line| line.get("ratio").is_none());
    assert!(values.clone().any(|line| line["provider"] == "auto"), "the provider of every tool");
    assert!(values.clone().count() > 20 && values.clone().all(|line| line["valid"] == true));
}

#[test]
fn an_interrupted_run_keeps_whole_lines() {
    let folder = viaduct_kit::tempdir::TempDir::new("results");
    let file = folder.path().join("results.jsonl");
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    command.args(["bench", "latency", "--layer", "tcp", "--time", "0.05", "--launches", "1"]);
    // Many sizes, so that it is still at work when the first of them are known.
    let sizes: Vec<String> = (1..2000).map(|n| n.to_string()).collect();
    command.args(["--sizes", &sizes.join(","), "-o"]).arg(&file).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let known = || std::fs::read_to_string(&file).unwrap_or_default();
    while known().lines().count() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    assert!(!child.wait().unwrap().success());
    assert!(known().ends_with('\n'));
    for line in known().lines() {
        assert_eq!(serde_json::from_str::<Value>(line).expect("a whole line")["case"], "latency");
    }
}

#[test]
fn columns_as_osu_has_them() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    command.args([
        "bench",
        "latency",
        "--layer",
        "tcp",
        "--sizes",
        "64,8",
        "--time",
        "0.05",
        "--launches",
        "1",
    ]);
    let output = command.args(["--format", "osu"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("# Size") && text.contains("Latency (us)"), "{text}");
    let sizes =
        text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_whitespace().next());
    let sizes: BTreeSet<&str> = sizes.collect();
    assert_eq!(sizes, BTreeSet::from(["8", "64"]));
}

/// Runs a case on the shm provider with few places and checks which curves it has, and where on its axis they lie.
fn curves(case: &str, args: &[&str], axis: &str, expected: &[(&str, &[f64])]) -> Vec<Value> {
    let lines = bench(&[&[case, "--quick", "--provider", "shm"], args].concat());
    assert_eq!(check(&lines, case), set(&["shm"]), "{case}");
    let measured: Vec<Value> = lines.into_iter().filter(|line| line.get("ratio").is_none()).collect();
    let mut seen: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for line in &measured {
        assert_eq!(line["axis"], axis, "{line}");
        // Places are whole numbers, and no place at all is one too.
        let places = seen.entry(line["series"].as_str().unwrap()).or_default();
        places.extend(line["x"].as_f64().map(|x| x as u64));
    }
    let wanted = expected.iter().map(|(name, places)| (*name, places.iter().map(|x| *x as u64).collect()));
    assert_eq!(seen, wanted.collect(), "{case}");
    measured
}

/// Whether the kernel lets a process copy from another one of the same user that is not its child.
fn kernel_copies() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").map_or(true, |scope| scope.trim() == "0")
}

#[test]
fn rdma_by_operation_and_way() {
    if two_cores() {
        let mut ways = vec!["write-imm-helper", "read-helper"];
        if kernel_copies() {
            ways.extend(["write-imm-kernel", "read-kernel"]);
        }
        let of = |own: &[&'static str]| {
            let all = own.iter().chain(&ways);
            all.map(|series| (*series, &[][..])).collect::<Vec<(&str, &[f64])>>()
        };
        let large = of(&["write", "write-imm", "read", "read-fresh"]);
        let atomics = of(&["write", "write-imm", "read", "read-fresh", "fetch-add", "compare-swap"]);
        curves("rdma", &["--sizes", "8"], "", &atomics);
        curves("rdma", &["--sizes", "1000"], "", &large);
        let streams = of(&["write", "write-imm", "read"]);
        curves("rdma-stream", &["--sizes", "8,4K"], "", &streams);
        for window in ["1", "9"] {
            curves("rdma-stream", &["--sizes", "64", "--window", window], "", &streams);
        }
    }
}

#[test]
fn calls_that_move_no_data() {
    if two_cores() {
        let (plain, regions): (&[f64], &[f64]) = (&[], &[4096.0, 100_000.0]);
        let expected = [
            ("open", plain),
            ("create-vi", plain),
            ("create-cq", plain),
            ("connect", plain),
            ("connect-first", plain),
            ("register", regions),
            ("deregister", regions),
            ("alloc", regions),
        ];
        for line in curves("calls", &["--sizes", "4K,100000"], "bytes", &expected) {
            let extra = line["extra"].as_object().unwrap();
            assert!(extra.len() == 1 && extra.values().all(|us| us.as_f64().unwrap() >= 0.0), "{line}");
        }
    }
}

#[test]
fn both_ways_and_several_connections() {
    if two_cores() {
        curves("bidirectional", &["--sizes", "8,4K"], "", &[("", &[])]);
        curves("bidirectional", &["--sizes", "64", "--window", "1"], "", &[("", &[])]);
        let lines = curves("pairs", &["--sizes", "64,4K"], "pairs", &[("", &[1.0, 2.0, 4.0])]);
        assert!(lines.iter().all(|line| line["connections"].as_f64() == line["x"].as_f64()));
    }
}

#[test]
fn three_levels_of_reliability() {
    if two_cores() {
        let levels: &[(&str, &[f64])] = &[("unreliable", &[]), ("delivery", &[]), ("reception", &[])];
        let lines = curves("reliability", &["--sizes", "8,4K"], "", levels);
        let used: BTreeSet<_> = lines.iter().map(|l| l["config"]["level"].as_str().unwrap()).collect();
        assert_eq!(used.len(), 3, "each curve has its own level");
    }
}

#[test]
fn waking_up_after_a_pause() {
    let lines = curves("wakeup", &["--wait", "block"], "idle_us", &[("", &[1.0, 100.0, 10_000.0])]);
    assert!(lines.iter().all(|line| line["wait"] == "block"));
}

#[test]
fn processor_time_of_both_sides() {
    if two_cores() {
        let expected: &[(&str, &[f64])] =
            &[("sender", &[]), ("receiver", &[]), ("sender-block", &[]), ("receiver-block", &[])];
        for line in curves("cpu", &["--sizes", "64,4K"], "", expected) {
            let extra = &line["extra"];
            assert!(extra["ns_per_byte"].as_f64().unwrap() > 0.0, "{line}");
            assert!(extra["others_us"].as_f64().unwrap() >= 0.0, "{line}");
            let blocks = line["series"].as_str().unwrap().ends_with("-block");
            assert_eq!(line["wait"], if blocks { "block" } else { "poll" });
        }
    }
}

#[test]
fn messages_by_the_clock() {
    if two_cores() {
        for line in curves("load", &[], "percent", &[("", &[10.0, 50.0, 90.0])]) {
            let value = |name: &str| line[name].as_f64().unwrap();
            assert!(value("samples") >= 1000.0 && line["batch"] == 1, "every message is a sample: {line}");
            assert!(value("p90") <= value("p99") && value("p999") <= value("max"), "{line}");
            let rate = |name: &str| line["extra"][name].as_f64().unwrap();
            let share = rate("offered_mmsg") / rate("peak_mmsg") * 100.0;
            // Both are medians over slices of one launch, so their quotient is exact.
            assert!((share - value("x")).abs() < 1.0, "{line}");
        }
    }
}

#[test]
fn computing_meanwhile() {
    if two_cores() {
        for line in curves("overlap", &["--sizes", "64,64K"], "", &[("send", &[]), ("read", &[])]) {
            let share = line["p50"].as_f64().unwrap();
            assert!((0.0..=100.001).contains(&share), "{line}");
            let extra = |name: &str| line["extra"][name].as_f64().unwrap();
            // Computing takes as long as the transfer alone, so all of it takes no less.
            assert!(extra("whole_us") >= extra("transfer_us") - 0.001 && extra("post_us") > 0.0, "{line}");
        }
    }
}

#[test]
fn a_peer_that_is_killed() {
    let expected: &[(&str, &[f64])] =
        &["detect", "flush", "flush-sends", "reconnect"].map(|series| (series, &[][..]));
    curves("failure", &["--wait", "block"], "", expected);
}
