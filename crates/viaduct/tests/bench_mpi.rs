//! `viaduct bench mpi-…` and what the report makes of it; `viaduct mpi coverage`.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use viaduct_kit::effort::full;
use viaduct_kit::packages::{find_program, need_program, skip};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::wheels::need_wheel;
use viaduct_mpi::prefix::LIBRARY;

use crate::common::{bench_of, two_cores};

fn viaduct(args: &[&str]) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_viaduct")).args(args).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
    (String::from_utf8(output.stdout).unwrap(), said)
}

/// A copy of program and library that the test may write beside: the folder of MPI is made there. `None`, and the test is
/// logged as skipped, where the library or a compiler is missing.
struct Copied {
    folder: TempDir,
}

impl Copied {
    fn new() -> Option<Copied> {
        let program = Path::new(env!("CARGO_BIN_EXE_viaduct"));
        if !program.with_file_name(LIBRARY).exists() {
            skip("libvmpi.so is not beside the program (cargo build -p viaduct-libmpi)");
            return None;
        }
        need_program("gcc", "gcc")?;
        if !two_cores() {
            return None;
        }
        let folder = TempDir::new("bench-mpi");
        for name in ["viaduct", LIBRARY] {
            let (from, to) = (program.with_file_name(name), folder.join(name));
            // The program finds its library by its own place, so a symbolic link would not do.
            if fs::hard_link(&from, &to).is_err() {
                fs::copy(&from, &to).unwrap();
            }
        }
        Some(Copied { folder })
    }

    fn bench(&self, args: &[&str]) -> Vec<Value> {
        bench_of(&self.folder.join("viaduct"), args)
    }
}

/// Measurements of a layer in a case, each of which has a valid value.
fn measured<'a>(lines: &'a [Value], case: &str, layer: &str) -> Vec<&'a Value> {
    let found =
        lines.iter().filter(|line| line["case"] == case && line["layer"] == layer && line["ratio"].is_null());
    let found: Vec<_> = found.filter(|line| !line["p50"].is_null() || !line["missing"].is_null()).collect();
    for line in &found {
        assert!(line["valid"] == true && line["p50"].as_f64().is_some_and(|value| value > 0.0), "{line}");
    }
    found
}

/// Names of what was measured: series and places on the axis.
fn series(lines: &[&Value]) -> Vec<String> {
    let mut names: Vec<_> =
        lines.iter().map(|line| line["series"].as_str().unwrap_or_default().to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn latency_is_measured_beside_raw_via_and_drawn() {
    let Some(copied) = Copied::new() else { return };
    let (results, report) = (copied.folder.join("results.jsonl"), copied.folder.join("report.html"));
    let rival = if find_program("mpicc.mpich").is_some() { "mpich" } else { "mpi" };
    let args =
        ["mpi-latency", "--quick", "--sizes", "8,16K", "--compare", rival, "-o", results.to_str().unwrap()];
    copied.bench(&args);
    let text = std::fs::read_to_string(&results).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let theirs = format!("rival:{rival}");
    for layer in ["mpi", "shm", "tcp"].into_iter().chain((rival == "mpich").then_some(theirs.as_str())) {
        assert_eq!(measured(&lines, "mpi-latency", layer).len(), 2, "{layer}: {text}");
    }
    viaduct(&["report", results.to_str().unwrap(), "-o", report.to_str().unwrap()]);
    let drawn = std::fs::read_to_string(report).unwrap();
    let figure = |id: &str| drawn.split("id=\"").find_map(|part| part.strip_prefix(id)).unwrap_or_default();
    for id in ["fig-4-1\"", "fig-4-3\""] {
        assert!(figure(id).contains("<svg"), "{id} is not drawn");
    }
}

#[test]
fn pieces_wildcards_and_starts_are_measured() {
    let Some(copied) = Copied::new() else { return };
    let lines = copied.bench(&["mpi-any", "--quick", "--sizes", "8", "--compare", "mpi"]);
    assert_eq!(series(&measured(&lines, "mpi-any", "mpi")), ["any", "named"]);
    assert_eq!(series(&measured(&lines, "mpi-any", "shm")), ["cq", "queue"]);
    for case in ["mpi-start", "mpi-many"] {
        let lines = copied.bench(&[case, "--quick", "--compare", "mpi"]);
        assert_eq!(measured(&lines, case, "mpi").len(), 1, "{case}");
    }
    if full() {
        let lines = copied.bench(&["mpi-segments", "--quick", "--sizes", "1K", "--compare", "mpi"]);
        assert_eq!(series(&measured(&lines, "mpi-segments", "mpi")), ["contiguous", "derived", "packed"]);
        let raw = series(&measured(&lines, "mpi-segments", "shm"));
        assert!(
            ["both", "gather", "pack"].iter().all(|name| raw.iter().any(|found| found == name)),
            "{raw:?}"
        );
    }
}

/// Lengths of messages, buffers, connections and ranks on few cores, each case in its short form.
#[test]
fn the_other_cases_of_mpi_are_measured() {
    if !full() {
        return;
    }
    let Some(copied) = Copied::new() else { return };
    let run = |words: &[&str]| copied.bench(&[words, &["--quick", "--compare", "mpi"]].concat());
    let lines = run(&["mpi-bandwidth", "--sizes", "8,16K"]);
    assert_eq!(measured(&lines, "mpi-bandwidth", "mpi").len(), 2);
    assert_eq!(measured(&lines, "mpi-bandwidth", "shm").len(), 2);
    let lines = run(&["mpi-buffers", "--sizes", "512"]);
    assert_eq!(series(&measured(&lines, "mpi-buffers", "mpi")), ["new", "same"]);
    assert_eq!(measured(&run(&["mpi-connections"]), "mpi-connections", "mpi").len(), 2);
    assert_eq!(measured(&run(&["mpi-one-core"]), "mpi-one-core", "mpi").len(), 1);
    if let Some(python) = need_wheel("impi_rt") {
        // The program looks for it in folders above its own.
        let environment = python.ancestors().nth(2).expect("python is in bin of its environment");
        fs::create_dir(copied.folder.join("xtask")).unwrap();
        std::os::unix::fs::symlink(environment, copied.folder.join("xtask/venv")).unwrap();
        assert_eq!(measured(&run(&["mpi-crowd"]), "mpi-crowd", "mpi").len(), 1);
    }
}

/// The functions of MPI 3.1 in C, its tools interface and conversions among them, with those that earlier versions had.
const FUNCTIONS: usize = 421;

#[test]
fn coverage_lists_every_function_of_the_standard() {
    let rows = |more: &[&str]| -> Vec<Value> {
        let (out, _) = viaduct(&[&["mpi", "coverage", "--format", "json"], more].concat());
        match serde_json::from_str(&out) {
            Ok(Value::Array(rows)) => rows,
            _ => out.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect(),
        }
    };
    let (all, refused) = (rows(&[]), rows(&["--refused"]));
    let there = |name: &str| all.iter().find(|row| row["function"] == name).map(|row| row["there"].clone());
    assert_eq!(there("MPI_Send"), Some("yes".into()));
    assert_eq!(there("MPI_Put"), Some("refused".into()));
    assert_eq!(all.len(), FUNCTIONS);
    assert!(refused.len() < all.len() / 2, "{} are refused", refused.len());
    assert!(refused.iter().all(|row| row["there"] == "refused"));
    assert_eq!(refused.len(), all.iter().filter(|row| row["there"] == "refused").count());
    let (_, said) = viaduct(&["mpi", "coverage"]);
    assert!(said.contains(&format!("{} of {} are there", all.len() - refused.len(), all.len())), "{said}");
}
