//! Random sequences of calls do no harm, over two providers. The fuzz target `fuzz/fuzz_targets/vipl.rs` runs the same
//! interpreter for as long as one likes.

mod sequence;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use viaduct_kit::effort::rounds;
use viaduct_kit::watchdog::Watchdog;

fn sequences(device: &std::ffi::CStr) {
    let _watchdog = Watchdog::arm(std::time::Duration::from_secs(300), "sequences of calls");
    let cases = rounds(300, 20_000) as u32;
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let bytes = proptest::collection::vec(any::<u8>(), 0..600);
    let run = runner.run(&bytes, |bytes| {
        sequence::run(device, &bytes);
        Ok(())
    });
    run.unwrap();
}

#[test]
fn any_sequence_of_calls_is_survived_in_one_process() {
    sequences(c"loopback");
}

#[test]
fn any_sequence_of_calls_is_survived_on_shared_memory() {
    sequences(c"shm");
}
