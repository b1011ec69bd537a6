//! Every variable that the tree names is a setting that `viaduct config` shows, or is known not to be one; and warnings of
//! the libraries reach standard error.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What a launcher sets for the processes of a job, and what a test sets for its own children.
const BETWEEN_OUR_OWN: &[&str] = &[
    "VIADUCT_APP",
    "VIADUCT_JOB",
    "VIADUCT_LOCAL_RANK",
    "VIADUCT_LOCAL_SIZE",
    "VIADUCT_MEET",
    "VIADUCT_NODE",
    "VIADUCT_NODES",
    "VIADUCT_NODE_NAME",
    "VIADUCT_RANK",
    "VIADUCT_SIZE",
    "VIADUCT_SKIP_LOG",
    "VIADUCT_TEST_CHILD",
    "VIADUCT_TEST_NAME",
];

/// Names that are no variables of the environment at run time: what a build puts in, macros of C, beginnings of names.
const NO_VARIABLES: &[&str] = &[
    "VIADUCT_COMMIT",
    "VIADUCT_EXTENSION",
    "VIADUCT_MPI_H",
    "VIADUCT_RUNTIME",
    "VIADUCT_SOVIA",
    "VIADUCT_SOVIA_H",
    "VIADUCT_SOVIA_RPC_H",
    "VIADUCT_TEST",
    "VIADUCT_VIPL",
    "VIADUCT_VIPL_H",
];

fn config(more: &[(&str, &str)]) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("VIADUCT_")) {
        command.env_remove(name);
    }
    let output = command.args(["config", "--format", "json"]).envs(more.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The names in a text that begin as our variables do.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let found = text
        .match_indices("VIADUCT_")
        .filter(|(at, _)| !text[..*at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'));
    found.map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
        rest[..end.unwrap_or(rest.len())].trim_end_matches('_')
    })
}

/// Sources and documents below a folder.
fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if entry.file_type().unwrap().is_dir() {
            if !name.starts_with('.') && name != "target" {
                files(&path, into);
            }
        } else if path
            .extension()
            .is_some_and(|e| ["rs", "c", "h", "md", "toml", "sh", "3", "7"].iter().any(|k| e == *k))
        {
            into.push(path);
        }
    }
}

#[test]
fn every_variable_of_the_tree_is_shown_by_config() {
    let shown: BTreeSet<String> =
        config(&[]).iter().map(|row| row["variable"].as_str().unwrap().to_owned()).collect();
    let known = |name: &str| {
        shown.contains(name)
            || BETWEEN_OUR_OWN.contains(&name)
            || NO_VARIABLES.contains(&name)
            || name == "VIADUCT"
    };
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = Vec::new();
    files(&tree, &mut all);
    assert!(all.len() > 400, "only {} files were found", all.len());
    let mut used = BTreeSet::new();
    for path in all {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for name in names(&text) {
            assert!(
                known(name),
                "{}: {name} is not shown by `viaduct config`; add it to the table of its crate, or to {}",
                path.display(),
                file!()
            );
            used.insert(name.to_owned());
        }
    }
    let unused: Vec<_> = BETWEEN_OUR_OWN.iter().filter(|name| !used.contains(**name)).collect();
    assert!(unused.is_empty(), "no file names {unused:?} any more");
}

#[test]
fn config_tells_value_default_origin_and_purpose() {
    let rows = config(&[
        ("VIADUCT_SOVIA_MTU", "16K"),
        ("VIADUCT_WAIT_SPIN", "20us"),
        ("VIADUCT_VIPL_TAGS", "strict"),
    ]);
    let row = |name: &str| rows.iter().find(|row| row["knob"] == name).unwrap_or_else(|| panic!("{name}"));
    for (name, value, default) in
        [("sovia.mtu", "16384", "32768"), ("wait.spin", "20us", "auto"), ("vipl.tags", "strict", "lax")]
    {
        let row = row(name);
        assert_eq!((&row["value"], &row["default"]), (&value.into(), &default.into()), "{name}");
        assert_eq!(row["origin"], "environment", "{name}");
    }
    assert_eq!(row("shm.ring-slots")["origin"], "default");
    assert_eq!(
        (&row("shm.ring-slots")["for"], &row("shm.isolate")["for"]),
        (&"use".into(), &"tests and figures".into())
    );
    assert!(rows.iter().all(|row| !row["what_it_does"].as_str().unwrap().is_empty()));
    // Switches and times look alike, whichever crate has them.
    for row in &rows {
        let (name, default) = (row["knob"].as_str().unwrap(), row["default"].as_str().unwrap());
        assert!(!["true", "false"].contains(&default), "{name}: {default}");
        let time = ["-ms", "-limit", ".silence", ".idle"].iter().any(|end| name.ends_with(end));
        assert!(!time || default.ends_with(|last: char| last.is_ascii_lowercase()), "{name}: {default}");
    }
}

