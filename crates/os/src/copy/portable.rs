//! The copy kernel for any CPU, and for tools that cannot run assembly (Miri, loom).
//!
//! Volatile loads and stores of the widest word that both addresses allow, in ascending order. The compiler neither
//! merges nor repeats them, which is what memory that changes underneath needs.

/// Copies `len` bytes.
///
/// # Safety
/// As [`super::copy`].
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // Words can be used if both addresses are off their borders by the same amount.
    let skew = dst.addr() ^ src.addr();
    let width = 1 << skew.trailing_zeros().min(3);
    let head = dst.addr().wrapping_neg() % width;
    let head = head.min(len);
    let words = (len - head) / width;
    let body = words * width;
    // SAFETY: head + body + rest = len, so all three stay inside what the caller vouches for; after the head both
    // addresses are multiples of the width.
    unsafe {
        bytes(dst, src, head);
        let (to, from) = (dst.add(head), src.add(head));
        match width {
            8 => elements::<u64>(to.cast(), from.cast(), words),
            4 => elements::<u32>(to.cast(), from.cast(), words),
            2 => elements::<u16>(to.cast(), from.cast(), words),
            _ => bytes(to, from, words),
        }
        bytes(to.add(body), from.add(body), len - head - body);
    }
}

unsafe fn bytes(dst: *mut u8, src: *const u8, count: usize) {
    // SAFETY: a byte is always aligned; the caller vouches for the range.
    unsafe { elements(dst, src, count) }
}

unsafe fn elements<T: Copy>(dst: *mut T, src: *const T, count: usize) {
    for i in 0..count {
        // SAFETY: both ranges are valid and aligned for T (the caller's promise), and T is an unsigned integer, for
        // which every pattern of bits is a value.
        unsafe { dst.add(i).write_volatile(src.add(i).read_volatile()) };
    }
}

#[cfg(test)]
mod tests {
    /// Small enough for Miri.
    #[test]
    fn all_offsets_and_lengths_around_a_word() {
        let from: Vec<u8> = (0..64).map(|i| i as u8 + 1).collect();
        for (a, b) in (0..9).flat_map(|a| (0..9).map(move |b| (a, b))) {
            for len in (0..28).step_by(if cfg!(miri) { 3 } else { 1 }) {
                let mut to = vec![0u8; 64];
                // SAFETY: 8 + 27 bytes fit into 64 on both sides.
                unsafe { super::copy(to.as_mut_ptr().add(a), from.as_ptr().add(b), len) };
                assert_eq!(to[a..a + len], from[b..b + len]);
                assert!(to[..a].iter().chain(&to[a + len..]).all(|&x| x == 0));
            }
        }
    }
}
