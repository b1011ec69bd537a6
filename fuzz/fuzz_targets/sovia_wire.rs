//! Whatever a peer says to a stream is read or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use viaduct_sovia::wire::{Greeting, Packet, RingAt};

fuzz_target!(|data: &[u8]| {
    if let Ok(greeting) = Greeting::decode(data) {
        assert_eq!(greeting.encode().as_slice(), data);
    }
    if let Some(word) = data.first_chunk().copied().map(u32::from_le_bytes)
        && let Some(packet) = Packet::decode(word)
    {
        assert_eq!(packet.encode(), word);
    }
    if let Some(place) = data.first_chunk() {
        assert_eq!(RingAt::decode(place).encode(), *place);
    }
});
