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
        "disarm",
        "on_error",
        "take_error",
        "raise_error",
        "create_ptag",
    ];
    let twins = read("src/baduse.rs");
    let calls = calls_of(&["Nic"], &here("../../crates/via/src"));
    assert!(calls.len() > 60, "only {} calls were found", calls.len());
    for (file, name) in calls {
        let tried = is_refused(&twins, &format!(".{name}(")) || harmless.contains(&name.as_str());
        assert!(tried, "{file}: {name} is not tried in baduse.rs");
    }
}

#[test]
fn every_call_of_a_view_has_a_bad_twin() {
    let harmless = ["handle", "context", "set_context", "timeout", "private_data", "named"];
    let twins = read("src/baduse.rs");
    let (_, views) = twins.split_once("fn forked_views").expect("views are tried there");
    let calls = calls_of(&["ViMut", "CqMut", "Connect"], &here("../../crates/via/src"));
    assert!(calls.len() > 20, "only {} calls were found", calls.len());
    for (file, name) in calls {
        let tried = is_refused(views, &format!(".{name}(")) || harmless.contains(&name.as_str());
        assert!(tried, "{file}: {name} is not tried in forked_views of baduse.rs");
    }
}

#[test]
fn every_call_of_a_shared_nic_or_a_driver_has_a_bad_twin() {
    // These take nothing that could be wrong, and say nothing.
    let harmless = ["new", "with_value", "cancel_notify", "cancel_notify_cq", "poke", "stop", "count_waits"];
    // This asks for the very thing that is wrong.
    let asks = ["is_inherited"];
    let twins = read("src/badsharing.rs");
    let calls = calls_of(&["SharedNic", "Driver"], &here("../../crates/via/src"));
    assert!(calls.len() > 40, "only {} calls were found", calls.len());
    for (file, name) in calls {
        let tried = is_refused(&twins, &format!(".{name}("));
        let tried = tried || harmless.contains(&name.as_str()) || asks.contains(&name.as_str());
        assert!(tried, "{file}: {name} is not tried in badsharing.rs");
    }
}

/// Whether a call stands in a statement that says that it was refused. One that only prepares something does not count.
fn is_refused(twins: &str, call: &str) -> bool {
    let signs = [
        "unknown(",
        "closed(",
        "refused_at_all(",
        "unposted(",
        "invalid(",
        "bad(",
        "is(",
        "Err(",
        "is_err",
        "unwrap_err",
        "!nic.",
        "is_none()",
        "assert_ne!",
        "refused",
    ];
    let statements = twins.split(";\n");
    statements.into_iter().any(|one| one.contains(call) && signs.iter().any(|sign| has_word(one, sign)))
}

/// Whether a text has this, and not as the end of a longer word.
fn has_word(text: &str, sign: &str) -> bool {
    text.match_indices(sign)
        .any(|(at, _)| !text[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_'))
}

/// File and name of every public call in a block `impl TYPE` of any file below a folder.
fn calls_of(types: &[&str], folder: &Path) -> Vec<(String, String)> {
    let mut calls = Vec::new();
    for path in fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            calls.extend(calls_of(types, &path));
            continue;
        }
        let names = public_calls(types, &fs::read_to_string(&path).unwrap());
        calls.extend(names.into_iter().map(|name| (path.display().to_string(), name)));
    }
    calls
}

/// Names of the public calls of types in a source that is formatted.
fn public_calls(types: &[&str], source: &str) -> Vec<String> {
    let (mut inside, mut names) = (false, Vec::new());
    for line in source.lines() {
        inside = implemented(line).is_some_and(|name| types.contains(&name)) || inside && line != "}";
        let Some(declared) = line.strip_prefix("    pub ").filter(|_| inside) else { continue };
        let before = |word: &&str| matches!(*word, "async" | "const" | "unsafe" | "extern" | "\"C\"");
        let mut words = declared.split(' ').skip_while(before);
        if let (Some("fn"), Some(name)) = (words.next(), words.next()) {
            names.push(name.split(['(', '<']).next().unwrap().to_owned());
        }
    }
    names
}

/// The type in the first line of a block without a trait.
fn implemented(line: &str) -> Option<&str> {
    let head = line.strip_prefix("impl")?.strip_suffix(" {").filter(|head| !head.contains(" for "))?;
    let head = head.strip_prefix('<').and_then(|rest| rest.split_once("> ")).map_or(head, |(_, rest)| rest);
    head.trim_start().split(['<', ' ']).next()
}

#[test]
fn public_calls_are_found_whatever_stands_before_them() {
    let source = "impl Nic {\n    pub fn a(&self) {\n    }\n    pub async fn b<T>() {}\n    pub const fn c() {}\n    \
                  pub unsafe fn d() {}\n    pub(crate) fn e() {}\n    fn f() {}\n}\npub fn g() {}\n\
                  impl<'a> View<'a> {\n    pub fn h() {}\n}\nimpl Drop for Nic {\n    pub fn i() {}\n}\n";
    assert_eq!(public_calls(&["Nic"], source), ["a", "b", "c", "d"]);
    assert_eq!(public_calls(&["Nic", "View"], source), ["a", "b", "c", "d", "h"]);
}

#[test]
fn a_call_that_only_prepares_something_is_no_bad_twin() {
    let twins = "    let gone = nic.create(4).unwrap();\n    assert!(unknown(nic.destroy(gone)));\n";
    assert!(is_refused(twins, ".destroy(") && !is_refused(twins, ".create("));
    assert!(!is_refused("    let this = make_this(nic.destroy(vi));\n", ".destroy("));
    assert!(is_refused("    assert!(is(nic.destroy(vi).unwrap(), x));\n", ".destroy("));
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
