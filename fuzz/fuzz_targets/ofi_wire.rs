//! Whatever a peer sends through libfabric is read or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| viaduct_providers::fuzz::ofi_wire(data));
