//! `viaduct dsm`: programs on shared memory between nodes, against the sequential program; nodes that are killed; bad words.

use std::process::{Child, Stdio};
use std::time::Duration;

use viaduct_kit::effort;
use viaduct_kit::leaks::descendants;
use viaduct_kit::watchdog::Watchdog;

use crate::launching::{Folder, Run, verb, verb_command, wait_for};

/// Bytes of a page.
const PAGES: [&str; 3] = ["4096", "16384", "8192"];

fn dsm(folder: &Folder, words: &[&str]) -> Run {
    verb(folder, &[&["dsm"], words, &["--allow-root"]].concat())
}

/// Runs a program on a layout and compares it with the sequential one.
fn equals_the_sequential_program(app: &str, variant: &str, engine: &str, layout: [&str; 3], page: &str) {
    let folder = Folder::new();
    let [nodes, procs, levels] = layout;
    let words =
        ["--nodes", nodes, "--procs", procs, "--levels", levels, "--variant", variant, "--engine", engine];
    let problem = [app, "--size", "64", "--rounds", "4", "--check", "--page", page];
    let run = dsm(&folder, &[&problem[..], &words[..]].concat());
    let what = format!("{app} {words:?}, pages of {page} bytes: {}{}", run.out, run.err);
    assert_eq!(run.status, 0, "{what}");
    assert!(run.out.contains("equal to the sequential program, bit by bit"), "{what}");
}

#[test]
fn programs_equal_the_sequential_ones_on_every_engine_variant_and_layout() {
    let _watchdog = Watchdog::arm(Duration::from_secs(900), "programs on nodes");
    let layouts = [["2", "1", "2"], ["2", "2", "2"], ["3", "2", "2"], ["2", "2", "1"]];
    let mut turn = 0;
    for app in ["sor", "gauss", "lu"] {
        for variant in ["dms", "ms-mg", "none", "none-mg"] {
            for (kind, engine) in ["mprotect", "uffd-sync"].into_iter().enumerate() {
                for (number, layout) in layouts.into_iter().enumerate() {
                    // All of them in a full run, else each program and variant on one engine and layout.
                    let chosen = number == turn % layouts.len() && kind == (turn + turn / 4) % 2;
                    if effort::full() || chosen {
                        let page = PAGES[(turn / 4 + turn + number) % PAGES.len()];
                        equals_the_sequential_program(app, variant, engine, layout, page);
                    }
                }
            }
            turn += 1;
        }
    }
}

#[test]
fn gauss_has_a_flag_for_each_of_its_rows() {
    let _watchdog = Watchdog::arm(Duration::from_secs(600), "gauss with many rows");
    let folder = Folder::new();
    // The paper's size in a full run, else more than there once were names.
    let size = if effort::full() { "2048" } else { "1100" };
    for variant in ["dms", "none-mg"] {
        let run = dsm(&folder, &["gauss", "--size", size, "--variant", variant, "--check"]);
        assert_eq!(run.status, 0, "{variant}: {}{}", run.out, run.err);
        assert!(run.out.contains("equal to the sequential program, bit by bit"), "{variant}: {}", run.out);
    }
}

#[test]
fn auto_chooses_an_engine_and_says_which() {
    let _watchdog = Watchdog::arm(Duration::from_secs(200), "the engine auto");
    let folder = Folder::new();
    let run =
        dsm(&folder, &["sor", "--size", "32", "--rounds", "2", "--check", "--engine", "auto", "--json"]);
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
    let line: serde_json::Value = serde_json::from_str(run.out.trim()).expect("one line of JSON");
    assert_eq!(line["equal"], true, "{line}");
    let engine = line["engine"].as_str().expect("its name");
    let lacks = viaduct_kit::userfaultfd::lacks();
    assert_eq!(engine, if lacks.is_none() { "uffd-sync" } else { "mprotect" }, "{lacks:?}");
    // What it chose can be asked for by that name.
    let again = dsm(&folder, &["sor", "--size", "32", "--rounds", "2", "--engine", engine, "--json"]);
    assert_eq!(again.status, 0, "{engine}: {}", again.err);
    let line: serde_json::Value = serde_json::from_str(again.out.trim()).expect("one line of JSON");
    assert_eq!(line["engine"], engine);
}

/// Starts a long run and waits until all of its processes are there.
fn long_run(folder: &Folder, variant: &str) -> Child {
    let words = [
        "dsm",
        "sor",
        "--nodes",
        "2",
        "--procs",
        "1",
        "--size",
        "128",
        "--rounds",
        "100000000",
        "--variant",
        variant,
        "--allow-root",
    ];
    let run = verb_command(folder, &words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let run = run.expect("the program starts");
    wait_for("the processes of the nodes", || ranks(&run).len() == 4);
    run
}

fn ranks(run: &Child) -> Vec<u32> {
    let is_rank = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.windows(9).any(|word| word == b"--as-rank"))
    };
    descendants(run.id()).into_iter().map(|process| process.pid).filter(is_rank).collect()
}

#[test]
fn the_end_of_any_process_ends_the_run() {
    let _watchdog = Watchdog::arm(Duration::from_secs(400), "killed nodes");
    let folder = Folder::new();
    let variants = ["dms", "ms-mg", "none", "none-mg"];
    for (victim, turn) in (0..4).flat_map(|victim| (0..4).map(move |turn| (victim, turn))) {
        // All of them in a full run, else each process on another variant.
        if !effort::full() && victim != turn {
            continue;
        }
        let run = long_run(&folder, variants[turn]);
        let ranks = ranks(&run);
        // SIGKILL by the shell's kill: nothing of the process can answer.
        let killed = std::process::Command::new("kill").args(["-KILL", &ranks[victim].to_string()]).status();
        assert!(killed.is_ok_and(|status| status.success()));
        let output = run.wait_with_output().expect("it ends");
        assert_ne!(output.status.code(), Some(0));
        for rank in ranks {
            wait_for("the processes to go", || !std::path::Path::new(&format!("/proc/{rank}/exe")).exists());
        }
    }
}

#[test]
fn a_run_that_cannot_be_laid_out_is_refused_with_its_reason() {
    let folder = Folder::new();
    let refused = [
        (vec!["water"], "there are sor, gauss and lu"),
        (vec!["sor", "--nodes", "0"], "1 to 64"),
        (vec!["sor", "--nodes", "65"], "1 to 64"),
        (vec!["sor", "--page", "5000"], "a power of two"),
        (vec!["sor", "--page", "65536"], "to 32768 is wanted"),
        (vec!["sor", "--nodes", "64", "--procs", "64"], "there can be 512"),
        (vec!["sor", "--variant", "ms"], "not there yet"),
        (vec!["sor", "--engine", "uffd"], "mprotect and uffd-sync, and auto"),
        (vec!["sor", "--levels", "3"], "3 is not in 1..=2"),
        (vec!["lu", "--size", "30"], "a multiple of 16"),
        (vec!["gauss", "--size", "0"], "1 to 65536"),
        (vec!["sor", "--size", "2"], "too small"),
    ];
    for (words, reason) in refused {
        let run = dsm(&folder, &words);
        assert_ne!(run.status, 0, "{words:?}");
        assert!(run.err.contains(reason), "{words:?}: {}", run.err);
    }
}
