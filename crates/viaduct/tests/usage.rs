//! What the program says when it is used wrongly: a cause, a hint, exit status 2, nothing on standard output.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};

fn viaduct(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    command.args(args).stdin(Stdio::null()).env_remove("VIADUCT_PROVIDER");
    command.output().expect("the program starts")
}

fn refused(args: &[&str]) -> String {
    let output = viaduct(args);
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {talk}");
    assert!(output.stdout.is_empty(), "{args:?} wrote to standard output");
    talk
}

#[test]
fn unknown_words_list_the_known_ones() {
    assert!(refused(&["fly"]).contains("unrecognized subcommand 'fly'"));
    let talk = refused(&["bench", "velocity"]);
    assert!(talk.contains("latency") && talk.contains("connections"), "{talk}");
    let providers: Vec<&str> = viaduct_providers::KNOWN.iter().map(|known| known.name).collect();
    assert!(["auto", "shm", "ofi", "loopback"].iter().all(|name| providers.contains(name)), "{providers:?}");
    // libfabric itself has the name `ofi`.
    let ours: Vec<&str> =
        providers.iter().map(|name| if *name == "ofi" { "via:ofi" } else { name }).collect();
    assert_eq!(
        refused(&["bench", "latency", "--layer", "pigeon"]),
        format!(
            "error: there is no layer `pigeon`\n  hint: known layers: {}, ofi, ofi:tcp, raw, copy, unix, unix-spin, \
             pipe, tcp, tcp-spin, tcp-nagle, tcp-nodelay; ofi:NAME, via:ofi:NAME for a provider of libfabric\n",
            ours.join(", ")
        )
    );
    assert!(refused(&["bench", "latency", "--compare", "raw,pigeon"]).contains("`pigeon`"));
    assert_eq!(
        refused(&["bench", "latency", "--provider", "infiniband"]),
        format!(
            "error: there is no provider `infiniband`\n  hint: known providers: {}; ofi:NAME for a provider of libfabric\n",
            providers.join(", ")
        )
    );
    assert!(refused(&["bench", "latency", "--provider", "raw"]).contains("no provider `raw`"));
    assert!(refused(&["bench", "latency", "--format", "xml"]).contains("table"));
    assert!(refused(&["completions", "dos"]).contains("bash"));
}

#[test]
fn bad_sizes_are_refused() {
    assert_eq!(
        refused(&["bench", "bandwidth", "--layer", "copy", "--sizes", "8,1X"]),
        "error: `1X` is not a size\n  hint: write bytes, with K, M or G for powers of 1,024: 8 or 64K or 1M\n"
    );
    assert!(refused(&["bench", "bandwidth", "--layer", "copy", "--sizes", "0"]).contains("0 bytes"));
    assert!(refused(&["bench", "latency", "--layer", "tcp", "--sizes", "0"]).contains("0 bytes"));
    let talk = refused(&["bench", "bandwidth", "--layer", "copy", "--sizes", "4096G"]);
    assert!(talk.contains("free memory") && talk.contains("hint:"), "{talk}");
    assert!(
        refused(&["bench", "bandwidth", "--layer", "copy", "--sizes", "99999999999999999999"])
            .contains("size")
    );
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    for (args, word) in [
        (&["latency", "--layer", "raw", "--cpus", "100000"][..], "core 100000"),
        (&["latency", "--layer", "raw", "--cpus", "0,0"], "--wait block"),
        (&["latency", "--layer", "raw", "--time", "0"], "seconds"),
        (&["latency", "--layer", "raw", "--time", "nan"], "seconds"),
        (&["latency", "--layer", "raw", "--time", "-1"], "-1 seconds"),
        (&["latency", "--layer", "copy"], "no latency"),
        (&["connections", "--layer", "raw"], "no connections"),
        (&["connections", "--layer", "tcp", "--connections", "0"], "at least 1"),
        (&["rate", "--layer", "raw", "--window", "0"], "at least 1"),
        (&["rate", "--layer", "raw", "--launches", "0"], "at least 1"),
        (&["rate", "--layer", "via", "--provider", "pigeon"], "no provider `pigeon`"),
        (&["rdma", "--layer", "ofi"], "no rdma"),
    ] {
        let args: Vec<&str> = ["bench"].iter().chain(args).copied().collect();
        let talk = refused(&args);
        assert!(talk.contains(word), "{args:?}: {talk}");
    }
}

#[test]
fn a_wrong_knob_is_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    let output = command.arg("config").env("VIADUCT_SHM_RING_SLOTS", "many").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(talk.contains("VIADUCT_SHM_RING_SLOTS=many") && talk.contains("hint: shm.ring-slots"), "{talk}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    let output = command.arg("config").env("VIADUCT_TOKEN", "5ec3e7").output().unwrap();
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(talk.contains("VIADUCT_TOKEN") && !talk.contains("5ec3e7"), "{talk}");
}

#[test]
fn the_hidden_verb_does_not_hang_or_crash_when_called_by_hand() {
    let talk = refused(&["bench-peer", "--cpu", "0", "--parent", "1"]);
    assert!(talk.contains("started by `viaduct bench`"), "{talk}");
    let me = std::process::id().to_string();
    let talk = refused(&["bench-peer", "--cpu", "0", "--parent", &me]);
    assert!(talk.contains("no benchmark segment"), "{talk}");
}

#[test]
fn help_lists_the_verbs_and_hides_the_inner_ones() {
    let output = viaduct(&["--help"]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let verbs = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs: Vec<&str> = verbs
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    // The README has them all in one row of its table.
    let readme = include_str!("../../../README.md");
    let row = readme.lines().find(|line| line.starts_with("| command line |")).expect("the row");
    let listed: BTreeSet<&str> = row.split('`').nth(1).expect("verbs").split_whitespace().collect();
    assert_eq!(verbs.last(), Some(&"help"));
    assert_eq!(verbs[..verbs.len() - 1].iter().copied().collect::<BTreeSet<_>>(), listed);
    for verb in verbs.into_iter().filter(|verb| *verb != "help") {
        let output = viaduct(&[verb, "--help"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains(&format!("viaduct {verb}")), "{verb}: {text}");
    }
    assert!(!text.contains("peer"));
}

#[test]
fn a_closed_pipe_is_no_failure() {
    for args in [&["completions", "zsh"][..], &["bench", "list"], &["info"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
        let mut child = command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
