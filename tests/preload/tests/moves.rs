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

/// Runs a scenario; its connection is upgraded in both directions at both ends before.
fn scenario(name: &str) {
    let Some((moves, bare)) = programs() else { return };
    let bare = bare.path().to_str().expect("a path of ours").to_owned();
    let notes = same(moves, &AGENT, &[name, &bare], 4);
    assert!(!notes.contains("the agent"), "{notes}");
}

#[test]
fn a_static_program_gets_what_lay_in_the_ring() {
    scenario("exec");
}

#[test]
fn a_static_program_gets_what_comes_later() {
    scenario("exec-at-once");
}

#[test]
fn a_child_of_vfork_starts_a_static_program() {
    scenario("vfork");
}

#[test]
fn a_static_program_is_spawned_with_the_connection() {
    scenario("spawn");
}

#[test]
fn a_program_without_the_variable_gets_the_connection() {
    scenario("scrubbed");
    scenario("system");
}

#[test]
fn a_full_ring_is_moved_back_whole() {
    scenario("many");
    scenario("watcher");
}

#[test]
fn urgent_data_keep_their_place() {
    scenario("urgent");
}

#[test]
fn a_process_without_the_library_gets_the_connection_in_a_message() {
    scenario("passed");
}

#[test]
fn a_filter_of_system_calls_finds_plain_sockets() {
    scenario("filtered");
}

#[test]
fn options_that_only_the_kernel_knows_move_the_connection_back() {
    scenario("options");
}

#[test]
fn splice_moves_every_byte() {
    scenario("splice");
}

#[test]
fn many_messages_in_one_call_arrive_whole() {
    scenario("messages");
}

#[test]
fn lingering_and_aborting_look_as_on_tcp() {
    scenario("abort");
    scenario("linger");
}

#[test]
fn limits_in_time_end_calls() {
    scenario("times");
}
