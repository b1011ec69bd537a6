//! The suite about itself: every test is in the table, every call has its bad twin, every decision has its test.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(here(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// `topic::test` for every test function of the topics.
fn written() -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for entry in fs::read_dir(here("src")).unwrap().flatten() {
        let topic = entry.path().file_stem().unwrap().to_string_lossy().into_owned();
        for line in fs::read_to_string(entry.path()).unwrap().lines() {
            let Some(rest) = line.strip_prefix("pub fn ") else { continue };
            if let Some((name, _)) = rest.split_once('(').filter(|(_, rest)| rest.contains("w: World)")) {
                tests.insert(format!("{topic}::{name}"));
            }
        }
    }
    tests
}

/// The tests that the table lists, as `topic::name`.
fn listed() -> BTreeSet<String> {
    let table = read("src/table.rs");
    let mut tests = BTreeSet::new();
    for part in table.split("$crate::topic! {").skip(1) {
        let (list, _) = part.split_once('}').expect("a topic ends");
        let mut fields = list.split(',').map(str::trim);
        let (Some("$world"), Some(topic), Some(_limit)) = (fields.next(), fields.next(), fields.next())
        else {
            panic!("not a topic: {list}");
        };
        for test in fields.next().expect("tests").split_whitespace() {
            assert!(tests.insert(format!("{topic}::{test}")), "{topic}::{test} is there twice");
        }
    }
    tests
}

#[test]
fn every_test_is_in_the_table() {
    assert!(written().len() > 150);
    let forgotten: Vec<_> = written().difference(&listed()).cloned().collect();
    assert_eq!(forgotten, Vec::<String>::new(), "add these to src/table.rs");
}

#[test]
fn every_call_of_a_nic_has_a_bad_twin() {
    // These take nothing that could be wrong.
    let harmless = [
        "open",
        "open_with",
        "attributes",
        "counters",
        "set_wait",
        "set_strict_receives",
        "set_drain",
        "abandon",
        "on_error",
        "take_error",
        "raise_error",
        "create_ptag",
    ];
    let twins = read("src/baduse.rs");
    let calls = calls_of_a_nic(&here("../../crates/via/src"));
    assert!(calls.len() > 60, "only {} calls were found", calls.len());
    for (file, name) in calls {
        let tried = twins.contains(&format!(".{name}(")) || harmless.contains(&name.as_str());
        assert!(tried, "{file}: {name} is not tried in baduse.rs");
    }
}

/// File and name of every public call in a block `impl Nic` of any file below a folder.
fn calls_of_a_nic(folder: &Path) -> Vec<(String, String)> {
    let mut calls = Vec::new();
    for path in fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            calls.extend(calls_of_a_nic(&path));
            continue;
        }
        let mut inside = false;
        for line in fs::read_to_string(&path).unwrap().lines() {
            inside = line == "impl Nic {" || inside && line != "}";
            let Some(rest) = line.strip_prefix("    pub fn ").filter(|_| inside) else { continue };
            let name = rest.split(['(', '<']).next().unwrap();
            calls.push((path.display().to_string(), name.to_owned()));
        }
    }
    calls
}

#[test]
fn every_decision_has_its_test() {
    let tests = listed();
    let text = read("../../docs/via-decisions.md");
    let mut decisions = 0;
    for line in text.lines().filter(|line| line.starts_with("| ") && line.contains("::")) {
        decisions += 1;
        let column = line.trim_end_matches('|').rsplit('|').next().unwrap();
        for name in column.split('`').skip(1).step_by(2) {
            assert!(
                tests.contains(name),
                "{name} is named in docs/via-decisions.md, but there is no such test"
            );
        }
        assert!(column.contains('`'), "no test named: {line}");
    }
    assert!(decisions >= 20, "the table is in docs/via-decisions.md");
}
