//! Packing and unpacking by layout, at raw addresses.
//!
//! A program hands addresses through C; that they are valid is its promise, which every function here passes on. Runs
//! of small blocks have loops of their own: a column of numbers is moved at the speed of its loads and stores, without
//! a call for each number.

#![allow(unsafe_code, reason = "the addresses come from C programs")]

use viaduct_os::copy;

use super::{Datatype, Run};

/// Packs bytes of `count` copies of a datatype into `out`, beginning with byte `from` of the packed form.
///
/// Fills all of `out`; the message has at least `from + out.len()` bytes.
///
/// # Safety
/// Every byte of the message that is asked for is valid for reads, and none of them lies in `out`.
pub unsafe fn pack(base: *const u8, kind: &Datatype, count: usize, from: usize, out: &mut [u8]) {
    debug_assert!(from + out.len() <= kind.size() * count, "beyond the end of the message");
    // SAFETY: the caller's promise.
    unsafe { pack_to(base, kind, count, from, out.as_mut_ptr(), out.len()) };
}

/// Packs `len` bytes to an address.
///
/// # Safety
/// As [`pack`], and `len` bytes at `at` are valid for writes.
pub(crate) unsafe fn pack_to(
    base: *const u8,
    kind: &Datatype,
    count: usize,
    from: usize,
    mut at: *mut u8,
    len: usize,
) {
    kind.layout().visit_all(count, kind.extent(), from, from + len, &mut |run| {
        let source = base.wrapping_offset(run.disp as isize);
        // SAFETY: the caller's promise for the source; the runs together are `len` bytes, and `at` goes on by the length
        // of each.
        at = unsafe { gather(at, source, run) };
    });
}

/// Unpacks `data` into `count` copies of a datatype, beginning with byte `from` of the packed form.
///
/// # Safety
/// Every byte of the message that is written is valid for writes, and none of them lies in `data`.
pub unsafe fn unpack(base: *mut u8, kind: &Datatype, count: usize, from: usize, data: &[u8]) {
    debug_assert!(from + data.len() <= kind.size() * count, "beyond the end of the message");
    // SAFETY: the caller's promise.
    unsafe { unpack_from(base, kind, count, from, data.as_ptr(), data.len()) };
}

/// Unpacks `len` bytes from an address.
///
/// # Safety
/// As [`unpack`], and `len` bytes at `at` are valid for reads.
pub(crate) unsafe fn unpack_from(
    base: *mut u8,
    kind: &Datatype,
    count: usize,
    from: usize,
    mut at: *const u8,
    len: usize,
) {
    kind.layout().visit_all(count, kind.extent(), from, from + len, &mut |run| {
        let target = base.wrapping_offset(run.disp as isize);
        // SAFETY: as in `pack`, with the roles of the two memories exchanged.
        at = unsafe { scatter(target, at, run) };
    });
}

/// Packs `count` elements that lie in `memory`, the first of them at displacement `at`.
///
/// # Panics
/// If an element lies outside of `memory`.
pub fn pack_within(memory: &[u8], at: i64, kind: &Datatype, count: usize) -> Vec<u8> {
    check_within(memory.len(), at, kind, count);
    let mut packed = vec![0; kind.size() * count];
    // SAFETY: checked just now; `packed` is new.
    unsafe { pack(memory.as_ptr().wrapping_offset(at as isize), kind, count, 0, &mut packed) };
    packed
}

/// Unpacks elements into `memory`, the first of them at displacement `at`.
///
/// # Panics
/// If an element lies outside of `memory`, or `packed` is not as long as `count` elements.
pub fn unpack_within(memory: &mut [u8], at: i64, kind: &Datatype, count: usize, packed: &[u8]) {
    check_within(memory.len(), at, kind, count);
    assert_eq!(packed.len(), kind.size() * count, "the length of {count} elements");
    // SAFETY: checked just now; a shared and a mutable slice do not overlap.
    unsafe { unpack(memory.as_mut_ptr().wrapping_offset(at as isize), kind, count, 0, packed) };
}

fn check_within(len: usize, at: i64, kind: &Datatype, count: usize) {
    if count == 0 || kind.size() == 0 {
        return;
    }
    let (low, span) = kind.true_extent();
    let far = kind.extent() * (count as i64 - 1);
    let (first, end) = (at + low + far.min(0), at + low + span + far.max(0));
    assert!(first >= 0 && end <= len as i64, "{first}..{end} of {len} bytes");
}

