//! A copy whose last word appears last.
//!
//! Design, section 3 (shm): the target of an RDMA write may spin on the last word of its buffer, as MPI libraries did on
//! VIA hardware. So that word is stored by itself, whole and with release: a thread that sees it sees everything before it.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Copies `len` bytes, the last 8, 4, 2 or 1 of them (the widest that ends at a border of its own size) by one
/// release store after all others.
///
/// # Safety
/// As [`super::copy`].
pub unsafe fn copy_release_tail(dst: *mut u8, src: *const u8, len: usize) {
    if len == 0 {
        return;
    }
    let end = dst.addr().wrapping_add(len);
    let width = [8, 4, 2, 1].into_iter().find(|&w| w <= len && end.is_multiple_of(w)).unwrap_or(1);
    let body = len - width;
    let mut word = [0u8; 8];
    // SAFETY: body + width = len, so both copies stay inside what the caller vouches for, and `word` has 8 bytes.
    unsafe {
        super::copy_over(dst, src, body);
        super::copy(word.as_mut_ptr(), src.add(body), width);
    }
    // SAFETY: `width` bytes from `dst + body` on are the caller's to write, and that address is a multiple of `width`;
    // all accesses of others to the word are atomic or not in this program.
    unsafe {
        let last = dst.add(body);
        match width {
            8 => AtomicU64::from_ptr(last.cast()).store(u64::from_ne_bytes(word), Ordering::Release),
            4 => AtomicU32::from_ptr(last.cast()).store(u32::from_ne_bytes(first(&word)), Ordering::Release),
            2 => AtomicU16::from_ptr(last.cast()).store(u16::from_ne_bytes(first(&word)), Ordering::Release),
            _ => AtomicU8::from_ptr(last).store(word[0], Ordering::Release),
        }
    }
}

fn first<const N: usize>(word: &[u8; 8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&word[..N]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ends_and_lengths() {
        let from: Vec<u8> = (0..128).map(|i| i as u8 + 1).collect();
        for at in 0..9 {
            for len in (0..100).step_by(if cfg!(miri) { 7 } else { 1 }) {
                let mut to = vec![0u8; 128];
                // SAFETY: 8 + 99 bytes fit into 128.
                unsafe { copy_release_tail(to.as_mut_ptr().add(at), from.as_ptr().add(3), len) };
                assert_eq!(to[at..at + len], from[3..3 + len]);
                assert!(to[..at].iter().chain(&to[at + len..]).all(|&x| x == 0));
            }
        }
    }

    /// A reader that sees the last word sees the rest.
    #[test]
    fn the_last_word_publishes_the_others() {
        const LEN: usize = 2 * crate::copy::OVER;
        const ROUNDS: u64 = if cfg!(miri) { 10 } else { 2000 };
        let shared: Vec<AtomicU64> = (0..LEN / 8).map(|_| AtomicU64::new(0)).collect();
        let ack = AtomicU64::new(0);
        let base = shared.as_ptr().cast_mut().cast::<u8>();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    while shared[LEN / 8 - 1].load(Ordering::Acquire) != round {
                        std::thread::yield_now();
                    }
                    assert!(shared.iter().all(|word| word.load(Ordering::Relaxed) == round));
                    ack.store(round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                let from = [round; LEN / 8];
                // SAFETY: atomics may be written through a shared reference, and the vector lives throughout.
                unsafe { copy_release_tail(base, from.as_ptr().cast(), LEN) };
                while ack.load(Ordering::Acquire) != round {
                    std::thread::yield_now();
                }
            }
        });
    }
}
