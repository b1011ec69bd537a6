//! The comparison for any CPU, and for tools that cannot run assembly (Miri, loom): words by volatile loads.

use super::{BLOCK, Differs};

const WORD: usize = size_of::<u64>();

/// As [`super::next`].
///
/// # Safety
/// As [`super::next`], and there is a block at `from`.
pub(super) unsafe fn next(now: *const u8, old: *const u8, len: usize, from: usize) -> Option<Differs> {
    for at in (from..len).step_by(BLOCK) {
        let (mut bytes, mut mask) = ([0; BLOCK], 0);
        for place in (0..BLOCK).step_by(WORD) {
            // SAFETY: a word inside a block of both, by the caller's promise.
            let (new, was) = unsafe { (word(now.add(at + place)), word(old.add(at + place))) };
            bytes[place..place + WORD].copy_from_slice(&new);
            if new != was {
                let differ = new.iter().zip(was).enumerate().filter(|(_, (new, was))| *new != was);
                differ.for_each(|(byte, _)| mask |= 1 << (place + byte));
            }
        }
        if mask != 0 {
            return Some(Differs { at, mask, bytes });
        }
    }
    None
}

/// The bytes of a word, each loaded once.
///
/// # Safety
/// Eight bytes at `from` are valid for reads.
unsafe fn word(from: *const u8) -> [u8; WORD] {
    // SAFETY: the caller's promise; what is not aligned is loaded byte by byte.
    unsafe {
        if from.addr().is_multiple_of(WORD) {
            from.cast::<u64>().read_volatile().to_ne_bytes()
        } else {
            std::array::from_fn(|at| from.add(at).read_volatile())
        }
    }
}
