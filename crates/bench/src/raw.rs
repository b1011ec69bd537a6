//! The only unsafe file of this crate: words and blocks in memory that both ends of a benchmark map.
//!
//! [`Word`] and [`Block`] check their range once, when they are made, and keep the mapping alive, so that the timed
//! loops touch memory and nothing else. The two processes of a benchmark are one program that trusts itself: a block
//! is written by one end, then announced by a release store, then read by the other. These are measuring tools, not a
//! model for code that meets strangers.

use std::cell::UnsafeCell;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use viaduct_os::segment::Segment;
use viaduct_via::{Buffer, Descriptor};

/// A 64-bit word of a shared segment.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    at: NonNull<AtomicU64>,
    _segment: Rc<Segment>,
}

impl Word {
    /// The word `offset` bytes into the segment.
    ///
    /// # Panics
    /// If it lies outside or is not aligned.
    pub(crate) fn new(segment: &Rc<Segment>, offset: usize) -> Word {
        assert!(offset.is_multiple_of(8), "word at {offset} is not aligned");
        Word { at: place(segment, offset, 8).cast(), _segment: Rc::clone(segment) }
    }

    /// The lower half, which is what a futex sleeps on.
    #[inline(always)]
    pub(crate) fn low(&self) -> &AtomicU32 {
        // SAFETY: in range, aligned and mapped as in `deref`; x86-64 and arm64 are little-endian, so the lower half
        // comes first. Both halves are only ever accessed atomically.
        unsafe { self.at.cast::<AtomicU32>().as_ref() }
    }
}

impl Deref for Word {
    type Target = AtomicU64;

    #[inline(always)]
    fn deref(&self) -> &AtomicU64 {
        // SAFETY: range and alignment were checked in `new`, the segment is mapped as long as `_segment` lives, and
        // atomics allow the other process to write at any time.
        unsafe { self.at.as_ref() }
    }
}

/// A range of bytes in a shared segment.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    at: NonNull<u8>,
    len: usize,
    _segment: Rc<Segment>,
}

impl Block {
    /// The `len` bytes from `offset`.
    ///
    /// # Panics
    /// If they lie outside.
    pub(crate) fn new(segment: &Rc<Segment>, offset: usize, len: usize) -> Block {
        Block { at: place(segment, offset, len), len, _segment: Rc::clone(segment) }
    }

    /// Copies all of `from` to the start of the block.
    #[inline(always)]
    pub(crate) fn write(&self, from: &[u8]) {
        assert!(from.len() <= self.len);
        // SAFETY: the block is mapped and long enough, and a private slice never overlaps a segment. The other end
        // does not read the block until the word that announces it is stored.
        unsafe { viaduct_os::copy::copy(self.at.as_ptr(), from.as_ptr(), from.len()) }
    }

    /// Copies the start of the block over all of `into`.
    pub(crate) fn read(&self, into: &mut [u8]) {
        assert!(into.len() <= self.len);
        // SAFETY: as in `write`; the other end does not write the block until it has been released.
        unsafe { viaduct_os::copy::copy(into.as_mut_ptr(), self.at.as_ptr(), into.len()) }
    }

    /// Stores one word at the start.
    #[inline(always)]
    pub(crate) fn store_word(&self, value: u64) {
        debug_assert!(self.len >= 8 && self.at.as_ptr().addr().is_multiple_of(8));
        // SAFETY: callers only use blocks of at least 8 aligned bytes for this (checked in debug builds).
        unsafe { self.at.cast::<AtomicU64>().as_ref() }.store(value, Ordering::Relaxed);
    }

    /// Loads one word from the start.
    #[inline(always)]
    pub(crate) fn load_word(&self) -> u64 {
        debug_assert!(self.len >= 8 && self.at.as_ptr().addr().is_multiple_of(8));
        // SAFETY: as in `store_word`.
        unsafe { self.at.cast::<AtomicU64>().as_ref() }.load(Ordering::Relaxed)
    }

    /// Reads every byte in place.
    #[inline(always)]
    pub(crate) fn sum(&self) -> u64 {
        // SAFETY: mapped and in range; not written while we read, as in `read`.
        unsafe { sum_at(self.at.as_ptr(), self.len) }
    }
}

/// Numbers that threads of one process share without locks: a program that is free of data races on nodes, where barriers
/// keep its workers apart, is so on threads.
#[derive(Debug)]
pub(crate) struct Numbers(Box<[UnsafeCell<f64>]>);

// SAFETY: the threads that share it write no number that another one touches before they have met at a barrier.
unsafe impl Sync for Numbers {}

impl Numbers {
    pub(crate) fn zeroes(len: usize) -> Numbers {
        Numbers((0..len).map(|_| UnsafeCell::new(0.0)).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Numbers that no thread writes before the next barrier.
    #[inline(always)]
    pub(crate) fn read(&self, range: Range<usize>) -> &[f64] {
        let cells = &self.0[range];
        // SAFETY: a cell has the layout of what is in it; no thread writes these meanwhile, as said above.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) }
    }

    /// Numbers that no other thread touches before the next barrier, and this one by no other slice.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "barriers keep the threads apart, not borrows")]
    pub(crate) fn write(&self, range: Range<usize>) -> &mut [f64] {
        let cells = &self.0[range];
        // SAFETY: as in `read`, and this thread alone has them.
        unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), cells.len()) }
    }
}

