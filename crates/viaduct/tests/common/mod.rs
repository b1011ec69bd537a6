//! What the tests of benchmarks share: a short run and its lines.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Runs `bench` with `args` for a short time, to its good end, and gives its lines.
pub(crate) fn bench(args: &[&str]) -> Vec<Value> {
    bench_of(Path::new(env!("CARGO_BIN_EXE_viaduct")), args)
}

/// Runs `bench` of a program that may lie elsewhere.
pub(crate) fn bench_of(program: &Path, args: &[&str]) -> Vec<Value> {
    let mut command = Command::new(program);
    command.args(["bench", "--time", "0.04", "--launches", "1", "--format", "json"]).args(args);
    // A machine that is overloaded is silent for long; no test here looks for a peer that is gone.
    command.env("VIADUCT_OFI_SILENCE_MS", "60000");
    let output =
        command.env_remove("VIADUCT_PROVIDER").stdin(Stdio::null()).output().expect("the program starts");
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {talk}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
}

/// Layers that spin need a core for each process.
pub(crate) fn two_cores() -> bool {
    viaduct_kit::packages::need_cores(2)
}
