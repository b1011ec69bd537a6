//! The C program of `c/limits.c`: entries of poll, bits of select and sets of epoll, as many as a program may have.

use std::path::Path;

use viaduct_kit::cc::compile_c_file;
use viaduct_preload_tests::same;

use crate::AGENT;

fn scenario(name: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/limits.c");
    if let Some(program) = compile_c_file(source, &["-O1", "-pthread", "-U_FORTIFY_SOURCE"]) {
        same(&program, &AGENT, &[name], 4);
    }
}

#[test]
fn poll_takes_as_many_entries_as_a_process_may_have_descriptors() {
    scenario("entries");
}

#[test]
fn select_takes_more_bits_than_the_type_of_libc_has() {
    scenario("bits");
}

#[test]
fn a_set_beyond_those_that_are_looked_after_reports_its_connections() {
    scenario("sets");
}
