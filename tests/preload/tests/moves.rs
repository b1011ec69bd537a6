//! The C program of `c/moves.c`: upgraded connections that have to be the kernel's again, or meet calls that are seldom
//! made. Each scenario says the same with the library and without.

use std::path::Path;
use std::sync::OnceLock;

use viaduct_kit::cc::{Compiled, compile_c_file};

use crate::AGENT;
use viaduct_preload_tests::same;

fn source(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(name)
}

fn programs() -> Option<&'static (Compiled, Compiled)> {
    static PROGRAMS: OnceLock<Option<(Compiled, Compiled)>> = OnceLock::new();
    let make = || {
        let moves = compile_c_file(source("moves.c"), &["-O1", "-pthread"])?;
        Some((moves, compile_c_file(source("bare.c"), &["-O1", "-static"])?))
    };
    PROGRAMS.get_or_init(make).as_ref()
}

/// Runs scenarios; in each the connection is upgraded in both directions at both ends before.
fn scenarios(names: &[&str]) {
    let Some((moves, bare)) = programs() else { return };
    let bare = bare.path().to_str().expect("a path of ours").to_owned();
    for name in names {
        let notes = same(moves, &AGENT, &[name, &bare], 4);
        assert!(!notes.contains("the agent"), "{name}\n{notes}");
    }
}

#[test]
fn a_program_without_the_library_gets_what_lay_in_the_ring_and_what_comes_later() {
    scenarios(&[
        "exec",
        "exec-at-once",
        "vfork",
        "spawn",
        "shell",
        "shell-child",
        "scrubbed",
        "system",
        "passed",
        "passed-unused",
    ]);
}

#[test]
fn a_program_without_the_library_gets_the_last_bytes_of_a_peer_that_has_ended() {
    scenarios(&["ended", "ended-vfork", "gone"]);
}

#[test]
fn a_full_ring_is_moved_back_whole() {
    scenarios(&["many", "watcher"]);
}

#[test]
fn an_operation_of_the_kernel_alone_moves_the_connection_back() {
    scenarios(&["urgent", "filtered", "options", "told", "tls"]);
    let Some((moves, _)) = programs() else { return };
    let notes = same(moves, &AGENT, &["device"], 4);
    assert!(notes.contains("it is bound to a device"), "{notes}");
}

#[test]
fn data_in_the_first_packet_and_a_device_keep_a_connection_on_tcp() {
    let Some((moves, _)) = programs() else { return };
    let notes = same(moves, &AGENT, &["kept"], 0);
    assert!(!notes.contains(" upgraded: "), "{notes}");
}

#[test]
fn behind_a_filter_no_system_call_is_made_that_the_program_does_not_make() {
    scenarios(&["enclosed"]);
}

#[test]
fn calls_that_are_seldom_made_do_what_they_do_on_tcp() {
    scenarios(&["splice", "messages", "abort", "linger", "times"]);
}
