//! Where two blocks of memory differ, byte by byte: the diffs of distributed shared memory (the Cashmere paper, section 2.1).
//!
//! One of the blocks may be changed by other threads and processes meanwhile. Each byte of it is loaded once, and what is said
//! of a byte is true of that load. As in [`copy`](crate::copy), the loads are in assembly or volatile.
//!
//! | where | blocks that are equal |
//! |---|---|
//! | x86-64 with AVX2 | a load, a compare and a branch for each 32 bytes |
//! | elsewhere | the same for each 8 bytes |

#[cfg(any(test, miri, loom, not(target_arch = "x86_64")))]
mod portable;
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod x86;

/// Bytes that are compared at once.
pub const BLOCK: usize = 32;

/// A block in which some bytes differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differs {
    /// Where it begins.
    pub at: usize,
    /// A bit for each byte that differs, the first byte's lowest. Never 0.
    pub mask: u32,
    /// What was loaded from the block that may change.
    pub bytes: [u8; BLOCK],
}

impl Differs {
    /// The runs of bytes that differ: where each begins in the whole, and its bytes.
    pub fn runs(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let mut mask = self.mask;
        std::iter::from_fn(move || {
            if mask == 0 {
                return None;
            }
            let start = mask.trailing_zeros() as usize;
            let len = (mask >> start).trailing_ones() as usize;
            // A run to the end of the block has no bit behind it.
            mask &= u32::MAX.checked_shl((start + len) as u32).unwrap_or(0);
            Some((self.at + start, &self.bytes[start..start + len]))
        })
    }
}

/// The first block from `from` on in which `now` and `old` differ.
///
/// # Safety
/// Both must be valid for reads of `len` bytes; other threads and processes may write to them meanwhile.
///
/// # Panics
/// If `len` or `from` is no whole number of blocks.
#[inline]
pub unsafe fn next(now: *const u8, old: *const u8, len: usize, from: usize) -> Option<Differs> {
    assert!(len.is_multiple_of(BLOCK) && from.is_multiple_of(BLOCK), "whole blocks are compared");
    if from >= len {
        return None;
    }
    // SAFETY: the caller's promise, and there is a block at `from`.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
        return x86::next(now, old, len, from);
        #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
        return portable::next(now, old, len, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Kernel = unsafe fn(*const u8, *const u8, usize, usize) -> Option<Differs>;

    const KERNELS: &[(&str, Kernel)] = &[
        ("portable", portable::next),
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        ("of this machine", x86::next),
    ];

    /// All runs, those that meet at the edge of a block joined.
    fn runs(kernel: Kernel, now: &[u8], old: &[u8]) -> Vec<(usize, Vec<u8>)> {
        let (mut all, mut from): (Vec<(usize, Vec<u8>)>, usize) = (Vec::new(), 0);
        while from < now.len() {
            // SAFETY: both slices have the length of the first, as each caller makes them, and a block at `from`.
            let Some(differs) = (unsafe { kernel(now.as_ptr(), old.as_ptr(), now.len(), from) }) else {
                break;
            };
            assert!(differs.at >= from && differs.mask != 0);
            for (at, bytes) in differs.runs() {
                match all.last_mut().filter(|(start, run)| start + run.len() == at) {
                    Some((_, run)) => run.extend_from_slice(bytes),
                    None => all.push((at, bytes.to_vec())),
                }
            }
            from = differs.at + BLOCK;
        }
        all
    }

    /// What a loop over bytes finds.
    fn byte_by_byte(now: &[u8], old: &[u8]) -> Vec<(usize, Vec<u8>)> {
        let mut all: Vec<(usize, Vec<u8>)> = Vec::new();
        for (at, (&byte, before)) in now.iter().zip(old).enumerate() {
            if byte != *before {
                match all.last_mut().filter(|(start, run)| start + run.len() == at) {
                    Some((_, run)) => run.push(byte),
                    None => all.push((at, vec![byte])),
                }
            }
        }
        all
    }

    #[test]
    fn one_run_of_any_place_and_length_is_found() {
        let old: Vec<u8> = (0..3 * BLOCK).map(|at| at as u8 ^ 0x5A).collect();
        // Miri takes a minute for what is done here in a blink.
        let step = if cfg!(miri) { 13 } else { 1 };
        let starts = (0..=old.len()).step_by(step);
        for (start, end) in
            starts.flat_map(|start| (start..=old.len()).step_by(step).map(move |end| (start, end)))
        {
            let mut now = old.clone();
            now[start..end].iter_mut().for_each(|byte| *byte = !*byte);
            for (name, kernel) in KERNELS {
                assert_eq!(runs(*kernel, &now, &old), byte_by_byte(&now, &old), "{name}: {start}..{end}");
            }
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 400 }, ..Default::default() })]

        #[test]
        fn any_bytes_are_found_wherever_they_lie(
            blocks in 1_usize..9,
            // How the two lie to the borders of blocks: pages are aligned, pieces of a message are not.
            skew in 0_usize..33,
            changes in proptest::collection::vec((0_usize..8 * BLOCK, 1_u8..4), 0..60),
        ) {
            let len = blocks * BLOCK;
            let all: Vec<u8> = (0..len + skew).map(|at| (at % 251) as u8).collect();
            let old = &all[skew..];
            let mut now = old.to_vec();
            changes.iter().filter(|change| change.0 < len).for_each(|(at, by)| now[*at] = now[*at].wrapping_add(*by));
            for (name, kernel) in KERNELS {
                proptest::prop_assert_eq!(runs(*kernel, &now, old), byte_by_byte(&now, old), "{}", name);
            }
        }
    }

    #[test]
    fn a_length_of_no_whole_number_of_blocks_is_refused() {
        let bytes = [0; 2 * BLOCK];
        for (len, from) in [(BLOCK + 1, 0), (2 * BLOCK, 8)] {
            // SAFETY: both are as long as the longest.
            let tried =
                std::panic::catch_unwind(|| unsafe { next(bytes.as_ptr(), bytes.as_ptr(), len, from) });
            assert!(tried.is_err(), "{len} from {from}");
        }
        // SAFETY: as above.
        assert_eq!(unsafe { next(bytes.as_ptr(), bytes.as_ptr(), 2 * BLOCK, 2 * BLOCK) }, None);
    }
}
