//! Random sequences of calls of the C library: `cargo +nightly fuzz run vipl`.
#![no_main]

#[path = "../../capi/vipl/tests/sequence/mod.rs"]
mod sequence;

libfuzzer_sys::fuzz_target!(|input: &[u8]| sequence::run(c"loopback", input));
