//! What hostile peers feed to streams: greetings, packets, places of rings. `fuzz/` does it with the nightly compiler.

use viaduct_kit::fuzz::spoil;
use viaduct_sovia::wire::{GREETING_LEN, Greeting, Packet, RING_LEN, RingAt};

/// Reads the bytes as everything that can come.
fn read(bytes: &[u8]) {
    if let Ok(greeting) = Greeting::decode(bytes) {
        assert_eq!(greeting.encode().as_slice(), bytes, "a greeting is written as it was read");
        assert!(greeting.open() <= greeting.window && greeting.longest_message() >= RING_LEN);
    }
    for word in bytes.chunks_exact(4) {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        if let Some(packet) = Packet::decode(word) {
            assert_eq!(packet.encode(), word, "a packet is written as it was read");
        }
    }
    if let Some(place) = bytes.first_chunk::<RING_LEN>() {
        assert_eq!(RingAt::decode(place).encode(), *place);
    }
}

#[test]
fn any_bytes_of_a_peer_are_read_or_refused() {
    let plain = Greeting { mtu: 65_536, window: 32, threshold: 8, small: 65_536 };
    let ring = Greeting { small: 128, ..plain };
    let seeds = [plain, ring].map(|greeting| greeting.encode().to_vec());
    assert!(seeds.iter().all(|seed| seed.len() == GREETING_LEN && Greeting::decode(seed).is_ok()));
    spoil(&seeds, read);
}