/// Measured values, ratios and cells of tables, of ours and of what they are compared with.
#[test]
fn results_record_every_setting_that_was_changed() {
    let folder = viaduct_kit::tempdir::TempDir::new("recorded");
    for case in [
        &["latency", "--layer", "shm", "--compare", "raw", "--sizes", "8", "--time", "0.05"][..],
        &["sort-windows"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
        command.arg("bench").args(case).args(["--quick", "-o", "lines"]).current_dir(folder.path());
        command.env("TMPDIR", folder.path()).env("VIADUCT_TOKEN", "c5".repeat(32));
        command.env("VIADUCT_SHM_RING_SLOTS", "128").env("VIADUCT_VIPL_TAGS", "strict");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{case:?}: {}", String::from_utf8_lossy(&output.stderr));
        let text = fs::read_to_string(folder.join("lines")).unwrap();
        assert!(!text.contains("c5c5c5"), "a secret is no setting to be recorded");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let lines: Vec<Value> = lines.collect();
        assert!(lines.len() > 1, "{case:?}");
        let ratios = lines.iter().filter(|line| line.get("ratio").is_some()).count();
        assert_eq!(ratios > 0, case.contains(&"--compare"), "{case:?}: {ratios} ratios");
        for line in lines {
            let config = &line["config"];
            assert_eq!(config["shm.ring-slots"], "128", "{line}");
            assert_eq!(
                (&config["vipl.tags"], &config["sovia.mtu"]),
                (&"strict".into(), &Value::Null),
                "{line}"
            );
        }
    }
}

/// A listener that cannot be reached from elsewhere, because libfabric is not there: the library says so.
#[test]
fn warnings_reach_standard_error_unless_they_are_switched_off() {
    let said = |filter: Option<&str>| {
        let folder = viaduct_kit::tempdir::TempDir::new("log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
        command.args(["bench", "latency", "--provider", "auto", "--sizes", "8", "--quick", "--time", "0.05"]);
        command.env("VIADUCT_RUNTIME_DIR", folder.path()).env_remove("VIADUCT_LOG");
        command.env("VIADUCT_TOKEN", "c5".repeat(32)).env("VIADUCT_OFI_LIBRARY", "/no/such/library.so");
        if let Some(filter) = filter {
            command.env("VIADUCT_LOG", filter);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{filter:?}: {text}");
        text
    };
    let warning = "is reached on this host alone";
    // Those of the book are tried as they stand there.
    let book = include_str!("../../../docs/book/src/when-things-break.md");
    let named = book.split("`VIADUCT_LOG=").skip(1).map(|rest| rest.split_once('`').unwrap().0);
    let of_the_book: Vec<Option<&str>> = named.filter(|filter| *filter != "off").map(Some).collect();
    assert!(of_the_book.len() >= 2, "{of_the_book:?}");
    for filter in [vec![None, Some("warn"), Some("off,viaduct_providers=warn")], of_the_book].concat() {
        let text = said(filter);
        assert!(text.contains("viaduct: warn: ") && text.contains(warning), "{filter:?}: {text}");
    }
    for filter in ["off", "warn,viaduct_providers::auto=error"] {
        let text = said(Some(filter));
        assert!(!text.contains(warning), "{filter}: {text}");
    }
}

#[test]
fn a_filter_that_is_not_understood_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    let output = command.arg("info").env("VIADUCT_LOG", "loud").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("VIADUCT_LOG=loud") && text.contains("off, error, warn"), "{text}");
}