/// Copies a run into consecutive memory and returns where that ends.
///
/// # Safety
/// Blocks of the run at `source` are readable, all their bytes fit at `at`.
#[inline]
unsafe fn gather(at: *mut u8, source: *const u8, run: Run) -> *mut u8 {
    // SAFETY: the caller's promise, for each block.
    unsafe {
        match run.len {
            _ if run.count == 1 => copy::copy(at, source, run.len),
            4 => words::<4>(at, 4, source, run.stride, run.count),
            8 => words::<8>(at, 8, source, run.stride, run.count),
            16 => words::<16>(at, 16, source, run.stride, run.count),
            len => blocks(at, len as i64, source, run.stride, len, run.count),
        }
        at.add(run.len * run.count)
    }
}

/// Copies consecutive memory into a run and returns where it ends.
///
/// # Safety
/// Blocks of the run at `target` are writable, all their bytes are at `at`.
#[inline]
unsafe fn scatter(target: *mut u8, at: *const u8, run: Run) -> *const u8 {
    // SAFETY: the caller's promise, for each block.
    unsafe {
        match run.len {
            _ if run.count == 1 => copy::copy(target, at, run.len),
            4 => words::<4>(target, run.stride, at, 4, run.count),
            8 => words::<8>(target, run.stride, at, 8, run.count),
            16 => words::<16>(target, run.stride, at, 16, run.count),
            len => blocks(target, run.stride, at, len as i64, len, run.count),
        }
        at.add(run.len * run.count)
    }
}

/// Moves `count` blocks of `N` bytes.
///
/// # Safety
/// Each block is readable at the source and writable at the target.
#[inline]
unsafe fn words<const N: usize>(target: *mut u8, to: i64, source: *const u8, from: i64, count: usize) {
    for index in 0..count as i64 {
        let (target, source) =
            (target.wrapping_offset((index * to) as isize), source.wrapping_offset((index * from) as isize));
        // SAFETY: the caller's promise; arrays of bytes have no alignment.
        unsafe { target.cast::<[u8; N]>().write(source.cast::<[u8; N]>().read()) };
    }
}

/// Moves `count` blocks of `len` bytes.
///
/// # Safety
/// Each block is readable at the source and writable at the target.
unsafe fn blocks(target: *mut u8, to: i64, source: *const u8, from: i64, len: usize, count: usize) {
    for index in 0..count as i64 {
        let (target, source) =
            (target.wrapping_offset((index * to) as isize), source.wrapping_offset((index * from) as isize));
        // SAFETY: the caller's promise.
        unsafe { copy::copy(target, source, len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::{basic, build};

    fn int() -> Datatype {
        Datatype::of_basic(basic::find(0x4c000405).unwrap())
    }

    /// Packs in pieces of every length and unpacks in pieces of another.
    #[test]
    fn data_packed_in_pieces_is_unpacked_in_other_pieces() {
        let column = build::vector(5, 1, 3, &int()).unwrap();
        let odd = build::hindexed(&[3, 1, 2], &[40, 0, 23], &column).unwrap();
        let kinds = [int(), column.clone(), build::resized(&column, -4, 100), odd];
        for kind in kinds {
            let (count, middle) = (3, 1000);
            let memory: Vec<u8> = (0..4000u32).map(|byte| (byte * 7 + byte / 251) as u8).collect();
            let mut whole = vec![0; kind.size() * count];
            // SAFETY: all types stay within 2,000 bytes of the middle of 4,000.
            unsafe { pack(memory.as_ptr().add(middle), &kind, count, 0, &mut whole) };
            for piece in [1, 3, 4, 7, 16, 64] {
                let mut out = vec![0; whole.len()];
                let mut back = vec![0xee_u8; 4000];
                for (index, part) in out.chunks_mut(piece).enumerate() {
                    // SAFETY: as above.
                    unsafe { pack(memory.as_ptr().add(middle), &kind, count, index * piece, part) };
                }
                assert_eq!(out, whole);
                for (index, part) in whole.chunks(piece + 1).enumerate() {
                    // SAFETY: as above.
                    unsafe { unpack(back.as_mut_ptr().add(middle), &kind, count, index * (piece + 1), part) };
                }
                let mut again = vec![0; whole.len()];
                // SAFETY: as above.
                unsafe { pack(back.as_ptr().add(middle), &kind, count, 0, &mut again) };
                assert_eq!(again, whole);
            }
        }
    }

    #[test]
    fn gaps_are_left_alone() {
        let pair = build::structure(&[1, 1], &[0, 8], &[int(), int()]).unwrap();
        let mut memory = [0xee_u8; 24];
        // SAFETY: 12 bytes of extent, twice, in 24.
        unsafe { unpack(memory.as_mut_ptr(), &pair, 2, 0, &[1; 16]) };
        let want = [[1; 4], [0xee; 4], [1; 4], [1; 4], [0xee; 4], [1; 4]].concat();
        assert_eq!(memory.as_slice(), want);
    }
}
