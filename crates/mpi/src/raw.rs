//! The one place that touches a program's buffers: [`Span`], memory that a message is sent from or received into; and memory
//! that processes share. How data of a type are packed is in `datatype/raw.rs`.
//!
//! A program hands addresses through C; that they are valid is its promise, which every function here passes on.

#![allow(unsafe_code, reason = "the addresses come from C programs")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64};

use viaduct_os::copy;
use viaduct_via::{Descriptor, MemHandle, Op, RemoteAddress};

use crate::datatype::Datatype;
pub use crate::datatype::raw::{pack, pack_within, unpack, unpack_within};
use crate::datatype::raw::{pack_to, unpack_from};

/// Most blocks of a packet that are gathered where they lie; more are packed first.
const PARTS: usize = 16;
/// Bytes that blocks have on average if they are gathered: 1 KiB in eight blocks took a third longer so than packed first.
const WORTHWHILE: usize = 1 << 10;

/// Memory of the program that a message is sent from or received into: elements of a datatype at an address.
///
/// Cheap to clone. What it points to is the program's, until the request that uses it is done.
#[derive(Clone, Debug)]
pub struct Span {
    base: *mut u8,
    count: usize,
    kind: Datatype,
    bytes: usize,
    /// Where the one block begins that the elements form; None if there are gaps.
    block: Option<*mut u8>,
    /// The memory, if it belongs to the span.
    _kept: Option<Arc<[AtomicU8]>>,
}

// SAFETY: an address with a promise about the memory there, which does not depend on the thread.
unsafe impl Send for Span {}
// SAFETY: as above; the owner of the request says when bytes are moved.
unsafe impl Sync for Span {}

impl Span {
    /// `count` elements of a datatype at an address. Memory to be sent is only read.
    ///
    /// # Safety
    /// Until the last request that uses the span is done, the bytes of the elements are valid for reads (of a message that
    /// is sent), or for writes and not otherwise used (of one that is received). For a collective operation that holds for all
    /// elements that its arguments name.
    pub unsafe fn new(base: *mut u8, count: usize, kind: &Datatype) -> Span {
        let block = kind.contiguous(count).map(|disp| base.wrapping_offset(disp as isize));
        Span { base, count, kind: kind.clone(), bytes: kind.size() * count, block, _kept: None }
    }

    /// No bytes.
    pub fn empty() -> Span {
        Span::owned(&[])
    }

    /// A copy of some bytes, which the span keeps.
    pub fn owned(bytes: &[u8]) -> Span {
        let copy = Span::zeroes(bytes.len());
        copy.write(0, bytes);
        copy
    }

    /// Zeroes that the span keeps.
    pub fn zeroes(len: usize) -> Span {
        Span::keeping(fresh(len).into())
    }

    /// The bytes of another span in packed form, kept by the new one.
    pub fn packed(&self) -> Span {
        let copy = Span::zeroes(self.bytes);
        self.copy_to(&copy, self.bytes);
        copy
    }

    fn keeping(memory: Arc<[AtomicU8]>) -> Span {
        let base = memory.as_ptr().cast::<u8>().cast_mut();
        let bytes = memory.len();
        let kind = Datatype::byte();
        Span { base, count: bytes, kind, bytes, block: Some(base), _kept: Some(memory) }
    }

    /// How long the message is, in packed form.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many elements there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// What the elements are.
    pub fn kind(&self) -> &Datatype {
        &self.kind
    }

    /// The address that displacements count from.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Where the bytes lie, if they are in one piece.
    pub fn block(&self) -> Option<*mut u8> {
        self.block
    }

    /// Elements of another number or type at a displacement from the address of this span. The promise of [`Span::new`]
    /// covers them: for a collective operation it is given for all elements that the arguments of the call name.
    pub(crate) fn part(&self, at: i64, count: usize, kind: &Datatype) -> Span {
        // SAFETY: the promise, as said above.
        let mut part = unsafe { Span::new(self.base.wrapping_offset(at as isize), count, kind) };
        part._kept = self._kept.clone();
        part
    }

    /// Packs bytes of the message into shared memory, from byte `from` of the packed form on.
    ///
    /// # Panics
    /// If the message ends before `out` is full.
    #[inline]
    pub fn pack(&self, from: usize, out: &[AtomicU8]) {
        assert!(from + out.len() <= self.bytes, "{} bytes from {from} of {}", out.len(), self.bytes);
        let target = out.as_ptr().cast::<u8>().cast_mut();
        match self.block {
            // SAFETY: the promise of `new` for the source; atomics may be written through a shared reference.
            Some(block) => unsafe { copy::copy(target, block.wrapping_add(from), out.len()) },
            // SAFETY: as above.
            None => unsafe { pack_to(self.base, &self.kind, self.count, from, target, out.len()) },
        }
    }

