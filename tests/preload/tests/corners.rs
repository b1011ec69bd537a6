//! The C program of `c/corners.c`: sets of epoll that are shared, signals, half-closed streams, ranges of descriptors,
//! system calls by number, ends without a goodbye. Each scenario says the same with the library and without.

use std::path::Path;
use std::sync::OnceLock;

use viaduct_kit::cc::{Compiled, compile_c_file};
use viaduct_preload_tests::same;

use crate::AGENT;

fn program() -> Option<&'static Compiled> {
    static PROGRAM: OnceLock<Option<Compiled>> = OnceLock::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/corners.c");
    PROGRAM.get_or_init(|| compile_c_file(source, &["-O1", "-pthread"])).as_ref()
}

/// Runs scenarios; in each the connection is upgraded in both directions at both ends.
fn scenarios(names: &[&str]) {
    if let Some(program) = program() {
        for name in names {
            same(program, &AGENT, &[name], 4);
        }
    }
}

#[test]
fn several_waiters_take_each_message_once() {
    scenarios(&["exclusive", "crew"]);
}

#[test]
fn a_child_waits_with_the_set_of_its_parent() {
    scenarios(&["inherited"]);
}

#[test]
fn a_set_reports_what_it_was_asked_to_report_for_each_descriptor() {
    scenarios(&["tokens"]);
}

#[test]
fn half_closed_and_closed_streams_are_reported_as_such() {
    scenarios(&["ends", "half", "pipe"]);
}

#[test]
fn signals_leave_restart_and_interrupt_calls() {
    scenarios(&["jumping", "restart", "mixed"]);
}

#[test]
fn a_handler_sends_where_its_thread_is_sending() {
    scenarios(&["handler"]);
}

#[test]
fn a_handler_uses_the_connection_that_its_thread_is_using() {
    scenarios(&["meddling"]);
}

#[test]
fn a_busy_connection_keeps_no_other_descriptor_out_of_a_set() {
    scenarios(&["busy"]);
}

#[test]
fn signals_that_tell_of_bytes_come() {
    scenarios(&["signalled"]);
}

#[test]
fn all_that_is_to_come_can_be_looked_at() {
    scenarios(&["peek"]);
}

#[test]
fn a_receive_without_room_waits_as_on_tcp() {
    scenarios(&["nothing"]);
}

#[test]
fn no_memory_is_asked_for_and_no_thread_started() {
    scenarios(&["memory"]);
}

#[test]
fn bytes_that_are_held_back_are_let_go() {
    scenarios(&["held"]);
}

#[test]
fn a_connection_that_is_made_without_waiting_is_upgraded() {
    scenarios(&["unwaited"]);
}

#[test]
fn descriptors_are_closed_in_ranges_and_replaced() {
    scenarios(&["ranges"]);
}

#[test]
fn a_child_by_the_system_call_alone_goes_on() {
    scenarios(&["clone"]);
}

#[test]
fn system_calls_by_number_do_what_their_names_do() {
    scenarios(&["numbers"]);
}

#[test]
fn a_write_that_is_not_to_wait_does_not_wait_for_room() {
    scenarios(&["unwaiting"]);
}

#[test]
fn bytes_sent_before_an_end_without_a_goodbye_arrive() {
    scenarios(&["exit", "abort"]);
}

#[test]
fn a_copy_that_was_never_used_is_reported_for_what_comes_to_its_connection() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/copies.c");
    if let Some(program) = compile_c_file(source, &["-O1", "-pthread"]) {
        for name in ["dup", "exec", "cold-exec"] {
            same(&program, &AGENT, &[name], 4);
        }
    }
}

#[test]
fn sets_that_other_processes_have_report_what_was_asked_for() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/sets.c");
    if let Some(program) = compile_c_file(source, &["-O1", "-pthread"]) {
        for name in ["passed", "kept", "added"] {
            same(&program, &AGENT, &[name], 4);
        }
    }
}

#[test]
fn threads_are_cancelled_where_they_wait() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/cancel.c");
    if let Some(program) = compile_c_file(source, &["-O1", "-pthread"]) {
        same(&program, &AGENT, &[], 4);
    }
}

#[test]
fn standard_input_that_libc_has_replaced_is_read() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/standard.c");
    if let Some(program) = compile_c_file(source, &["-O1", "-pthread"]) {
        for name in ["daemon", "terminal"] {
            same(&program, &AGENT, &[name], 4);
        }
    }
}

#[test]
fn datagrams_and_local_sockets_are_never_touched() {
    if let Some(program) = program() {
        let notes = same(program, &AGENT, &["others"], 0);
        assert_eq!(notes, "");
    }
}
