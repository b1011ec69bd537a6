//! `viaduct bench rivals`: tools are found, missing ones named, children gone with us. The tool here is a script that says
//! what sockperf said once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use viaduct_kit::packages::need_cores;
use viaduct_kit::tempdir::TempDir;

const SOCKPERF: &str = r#"#!/bin/sh
case "$1" in
  server) /bin/sleep 100 & echo $! >> "${0%/*}/workers"; exec /bin/sleep 100 ;;
  ping-pong) echo "sockperf: ---> percentile 50.000 =   35.025" ;;
  throughput) echo "sockperf: Summary: BandWidth is 1000.000 MBps (8000.000 Mbps)" ;;
esac
"#;

fn rivals(path: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    command.args(["bench", "rivals", "--quick", "--launches", "1", "--time", "0.2", "--format", "json"]);
    command.env("PATH", path).env_remove("VIADUCT_PROVIDER").stdin(Stdio::null());
    command.output().expect("the program starts")
}

#[test]
fn an_installed_tool_is_measured_and_missing_ones_are_named() {
    if !need_cores(2) {
        return;
    }
    let folder = TempDir::new("rivals");
    let tool = folder.join("sockperf");
    fs::write(&tool, SOCKPERF).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let output = rivals(folder.path());
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{talk}");
    for word in ["libfabric-bin", "ucx-utils", "libopenmpi-dev", "mpich", "cargo install --git"] {
        assert!(talk.contains(word), "{word}: {talk}");
    }
    assert!(!talk.contains("missing: sockperf"), "{talk}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let value = |layer: &str, case: &str| {
        let line = lines.iter().find(|line| line["layer"] == layer && line["case"] == case);
        line.and_then(|line| line["p50"].as_f64()).unwrap_or_else(|| panic!("{layer} {case}: {text}"))
    };
    assert_eq!(value("rival:sockperf", "rivals-latency"), 35.025);
    assert!(
        (value("rival:sockperf", "rivals-bandwidth") - 1048.576).abs() < 1e-6,
        "2^20 bytes were a megabyte"
    );
    assert!(value("auto", "rivals-latency") > 0.0 && value("auto", "rivals-bandwidth") > 0.0);
    // What a tool has started is ended with it.
    let workers = fs::read_to_string(folder.join("workers")).unwrap();
    assert!(!workers.is_empty());
    for worker in workers.lines() {
        let state = fs::read_to_string(format!("/proc/{worker}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
    }
}

#[test]
fn a_tool_that_fails_is_reported_and_the_rest_stays() {
    if !need_cores(2) {
        return;
    }
    let folder = TempDir::new("rivals");
    let tool = folder.join("benchmark-publish-subscribe");
    fs::write(&tool, "#!/bin/sh\nexit 3\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let output = rivals(folder.path());
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{talk}");
    assert!(talk.contains("failed: iceoryx2") && talk.contains("exit status: 3"), "{talk}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("rivals-latency"));
}

#[test]
fn a_tool_dies_with_its_parent() {
    let program = env!("CARGO_BIN_EXE_viaduct");
    let script = format!("{program} bench-tool --parent $$ -- /bin/sleep 1000 & echo $!; wait");
    let mut shell = Command::new("/bin/sh");
    let mut parent = shell.args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(parent.stdout.take().unwrap()), &mut line)
        .unwrap();
    let child = format!("/proc/{}", line.trim());
    let name = || fs::read_to_string(format!("{child}/comm")).unwrap_or_default();
    let wait_until = |done: &dyn Fn() -> bool| {
        for _ in 0..1000 {
            if done() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    };
    assert!(wait_until(&|| name().trim() == "sleep"), "it never became the tool");
    parent.kill().unwrap();
    parent.wait().unwrap();
    // A zombie whose new parent has not looked yet is gone too.
    let gone = || {
        let status = fs::read_to_string(format!("{child}/status")).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ")
    };
    assert!(wait_until(&gone), "the tool outlived its parent");
}
