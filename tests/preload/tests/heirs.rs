//! The C program of `c/heirs.c`: programs that inherit an upgraded connection and could load the library, after the peer
//! has ended its stream, under a rule, with the library turned off, for another user, or with another agent.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use viaduct_kit::cc::{Compiled, compile_c_file};
use viaduct_kit::effort::scaled;
use viaduct_kit::skip;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_preload_tests::{Stage, same};

use crate::AGENT;

fn programs() -> Option<&'static (Compiled, Compiled)> {
    static PROGRAMS: OnceLock<Option<(Compiled, Compiled)>> = OnceLock::new();
    let source = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(name);
    let make = || {
        let heirs = compile_c_file(source("heirs.c"), &["-O1"])?;
        Some((heirs, compile_c_file(source("bare.c"), &["-O1", "-static"])?))
    };
    PROGRAMS.get_or_init(make).as_ref()
}

/// Runs scenarios; in each the connection is upgraded in both directions at both ends before.
fn scenarios(names: &[&str]) {
    let Some((heirs, bare)) = programs() else { return };
    let folder = TempDir::new("heirs");
    let rules = folder.join("rules");
    std::fs::write(&rules, "never program sh\nalways\n").expect("the folder is new and ours");
    let path = |path: &Path| path.to_str().expect("a path of ours").to_owned();
    for name in names {
        same(heirs, &AGENT, &[name, &path(bare.path()), &path(&rules)], 4);
    }
}

#[test]
fn a_program_with_the_library_gets_the_last_bytes_of_a_peer_that_has_ended() {
    scenarios(&["ended"]);
}

#[test]
fn so_does_a_program_without_it_that_such_a_program_starts() {
    scenarios(&["onward", "onward-child"]);
}

#[test]
fn a_rule_against_a_program_leaves_what_was_upgraded_before() {
    scenarios(&["ruled"]);
}

#[test]
fn a_program_with_the_library_turned_off_gets_the_socket_of_the_kernel() {
    scenarios(&["off", "never", "elsewhere", "later-off"]);
}

#[test]
fn a_program_of_another_user_gets_the_socket_of_the_kernel() {
    let Some((heirs, _)) = programs() else { return };
    if viaduct_os::process::effective_uid() != 0 {
        skip!("it takes root to be two users");
    }
    let _dog = Watchdog::arm(scaled(Duration::from_secs(120)), "two users");
    let stage = Stage::new(&AGENT);
    // Where the other user finds it, wherever this tree is.
    let library = stage.folder().join("libsovia_preload.so");
    std::fs::copy(stage.library(), &library).unwrap();
    let mut command = stage.under(heirs.path());
    let output = command.arg("user").env("LD_PRELOAD", &library).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (String::from_utf8_lossy(&output.stdout).as_ref(), errors.as_ref()),
        ("the program ended with 0\n", "")
    );
    assert!(stage.upgrades() >= 4, "{}", stage.notes());
}

#[test]
fn a_program_that_the_agent_cannot_tell_of_its_connection_gets_the_socket_of_the_kernel() {
    let Some((heirs, _)) = programs() else { return };
    let _dog = Watchdog::arm(scaled(Duration::from_secs(120)), "an agent");
    let mut stage = Stage::new(&AGENT);
    let mut command = stage.under(heirs.path());
    let mut child = command.arg("replaced").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "up");
    assert!(stage.upgrades() >= 4, "{}", stage.notes());
    stage.replace_agent(&AGENT);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    assert_eq!(rest, ["the program ended with 0"], "{}", stage.notes());
    assert!(child.wait().unwrap().success());
}
