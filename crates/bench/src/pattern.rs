//! What messages carry in a validation pass: bytes that depend on the message and on their position.
//!
//! A lost, repeated, reordered, shifted or stale message therefore never looks right. The bytes of timed passes are
//! not checked, they are summed.

use crate::rng::mix;

/// Fills `bytes` with the pattern of message `seq`.
pub(crate) fn fill(bytes: &mut [u8], seq: u64) {
    for (index, chunk) in bytes.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&word(seq, index)[..chunk.len()]);
    }
}

/// How many 8-byte groups of `bytes` differ from the pattern of message `seq`.
pub(crate) fn mismatches(bytes: &[u8], seq: u64) -> u64 {
    let groups = bytes.chunks(8).enumerate();
    groups.filter(|(index, chunk)| **chunk != word(seq, *index)[..chunk.len()]).count() as u64
}

fn word(seq: u64, index: usize) -> [u8; 8] {
    mix(mix(seq).wrapping_add(index as u64)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn right_messages_pass_and_wrong_ones_do_not() {
        for len in [1, 7, 8, 9, 63, 64, 4096] {
            let mut bytes = vec![0; len];
            fill(&mut bytes, 5);
            assert_eq!(mismatches(&bytes, 5), 0, "{len}");
            assert!(mismatches(&bytes, 6) > 0, "{len}");
            bytes[len / 2] ^= 1;
            assert_eq!(mismatches(&bytes, 5), 1, "{len}");
        }
        assert_eq!(mismatches(&[], 1), 0);
    }

    #[test]
    fn shifted_data_are_noticed() {
        let mut bytes = vec![0; 128];
        fill(&mut bytes, 9);
        bytes.rotate_left(8);
        assert_eq!(mismatches(&bytes, 9), 16);
    }
}
