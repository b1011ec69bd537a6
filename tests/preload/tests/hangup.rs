//! The C program of `c/hangup.c`: a sender that waits for room when its peer goes gets from poll, select, epoll and send what plain TCP
//! gives it, word for word.

use std::path::Path;
use std::sync::OnceLock;

use viaduct_kit::cc::{Compiled, compile_c_file};
use viaduct_preload_tests::same;

use crate::AGENT;

fn program() -> Option<&'static Compiled> {
    static PROGRAM: OnceLock<Option<Compiled>> = OnceLock::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/hangup.c");
    PROGRAM.get_or_init(|| compile_c_file(source, &["-O1", "-pthread"])).as_ref()
}

/// Runs with each peer: one that closes with unread bytes, one that is killed, one that has read everything and closes.
fn with_each_peer(ways: &[&str]) {
    if let Some(program) = program() {
        for way in ways {
            for peer in ["unread", "killed", "drained"] {
                same(program, &AGENT, &[peer, way], 4);
            }
        }
    }
}

#[test]
fn poll_for_room_reports_that_the_peer_is_gone() {
    with_each_peer(&["poll", "mixed"]);
}

#[test]
fn select_for_room_reports_that_the_peer_is_gone() {
    with_each_peer(&["select", "select-all"]);
}

#[test]
fn sets_that_wait_for_room_report_levels_when_the_peer_is_gone() {
    with_each_peer(&["level", "both", "told", "nested"]);
}

#[test]
fn sets_that_wait_for_room_report_edges_and_once_when_the_peer_is_gone() {
    with_each_peer(&["edge", "once"]);
}

#[test]
fn exclusive_sets_that_wait_for_room_report_that_the_peer_is_gone() {
    with_each_peer(&["exclusive", "exclusive-both", "exclusive-edge", "exclusive-early"]);
}

#[test]
fn a_child_that_waits_in_the_set_of_its_parent_learns_that_the_peer_is_gone() {
    with_each_peer(&["child"]);
}

#[test]
fn a_peer_that_has_only_shut_down_sending_gets_every_byte() {
    if let Some(program) = program() {
        for way in ["poll", "level"] {
            same(program, &AGENT, &["half", way], 4);
        }
    }
}

#[test]
fn sends_to_a_peer_that_is_gone_fail_as_on_tcp() {
    with_each_peer(&["later", "send"]);
}

#[test]
fn one_call_reports_the_reset() {
    with_each_peer(&["read", "socket-error"]);
}