/// Reads every byte of `bytes`; the answer depends on each of them.
#[inline(always)]
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    // SAFETY: a slice is readable over its whole length.
    unsafe { sum_at(bytes.as_ptr(), bytes.len()) }
}

/// Reads the first `len` bytes of a buffer in place.
#[inline(always)]
pub(crate) fn sum_buffer(buffer: &Buffer, len: usize) -> u64 {
    // SAFETY: the buffer came back in a completion, so nothing is posted on it, and its region gives peers no right to
    // write: nothing else touches the bytes until it is posted again.
    sum(unsafe { &buffer.as_slice()[..len] })
}

/// Reads `len` bytes from `start` of a buffer in place that the peer writes by RDMA.
#[inline(always)]
pub(crate) fn sum_lent(buffer: &Buffer, start: usize, len: usize) -> u64 {
    let bytes = &buffer.atomics()[start..start + len];
    // SAFETY: in range. Both ends are this program and take turns: the caller has seen the last word of a
    // write, and the peer writes these bytes again only after our answer.
    unsafe { sum_at(bytes.as_ptr().cast(), len) }
}

/// Sums `len` bytes from `start` on.
#[inline(always)]
pub(crate) fn sum_part(buffer: &Buffer, start: usize, len: usize) -> u64 {
    // SAFETY: as in `sum_buffer`.
    sum(unsafe { &buffer.as_slice()[start..start + len] })
}

/// Writes to every line of the first `len` bytes of a descriptor's buffer, as a program does that makes a new message.
#[inline(always)]
pub(crate) fn renew(descriptor: &mut Descriptor, buffer: usize, len: usize, value: u8) {
    // SAFETY: the descriptor is not posted, and its region gives peers no right to write.
    renew_bytes(unsafe { &mut descriptor.as_mut_slice(buffer)[..len] }, value);
}

/// Sums bytes of private memory.
#[inline(always)]
pub(crate) fn renew_bytes(bytes: &mut [u8], value: u8) {
    bytes.iter_mut().step_by(64).for_each(|byte| *byte = value);
}

fn place(segment: &Segment, offset: usize, len: usize) -> NonNull<u8> {
    assert!(offset <= segment.len() && len <= segment.len() - offset, "{offset}+{len} outside the segment");
    let start = NonNull::new(segment.as_ptr()).expect("a mapping is never at address 0");
    // SAFETY: stays within the mapping, as just checked.
    unsafe { start.add(offset) }
}

/// # Safety
/// `from` must be readable for `len` bytes.
#[inline(always)]
unsafe fn sum_at(from: *const u8, len: usize) -> u64 {
    if len == 8 {
        // SAFETY: 8 readable bytes by the caller's word.
        return unsafe { from.cast::<u64>().read_unaligned() };
    }
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2; the range is readable by the caller's word.
        return unsafe { sum_avx2(from, len) };
    }
    // SAFETY: the range is readable by the caller's word.
    unsafe { sum_plain(from, len) }
}

/// # Safety
/// AVX2 must be there and `from` readable for `len` bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn sum_avx2(from: *const u8, len: usize) -> u64 {
    // SAFETY: the caller's word; compiled here with 32-byte loads.
    unsafe { sum_plain(from, len) }
}

/// # Safety
/// `from` must be readable for `len` bytes.
#[inline(always)]
unsafe fn sum_plain(from: *const u8, len: usize) -> u64 {
    // Sixteen independent sums, two cache lines a turn: four vector registers with AVX2.
    let mut lanes = [0u64; 16];
    let words = len / 128 * 16;
    let start = from.cast::<u64>();
    for turn in (0..words).step_by(16) {
        for (lane, total) in lanes.iter_mut().enumerate() {
            // SAFETY: turn + lane < words, and words * 8 <= len.
            *total = total.wrapping_add(unsafe { start.add(turn + lane).read_unaligned() });
        }
    }
    let mut total = lanes.iter().fold(0u64, |sum, lane| sum.wrapping_add(*lane));
    for word in words..len / 8 {
        // SAFETY: (word + 1) * 8 <= len.
        total = total.wrapping_add(unsafe { start.add(word).read_unaligned() });
    }
    for index in len / 8 * 8..len {
        // SAFETY: index < len.
        total = total.wrapping_add(u64::from(unsafe { from.add(index).read() }));
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_depends_on_every_byte() {
        for len in [0, 1, 8, 63, 127, 128, 129, 1000, 4096] {
            let mut bytes = vec![3u8; len];
            let before = sum(&bytes);
            for index in 0..len {
                bytes[index] ^= 0x40;
                assert_ne!(sum(&bytes), before, "byte {index} of {len}");
                bytes[index] ^= 0x40;
            }
        }
    }

    #[test]
    fn plain_and_vector_sums_agree() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7) as u8).collect();
        // SAFETY: the range lies in the vector.
        assert_eq!(unsafe { sum_plain(bytes.as_ptr().add(3), 4900) }, sum(&bytes[3..4903]));
    }
}
