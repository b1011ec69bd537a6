//! The C program of `c/jumps.c`: signal handlers that leave calls of the library by longjmp, at any point.

use std::path::Path;

use viaduct_kit::cc::compile_c_file;
use viaduct_preload_tests::same;

use crate::AGENT;

fn scenarios(names: &[&str], flags: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/jumps.c");
    let flags = [&["-O1", "-pthread"], flags].concat();
    if let Some(program) = compile_c_file(source, &flags) {
        for name in names {
            same(&program, &AGENT, &[name], 4);
        }
    }
}

#[test]
fn a_wait_that_a_handler_leaves_by_longjmp_holds_nothing() {
    scenarios(&["waits"], &[]);
}

#[test]
fn handlers_on_a_stack_of_their_own_leave_by_the_longjmp_that_checks() {
    scenarios(&["waits-apart"], &["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]);
}

#[test]
fn a_send_that_a_handler_leaves_by_longjmp_keeps_no_other_from_sending() {
    scenarios(&["sends"], &[]);
}

#[test]
fn a_jump_inside_of_a_handler_takes_nothing_from_what_it_interrupts() {
    scenarios(&["inside"], &[]);
}