    /// Packs bytes of the message into memory of the caller's own, from byte `from` of the packed form on.
    ///
    /// # Panics
    /// If the message ends before `out` is full.
    #[inline]
    pub fn read(&self, from: usize, out: &mut [u8]) {
        assert!(from + out.len() <= self.bytes, "{} bytes from {from} of {}", out.len(), self.bytes);
        match self.block {
            // SAFETY: the promise of `new`; `out` is borrowed mutably, so it is no part of the message.
            Some(block) => unsafe { copy::copy(out.as_mut_ptr(), block.wrapping_add(from), out.len()) },
            // SAFETY: as above.
            None => unsafe { pack(self.base, &self.kind, self.count, from, out) },
        }
    }

    /// Unpacks bytes of the message out of memory of the caller's own.
    ///
    /// # Panics
    /// If the span ends before `data` does.
    pub fn write(&self, from: usize, data: &[u8]) {
        assert!(from + data.len() <= self.bytes, "{} bytes from {from} of {}", data.len(), self.bytes);
        // SAFETY: the promise of `new`; what is borrowed for reading is not written to by requests.
        unsafe { unpack(self.base, &self.kind, self.count, from, data) };
    }

    /// Does something with a header and bytes of the message where they lie, if those are in few pieces.
    #[inline]
    pub(crate) fn with_parts<R>(
        &self,
        head: &[u8],
        from: usize,
        len: usize,
        act: impl FnOnce(&[&[u8]]) -> R,
    ) -> Option<R> {
        assert!(from + len <= self.bytes, "{len} bytes from {from} of {}", self.bytes);
        if let Some(block) = self.block.filter(|_| len > 0) {
            // SAFETY: the promise of `new`: a message that is sent is valid for reads, and the program does not change it.
            return Some(act(&[head, unsafe { std::slice::from_raw_parts(block.wrapping_add(from), len) }]));
        }
        self.with_pieces(head, from, len, act)
    }

    #[inline(never)]
    fn with_pieces<R>(
        &self,
        head: &[u8],
        from: usize,
        len: usize,
        act: impl FnOnce(&[&[u8]]) -> R,
    ) -> Option<R> {
        // As many as there are on average, and two that are cut.
        let blocks = self.kind.blocks().saturating_mul(self.count);
        let few = blocks.saturating_mul(len) / self.bytes.max(1) + 2 <= PARTS;
        if !few || self.bytes < blocks.saturating_mul(WORTHWHILE) {
            return None;
        }
        let mut parts: [&[u8]; PARTS + 1] = [&[]; PARTS + 1];
        parts[0] = head;
        let mut used = 1;
        let (layout, extent) = (self.kind.layout(), self.kind.extent());
        layout.visit_all(self.count, extent, from, from + len, &mut |run| {
            for index in 0..run.count as i64 {
                let start = self.base.wrapping_offset((run.disp + index * run.stride) as isize);
                if let Some(part) = parts.get_mut(used) {
                    // SAFETY: as above, for each block of the message.
                    *part = unsafe { std::slice::from_raw_parts(start, run.len) };
                }
                used += 1;
            }
        });
        parts.get(..used).map(act)
    }

    /// Has something fill the first `len` bytes of a message that is received, if they are in one piece.
    pub(crate) fn fill<R>(&self, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        assert!(len <= self.bytes, "{len} bytes of {}", self.bytes);
        let block = self.block.filter(|_| len > 0)?;
        // SAFETY: the promise of `new`: a message that is received is valid for writes, and the program does not use it.
        Some(fill(unsafe { std::slice::from_raw_parts_mut(block, len) }))
    }

    /// The message as bytes, if it is in one piece.
    pub(crate) fn as_bytes(&self) -> Option<Span> {
        let block = self.block?;
        let kept = self._kept.clone();
        let kind = Datatype::byte();
        Some(Span {
            base: block,
            count: self.bytes,
            kind,
            bytes: self.bytes,
            block: Some(block),
            _kept: kept,
        })
    }

    /// An RDMA read of the first `len` bytes of this message, which is in one piece, out of a peer's memory.
    pub(crate) fn pull(&self, from: RemoteAddress, len: usize, number: u64) -> Option<Descriptor> {
        let (block, len) = (self.block?, u32::try_from(len).ok()?);
        let order = Descriptor::new(Op::RdmaRead).remote(from).context(number);
        // SAFETY: the promise of `new`: the memory is valid until the request is done, which it is not before this.
        Some(unsafe { order.raw_segment(block, len, MemHandle::NONE) })
    }

    /// Unpacks bytes of the message out of shared memory, from byte `from` of the packed form on.
    ///
    /// # Panics
    /// If the span ends before `data` does.
    #[inline]
    pub fn unpack(&self, from: usize, data: &[AtomicU8]) {
        assert!(from + data.len() <= self.bytes, "{} bytes from {from} of {}", data.len(), self.bytes);
        let source = data.as_ptr().cast::<u8>();
        match self.block {
            // SAFETY: the promise of `new` for the target; a peer that writes the source at the same time spoils its own
            // message, since copies go through `os::copy`.
            Some(block) => unsafe { copy::copy(block.wrapping_add(from), source, data.len()) },
            // SAFETY: as above.
            None => unsafe { unpack_from(self.base, &self.kind, self.count, from, source, data.len()) },
        }
    }

