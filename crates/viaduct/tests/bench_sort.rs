//! The experiments of the sort, short: every table is there, with values for ours and a cause where a rival has none, and the
//! report draws them. No test looks at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use viaduct_kit::tempdir::TempDir;

/// Cells of a run by table; the report has a figure with this title.
fn cells(name: &str, title: &str) -> BTreeMap<String, Vec<Value>> {
    let folder = TempDir::new("bench-sort");
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
        let output =
            command.args(args).current_dir(folder.path()).env("TMPDIR", folder.path()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    run(&["bench", name, "--quick", "-o", "results.jsonl"]);
    run(&["report", "results.jsonl", "-o", "report.html"]);
    let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains(title), "the report has it");
    assert_eq!(page.contains("shares of each value"), name == "datamation", "phases are drawn as bars");
    let names = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 2, "files of the measurement are gone");
    let mut tables: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in std::fs::read_to_string(folder.join("results.jsonl")).unwrap().lines() {
        let cell: Value = serde_json::from_str(line).unwrap();
        assert!(cell["value"].is_number() || cell["missing"].is_string(), "{cell}");
        tables.entry(cell["table"].as_str().unwrap().to_owned()).or_default().push(cell);
    }
    tables
}

fn value(cells: &[Value], row: &str, column: &str) -> f64 {
    let found = cells.iter().find(|cell| cell["row"] == row && cell["column"] == column);
    found.and_then(|cell| cell["value"].as_f64()).unwrap_or_else(|| panic!("{row}, {column}: {cells:?}"))
}

#[test]
fn datamation_has_phases_overheads_kernels_and_rivals() {
    let tables = cells("datamation", "A million records from disk to disk, by nodes");
    let phases = &tables["datamation"];
    for row in ["threads alone", "shm 1", "shm 2", "tcp 1", "tcp 2"] {
        let parts: f64 =
            ["overhead", "read", "sort", "write"].map(|phase| value(phases, row, phase)).iter().sum();
        let total = value(phases, row, "total");
        assert!(total > 0.0 && (parts - total).abs() < 0.01 * total, "{row}: {parts} and {total}");
    }
    assert!(value(phases, "tcp 2", "speed-up") > 0.0 && value(phases, "paper, 16 nodes", "total") == 1.18);
    assert_eq!(value(phases, "paper, sockets, 16 nodes", "total"), 2.21);
    let overheads = &tables["datamation-overhead"];
    for row in ["shm 2", "tcp 2"] {
        assert!(value(overheads, row, "launch") > 0.0 && value(overheads, row, "connect") > 0.0, "{row}");
    }
    let kernels = &tables["sort-kernels"];
    assert!(value(kernels, "buckets, then pairs", "time") > 0.0);
    for row in ["viaduct sort, in buckets", "viaduct sort, in one bucket by comparison"] {
        assert!(value(kernels, row, "time") > 0.0 && value(kernels, row, "whole sort") > 0.0, "{row}");
    }
    assert!(tables["sort-1m"].iter().any(|cell| cell["row"] == "GNU sort"));
}

#[test]
fn the_sort_is_compared_with_a_copy_and_with_rivals() {
    let tables = cells("sort", "Ten million records in little memory");
    for table in ["sort-1m", "sort-10m"] {
        let rows: BTreeSet<&str> = tables[table].iter().map(|cell| cell["row"].as_str().unwrap()).collect();
        assert_eq!(rows.len(), 9, "{rows:?}");
        assert!(value(&tables[table], "cp", "times --checksum off") > 0.0);
        assert!(value(&tables[table], "viaduct sort, skewed keys", "times ours") > 0.0);
        // Every one that is installed has as many runs as there are rounds: one, where it is quick.
        let runs = tables[table].iter().filter(|cell| cell["column"] == "runs");
        let runs: Vec<_> = runs.map(|cell| cell["value"].as_f64()).collect();
        assert!(runs.len() >= 4 && runs.iter().all(|count| *count == Some(1.0)), "{runs:?}");
    }
    let memory = &tables["sort-memory"];
    assert!(value(memory, "viaduct sort", "peak memory") > 1.0);
    assert!(value(&tables["sort-lines"], "viaduct sort --checksum off", "times ours") > 0.0);
    for row in ["4 nodes over shm", "4 nodes over TCP"] {
        assert!(value(&tables["sort-nodes"], row, "times ours") > 0.0, "{row}");
    }
    assert!(value(&tables["sort-windows"], "shm, windows of 1 MB", "made") > 0.0);
    assert_eq!(value(&tables["sort-windows"], "shm, windows of 1 MB", "regions"), 8.0);
}

#[test]
fn components_and_the_minute_have_values() {
    let tables = cells("components", "What the parts of this host can do");
    let parts = &tables["components"];
    for row in ["memory, all cores", "disk, read", "network, VIA on this host", "network, TCP on this host"] {
        assert!(value(parts, row, "peak") >= value(parts, row, "sustained"), "{row}");
    }
    for (row, column) in [
        ("viaduct sort gen, no file", "times memory"),
        ("viaduct sort gen, to a file", "times disk"),
        ("viaduct sort check", "times disk"),
    ] {
        assert!(value(parts, row, column) > 0.0, "{row}");
    }
    assert!(parts.iter().any(|cell| cell["column"] == "bound of the sort"));
    let tables = cells("minute", "What is sorted in a minute");
    assert!(value(&tables["sort-minute"], "viaduct sort", "records") > 0.0);
}
