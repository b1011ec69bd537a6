//! The bytes of a descriptor's segments: gathered for a message, scattered from one, and walked.

use viaduct_os::copy::{copy, copy_over};
use viaduct_via::Work;

use super::ring::INLINE_WORDS;

/// The bytes of a message of up to 8 bytes, as one word.
#[inline]
pub(crate) fn gather_word(work: &Work) -> u64 {
    let mut word = 0u64;
    let to = (&raw mut word).cast::<u8>();
    if let [s] = work.segments() {
        // SAFETY: at most 8 bytes, as the caller has checked; the segment is valid while posted.
        unsafe { copy(to, s.addr, s.len as usize) };
        return word;
    }
    let mut at = 0;
    for s in work.segments() {
        // SAFETY: the caller has checked that all segments together have at most 8 bytes; each is valid while posted.
        unsafe { copy(to.add(at), s.addr, s.len as usize) };
        at += s.len as usize;
    }
    word
}

/// The bytes a small message sends, as words. How many words there are.
#[inline]
pub(crate) fn gather_words(work: &Work, words: &mut [u64; INLINE_WORDS]) -> usize {
    let to = words.as_mut_ptr().cast::<u8>();
    let mut at = 0;
    for s in work.segments() {
        // SAFETY: the caller has checked that all segments together fit; each one is valid while posted.
        unsafe { copy(to.add(at), s.addr, s.len as usize) };
        at += s.len as usize;
    }
    at.div_ceil(8)
}

/// Copies `len` bytes at `from` to the segments of a descriptor; they fit, as the caller has checked.
#[inline]
pub(crate) fn scatter(work: &Work, from: *const u8, len: u32) {
    if let [only] = work.segments() {
        // SAFETY: the segment is valid while posted and holds len bytes; so does the source.
        unsafe { copy(only.addr, from, len as usize) };
        return;
    }
    scatter_at(work, 0, from, len);
}

/// Copies `len` bytes to the segments of a descriptor, beginning `skip` bytes into it.
pub(crate) fn scatter_at(work: &Work, skip: u32, from: *const u8, len: u32) {
    each_part(work, skip, len, |addr, done, n| {
        // SAFETY: the part lies inside a posted segment; the source holds len bytes and done + n is within.
        unsafe { copy(addr, from.add(done), n) };
    });
}

/// Copies a piece of a message, `skip` bytes into it, to `to`.
pub(crate) fn gather_piece(work: &Work, skip: u32, to: *mut u8, len: u32) {
    each_part(work, skip, len, |addr, done, n| {
        // SAFETY: the part lies inside a posted segment; the caller's buffer holds len bytes.
        unsafe { copy_over(to.add(done), addr, n) };
    });
}

/// Walks `len` bytes of a descriptor's segments, from `skip` on: address, bytes done before, bytes here.
pub(crate) fn each_part(work: &Work, skip: u32, len: u32, mut f: impl FnMut(*mut u8, usize, usize)) {
    let (mut skip, mut left, mut done) = (skip as usize, len as usize, 0);
    for s in work.segments() {
        let here = s.len as usize;
        if skip >= here {
            skip -= here;
            continue;
        }
        let n = (here - skip).min(left);
        if n == 0 {
            return;
        }
        f(s.addr.wrapping_add(skip), done, n);
        skip = 0;
        left -= n;
        done += n;
    }
}
