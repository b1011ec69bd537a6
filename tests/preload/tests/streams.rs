//! The C program of `c/streams.c`: each scenario checks every byte, with the library and without, and says the same.

use std::path::Path;
use std::sync::OnceLock;

use viaduct_kit::cc::{Compiled, compile_c_file};

use crate::AGENT;

fn program() -> Option<&'static Compiled> {
    static PROGRAM: OnceLock<Option<Compiled>> = OnceLock::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/streams.c");
    PROGRAM.get_or_init(|| compile_c_file(source, &["-O1", "-pthread"])).as_ref()
}

/// With and without; `upgraded` directions are expected at least, counted at both ends.
fn same(arguments: &[&str], upgraded: usize) {
    if let Some(program) = program() {
        viaduct_preload_tests::same(program, &AGENT, arguments, upgraded);
    }
}

#[test]
fn a_stream_of_odd_sizes_both_ways_arrives_whole() {
    same(&["bulk"], 4);
}

#[test]
fn mapped_addresses_name_the_same_connection() {
    same(&["mapped"], 4);
}

#[test]
fn vectors_and_messages_arrive_whole() {
    same(&["vectors"], 4);
}

#[test]
fn flags_and_limits_mean_what_they_mean_for_sockets() {
    same(&["flags"], 4);
}

#[test]
fn epoll_reports_levels() {
    same(&["level"], 4);
}

#[test]
fn a_descriptor_registered_anew_at_every_turn_is_reported_and_a_deleted_one_is_not() {
    same(&["turns"], 4);
}

#[test]
fn epoll_reports_edges() {
    same(&["edge"], 4);
}

#[test]
fn epoll_reports_once() {
    same(&["once"], 4);
}

#[test]
fn select_sees_rings() {
    same(&["select"], 4);
}

#[test]
fn a_set_in_a_set_wakes_for_rings() {
    same(&["nested"], 4);
}

#[test]
fn parent_and_child_share_a_connection() {
    same(&["shared"], 4);
}

#[test]
fn a_connection_goes_on_after_exec() {
    same(&["exec"], 4);
}

#[test]
fn a_connection_goes_on_where_it_is_passed_to() {
    same(&["passing"], 4);
}

#[test]
fn the_death_of_a_peer_is_noticed() {
    same(&["killed"], 4);
}

#[test]
fn closing_with_unread_bytes_resets() {
    same(&["unread"], 4);
}

#[test]
fn threads_are_cancelled_woken_and_interrupted() {
    same(&["threads"], 4);
}

#[test]
fn threads_that_were_started_late_send_on_one_connection() {
    same(&["late"], 4);
}

#[test]
fn streams_of_libc_work_over_rings() {
    same(&["stdio"], 4);
}

#[test]
fn both_ends_on_one_core_make_progress() {
    for scenario in ["bulk", "level"] {
        same(&[scenario, "one-core"], 4);
    }
}
