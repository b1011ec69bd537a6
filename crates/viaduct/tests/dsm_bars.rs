//! What shared memory promises in counts: homes that are replayed, diffs that migration takes away, data that two levels save.

use std::time::Duration;

use viaduct_kit::watchdog::Watchdog;

use crate::launching::{Folder, verb};

/// What a run says of itself in JSON; it must have found the sequential program's result.
fn run(folder: &Folder, words: &[&str]) -> serde_json::Value {
    let run = verb(folder, &[&["dsm"], words, &["--check", "--format", "json", "--allow-root"]].concat());
    assert_eq!(run.status, 0, "{words:?}: {}{}", run.out, run.err);
    let line: serde_json::Value = serde_json::from_str(run.out.trim()).expect("a line of JSON");
    assert_eq!(line["equal"], true, "{words:?}: {line}");
    line
}

fn count(line: &serde_json::Value, name: &str) -> u64 {
    line["counts"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {line}"))
}

fn watch() -> Watchdog {
    Watchdog::arm(Duration::from_secs(600), "counts of shared memory")
}

/// A file that gives all pages to node 0.
fn all_at_node_0(folder: &Folder, nodes: usize) -> String {
    let path = folder.path().join("homes");
    std::fs::write(&path, format!("viaduct dsm homes 1\n4096 bytes, {nodes} nodes\n0-99999 0\n"))
        .expect("a file");
    path.display().to_string()
}

#[test]
fn homes_of_one_run_are_those_of_another() {
    let _watchdog = watch();
    let folder = Folder::new();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (first, second) = (path("first"), path("second"));
    let words = ["sor", "--nodes", "2", "--procs", "2", "--size", "64", "--rounds", "4"];
    run(&folder, &[&words[..], &["--variant", "dms", "--homes-out", &first]].concat());
    let variant = ["--variant", "none-mg", "--homes-in", &first, "--homes-out", &second];
    run(&folder, &[&words[..], &variant].concat());
    let read = |path: &str| std::fs::read_to_string(path).expect("a file of homes");
    let homes = read(&first);
    assert!(homes.starts_with("viaduct dsm homes 1\n4096 bytes, 2 nodes\n0"), "{homes}");
    assert!(homes.lines().skip(2).any(|line| line.ends_with(" 1")), "node 1 touched pages first: {homes}");
    assert_eq!(homes, read(&second));
}

#[test]
fn homes_that_cannot_be_used_are_refused_with_their_reason() {
    let folder = Folder::new();
    let path = folder.path().join("homes").display().to_string();
    let refused = |text: Option<&str>, reason: &str| {
        if let Some(text) = text {
            std::fs::write(&path, text).expect("a file");
        }
        let run = verb(&folder, &["dsm", "sor", "--homes-in", &path, "--allow-root"]);
        assert!(run.status != 0 && run.err.contains(reason) && run.err.contains(&path), "{}", run.err);
    };
    refused(None, "No such file");
    refused(Some("0 1\n"), "line 1");
    refused(Some("viaduct dsm homes 1\n4096 bytes, 2 nodes\n0 2\n"), "line 3");
    refused(Some("viaduct dsm homes 1\n4096 bytes, 3 nodes\n"), "3 nodes, this run has 2");
    refused(Some("viaduct dsm homes 1\n8192 bytes, 2 nodes\n"), "8192 bytes a page");
}

/// With all homes at node 0, migration takes nearly all diffs of a program away. `problem` makes many without it.
fn migration_takes_diffs_away(problem: &[&str]) {
    let _watchdog = watch();
    let folder = Folder::new();
    let homes = all_at_node_0(&folder, 4);
    let diffs = |variant: &str| {
        let words = ["--nodes", "4", "--variant", variant, "--homes-in", &homes];
        let line = run(&folder, &[problem, &words].concat());
        (count(&line, "diffs"), count(&line, "migrations"))
    };
    let (without, none) = diffs("none");
    assert!(without >= 1_000 && none == 0, "{without} diffs and {none} migrations without migration");
    for variant in ["none-mg", "ms-mg"] {
        let (with, moved) = diffs(variant);
        assert!(
            with * 20 <= without && moved > 0,
            "{variant}: {with} of {without} diffs are left, {moved} moves"
        );
    }
}

#[test]
fn migration_takes_nearly_all_diffs_of_sor_away() {
    // A row of each colour of the grid is a page: those at the edges of bands are shared, and have one writer.
    migration_takes_diffs_away(&["sor", "--size", "1024", "--rounds", "120"]);
}

#[test]
fn migration_takes_nearly_all_diffs_of_lu_away() {
    migration_takes_diffs_away(&["lu", "--size", "256"]);
}

#[test]
fn two_levels_move_their_share_of_the_data() {
    let _watchdog = watch();
    let folder = Folder::new();
    let moved = |levels: &str| {
        // A row of the matrix is a page.
        let words = ["gauss", "--nodes", "4", "--procs", "2", "--levels", levels, "--size", "511"];
        count(&run(&folder, &[&words[..], &["--variant", "none-mg"]].concat()), "bytes_of_data") as f64
    };
    let ratio = 2.0 * moved("2") / moved("1");
    assert!(
        (0.8..=1.2).contains(&ratio),
        "two levels of two workers move {ratio} of half of one level's data"
    );
}

#[test]
fn workers_that_wait_serve_other_nodes() {
    let _watchdog = watch();
    let folder = Folder::new();
    for variant in ["dms", "ms-mg", "none", "none-mg"] {
        let line = run(&folder, &["gauss", "--nodes", "3", "--size", "64", "--variant", variant]);
        // Seen on a board, or said in answers: a hundred and more of the requests come to workers.
        assert!(count(&line, "requests_served_by_workers") > 0, "{variant}: {line}");
    }
}

#[test]
fn a_run_says_where_its_time_went() {
    let folder = Folder::new();
    let line = run(&folder, &["sor", "--nodes", "2", "--procs", "2", "--size", "64", "--rounds", "4"]);
    let time = |name: &str| line["times"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {line}"));
    for name in ["user", "protocol", "message", "wait", "servers"] {
        assert!(time(name) > 0.0, "{name}: {line}");
    }
    // Four workers, from their first to their last moment.
    let all: f64 = ["user", "protocol", "message", "wait"].map(time).iter().sum();
    let took = line["seconds"].as_f64().expect("a number");
    assert!(all >= 3.9 * took, "{line}");
    assert!(count(&line, "page_transfers") > 0, "{line}");
    let served = count(&line, "requests_served_by_workers") + count(&line, "requests_served_by_servers");
    assert!(served > 0, "{line}");
}
