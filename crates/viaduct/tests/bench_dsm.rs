//! The benchmarks of shared memory, short: every table is there with values both ways, and the report draws them. No test looks
//! at a time.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;
use viaduct_kit::tempdir::TempDir;

fn value(cells: &[Value], row: &str, column: &str) -> f64 {
    let found = cells.iter().find(|cell| cell["row"] == row && cell["column"] == column);
    found.and_then(|cell| cell["value"].as_f64()).unwrap_or_else(|| panic!("{row}, {column}: {cells:?}"))
}

#[test]
fn shared_memory_is_measured_both_ways_and_held_against_others() {
    let folder = TempDir::new("bench-dsm");
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
        let output =
            command.args(args).current_dir(folder.path()).env("TMPDIR", folder.path()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["bench", "dsm", "--quick", "-o", "results.jsonl"]);
    run(&["report", "results.jsonl", "-o", "report.html"]);
    let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains("what remote writes save (Table II)"), "the report has it");
    let mut tables: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in std::fs::read_to_string(folder.join("results.jsonl")).unwrap().lines() {
        let cell: Value = serde_json::from_str(line).unwrap();
        assert_eq!(cell["valid"], true, "{cell}");
        assert!(cell["config"]["cpus"].as_str().is_some_and(|cpus| cpus.split(' ').count() == 2), "{cell}");
        tables.entry(cell["table"].as_str().unwrap().to_owned()).or_default().push(cell);
    }
    for (table, rows) in [
        (
            "dsm-table2",
            &["diff of 8 B", "diff of a page of 4 KiB", "lock that another node had", "barrier"][..],
        ),
        (
            "dsm-operations",
            &["null message and its answer", "page fetch, with the fault", "twin", "directory update"],
        ),
        ("dsm-operations", &["64 notices to 3 nodes", "flag, until the other node sees it"]),
    ] {
        for row in rows {
            for column in ["remote writes", "messages"] {
                assert!(value(&tables[table], row, column) > 0.0, "{table}: {row}");
            }
        }
    }
    assert_eq!(value(&tables["dsm-table2"], "barrier", "paper, messages"), 53.0);
    assert!(value(&tables["dsm-region"], "pages of 4 KiB to 1 node", "bandwidth") > 0.0);
    assert!(value(&tables["dsm-region"], "pairs of words, none out of order", "checked") > 0.0);
    assert!(value(&tables["dsm-wake"], "lock, remote writes", "wake-ups") > 0.0);
    for row in [
        "sor, ms-mg, 8 workers / 2 workers on 2 cores",
        "gauss, none-mg, 8 workers / 2 workers on 2 cores",
        "sor, one node of two workers / two threads",
        "lu, one node of two workers / two threads",
    ] {
        assert!(value(&tables["dsm-bars"], row, "ratio") > 0.0, "{row}");
    }
    assert!(value(&tables["dsm-bars"], "empty barrier, dms / Open MPI", "ours") > 0.0);
}
