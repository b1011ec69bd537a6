//! The other verbs, run once each: they answer, in every format, and leave nothing behind.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use viaduct_kit::effort::full;
use viaduct_kit::skip;

fn viaduct(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    command.args(args).stdin(Stdio::null()).env_remove("VIADUCT_PROVIDER");
    let output = command.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("plain text")
}

#[test]
fn info_and_config_in_every_format() {
    for (verb, word) in [("info", "provider shm"), ("config", "shm.ring-slots")] {
        for format in ["table", "json", "csv"] {
            let answer = text(&viaduct(&[verb, "--format", format]));
            assert!(answer.contains(word), "{verb} {format}: {answer}");
        }
        for line in text(&viaduct(&[verb, "--format", "json"])).lines() {
            assert!(serde_json::from_str::<Value>(line).expect("one object a line").is_object());
        }
    }
}

#[test]
fn config_tells_where_a_value_comes_from() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    let output =
        command.args(["config", "--format", "json"]).env("VIADUCT_SHM_RING_SLOTS", "128").output().unwrap();
    let answer = text(&output);
    let line = answer.lines().find(|line| line.contains("shm.ring-slots")).expect("the knob");
    let knob: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&knob["value"], &knob["origin"]), (&"128".into(), &"environment".into()));
}

#[test]
fn stat_of_a_process_without_viaduct_is_empty() {
    let output = viaduct(&["stat", "--format", "json", "--pid", "1"]);
    assert!(output.stdout.is_empty());
}

#[test]
fn stat_sees_a_running_benchmark() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    command.args([
        "bench",
        "latency",
        "--provider",
        "shm",
        "--sizes",
        "8",
        "--time",
        "60",
        "--wait",
        "block",
    ]);
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = running.id().to_string();
    let mut sends = None;
    for _ in 0..1000 {
        let answer = text(&viaduct(&["stat", "--format", "json", "--pid", &pid]));
        let nic = answer.lines().next().map(|line| serde_json::from_str::<Value>(line).unwrap());
        // Small messages are sent by value and counted apart.
        sends = nic.and_then(|nic| {
            let count = |name: &str| nic["counters"][name].as_u64();
            Some(count("sends")? + count("inline-sends")?)
        });
        sends = sends.filter(|sends| *sends > 0);
        if sends.is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(sends.is_some(), "no counters were seen");
}

#[test]
fn the_tour_goes_to_its_end() {
    let answer = text(&viaduct(&["tour", "--short", "--quick", "--time", "0.15"]));
    for word in [
        "1. This machine",
        "2. Two processes",
        "on `auto`",
        "connects, over `shm`",
        "it reads there: 1000",
        "3. Latency",
        "4. Bandwidth",
        "In short: Viaduct (auto took shm)",
    ] {
        assert!(answer.contains(word), "{word}:\n{answer}");
    }
    assert!(!answer.contains("\n5. "), "{answer}");
}

#[test]
fn the_tour_shows_every_layer() {
    if !full() {
        skip!("it measures for a minute: cargo xtask test --full");
    }
    let answer = text(&viaduct(&["tour", "--quick", "--time", "0.15"]));
    for word in [
        "5. An unmodified program",
        "TCP under viaduct run",
        "6. A job of four ranks",
        "Linux",
        "7. Memory that processes share",
        "equal to the sequential program",
        "8. A million records",
        "GNU sort",
        "9. MPI",
    ] {
        assert!(answer.contains(word), "{word}:\n{answer}");
    }
}