    /// Copies the first `len` bytes into another span.
    ///
    /// # Panics
    /// If one of them is shorter.
    pub fn copy_to(&self, to: &Span, len: usize) {
        assert!(len <= self.bytes && len <= to.bytes, "{len} bytes of {} into {}", self.bytes, to.bytes);
        match (self.block, to.block) {
            // SAFETY: the promises of both; a program may well send a message to where it already is.
            (Some(from), Some(to)) => unsafe { std::ptr::copy(from, to, len) },
            _ => {
                let room = [const { AtomicU8::new(0) }; 4096];
                for at in (0..len).step_by(room.len()) {
                    let piece = &room[..room.len().min(len - at)];
                    self.pack(at, piece);
                    to.unpack(at, piece);
                }
            }
        }
    }
}

/// Memory that processes share: words and bytes that any of them may change at any time.
#[derive(Debug)]
pub(crate) struct Common(viaduct_os::segment::Segment);

impl Common {
    pub(crate) fn new(segment: viaduct_os::segment::Segment) -> Common {
        Common(segment)
    }

    /// The word at an offset.
    ///
    /// # Panics
    /// If the offset is not a multiple of eight within the memory.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.0.len(), "a word at {at} of {}", self.0.len());
        // SAFETY: within the mapping, which begins at a page and lives as long as `self`; other processes and threads reach it
        // through atomics too.
        unsafe { &*self.0.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Bytes from an offset on.
    ///
    /// # Panics
    /// If the memory ends before.
    #[inline]
    pub(crate) fn bytes(&self, at: usize, len: usize) -> &[AtomicU8] {
        assert!(at <= self.0.len() && len <= self.0.len() - at, "{len} bytes at {at} of {}", self.0.len());
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(at).cast::<AtomicU8>(), len) }
    }
}

/// New memory that may be shared, all zeroes.
pub(crate) fn fresh(len: usize) -> Box<[AtomicU8]> {
    let bytes = Box::into_raw(vec![0u8; len].into_boxed_slice());
    // SAFETY: an atomic byte has the layout of a byte, and the memory has one owner.
    unsafe { Box::from_raw(bytes as *mut [AtomicU8]) }
}

/// A copy of memory that a peer may write.
pub(crate) fn copied(from: &[AtomicU8]) -> Box<[AtomicU8]> {
    let to = fresh(from.len());
    copy_between(from, &to);
    to
}

/// Copies memory that a peer may write.
///
/// # Panics
/// If the two are not equally long.
pub(crate) fn copy_between(from: &[AtomicU8], to: &[AtomicU8]) {
    assert_eq!(from.len(), to.len(), "bytes of a message");
    // SAFETY: both have this length; atomics may be written through a shared reference, and no memory that a peer writes is
    // part of a message that was taken before.
    unsafe { copy::copy(to.as_ptr().cast::<u8>().cast_mut(), from.as_ptr().cast(), from.len()) };
}

/// Computes `into = from op into` for elements in the program's memory, by a predefined operation.
///
/// # Errors
/// If the operation is not defined for the type.
pub(crate) fn combine(op: crate::op::Op, from: &Span, into: &Span) -> crate::error::Result<()> {
    let len = into.kind.extent().max(0) as usize * into.count;
    if len == 0 {
        return crate::op::check(op, &into.kind);
    }
    // SAFETY: the promise of `new` for both; predefined types, which alone are computed with, fill their extent from the
    // address on, and the operands of a reduction do not overlap.
    let (into_bytes, from_bytes) = unsafe {
        (std::slice::from_raw_parts_mut(into.base, len), std::slice::from_raw_parts(from.base, len))
    };
    crate::op::combine(op, &into.kind, into_bytes, from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::{basic, build};

    fn int() -> Datatype {
        Datatype::of_basic(basic::find(0x4c000405).unwrap())
    }

    #[test]
    fn few_blocks_are_gathered_where_they_lie_and_many_are_not() {
        let memory: Vec<u8> = (0..200_000u32).map(|byte| (byte * 7 + byte / 251) as u8).collect();
        let base = memory.as_ptr().cast_mut();
        let kinds = [
            (int(), 100, Some(2)),
            (build::vector(5, 300, 900, &int()).unwrap(), 2, Some(11)),
            (build::hindexed(&[300, 256, 500], &[4000, 0, 8023], &int()).unwrap(), 4, Some(13)),
            (build::vector(40, 300, 900, &int()).unwrap(), 1, None),
            (build::vector(5, 100, 300, &int()).unwrap(), 1, None),
        ];
        for (kind, count, wanted) in kinds {
            // SAFETY: all types stay within 150,000 bytes.
            let span = unsafe { Span::new(base, count, &kind) };
            for (from, len) in [(0, span.bytes()), (3, span.bytes() - 5)] {
                let mut whole = vec![0; len];
                span.read(from, &mut whole);
                let gathered = span.with_parts(b"head", from, len, |parts| (parts.len(), parts.concat()));
                assert_eq!(gathered.as_ref().map(|(count, _)| *count), wanted, "{kind:?}");
                assert!(gathered.is_none_or(|(_, bytes)| bytes == [b"head", &whole[..]].concat()));
            }
        }
    }
}
