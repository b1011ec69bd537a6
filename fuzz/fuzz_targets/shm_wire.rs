//! Whatever a peer sends through a Unix socket of `shm` is read or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| viaduct_providers::fuzz::shm_wire(data));
