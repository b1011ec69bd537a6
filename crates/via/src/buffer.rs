//! Buffers: the memory that safe programs send from and receive into.
//!
//! A buffer owns its memory. Posting a descriptor moves the buffer into it and the completion gives it back, so
//! "freed while posted" cannot be written down. Access copies or goes through atomics, because a peer may write the
//! memory at any time; [`Buffer::slice`] looks at memory to which no peer has rights, and [`Buffer::as_slice`] is there for
//! callers that can promise that no peer writes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64};

use crate::descriptor::RemoteAddress;
use crate::memory::{MemHandle, Retired, Slices};
use crate::raw::{RawMemory, RawSegment};

/// A range of memory that descriptors can use.
pub struct Buffer {
    region: Arc<Region>,
    start: usize,
    len: usize,
    /// A receive into it did not succeed: a peer that was stopped in the middle may still write.
    doubtful: bool,
}

/// The memory behind one or more buffers.
#[derive(Debug)]
pub(crate) struct Region {
    memory: Option<RawMemory>,
    handle: MemHandle,
    retired: Option<Arc<Retired>>,
    slices: Arc<Slices>,
}

impl Region {
    /// Memory registered with a NIC; it goes to `retired` when the last buffer is dropped.
    pub(crate) fn registered(
        memory: RawMemory,
        handle: MemHandle,
        retired: Arc<Retired>,
        slices: Arc<Slices>,
    ) -> Region {
        Region { memory: Some(memory), handle, retired: Some(retired), slices }
    }

    #[inline]
    fn memory(&self) -> &RawMemory {
        self.memory.as_ref().expect("only Drop and into_memory take the memory")
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let (Some(memory), Some(retired)) = (self.memory.take(), self.retired.as_ref()) {
            retired.push(self.handle, memory);
        }
    }
}

impl Buffer {
    pub(crate) fn new(region: Region) -> Buffer {
        let len = region.memory().len();
        Buffer { region: Arc::new(region), start: 0, len, doubtful: false }
    }

    /// Memory that is registered on demand.
    pub(crate) fn unregistered(memory: RawMemory) -> Buffer {
        let slices = Slices::new(memory.is_ours());
        Buffer::new(Region { memory: Some(memory), handle: MemHandle::NONE, retired: None, slices })
    }

    /// Whether it is a part of a slice that was [lent](crate::lend), or of bytes that are shared by an `Arc`: it can be
    /// sent and not written to.
    pub fn is_lent(&self) -> bool {
        self.region.memory().is_lent()
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The handle of the region, or [`MemHandle::NONE`] for memory that is registered on demand.
    pub fn handle(&self) -> MemHandle {
        self.region.handle
    }

    /// What a peer needs to reach byte `offset` by RDMA.
    pub fn remote(&self, offset: usize) -> RemoteAddress {
        assert!(offset <= self.len, "offset outside the buffer");
        RemoteAddress { addr: self.ptr() as u64 + offset as u64, handle: self.region.handle }
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If the range lies outside the buffer.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        self.region.memory().read(self.start + offset, into);
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If the range lies outside the buffer.
    #[inline]
    pub fn write(&mut self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        self.region.memory().write(self.start + offset, from);
    }

    /// A copy of the first `len` bytes.
    pub fn to_vec(&self, len: usize) -> Vec<u8> {
        let mut v = vec![0; len];
        self.read(0, &mut v);
        v
    }

    /// The bytes as atomics.
    pub fn atomics(&self) -> &[AtomicU8] {
        &self.region.memory().atomics()[self.start..self.start + self.len]
    }

    /// An aligned 64-bit word as an atomic: what a peer's atomic operations work on.
    ///
    /// # Panics
    /// If it lies outside the buffer or is not aligned to 8 bytes.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        self.check(offset, 8);
        self.region.memory().word(self.start + offset)
    }

    /// Cuts the buffer in two at `at`; both stay in the same region.
    ///
    /// # Panics
    /// If `at` lies outside the buffer.
    pub fn split_at(self, at: usize) -> (Buffer, Buffer) {
        self.check(at, 0);
        let rest = Buffer {
            region: self.region.clone(),
            start: self.start + at,
            len: self.len - at,
            doubtful: self.doubtful,
        };
        (Buffer { len: at, ..self }, rest)
    }

    /// Cuts the buffer into pieces of `size` bytes; a shorter rest is dropped.
    pub fn chunks(self, size: usize) -> Vec<Buffer> {
        assert!(size > 0, "pieces of no bytes");
        (0..self.len / size)
            .map(|i| Buffer {
                region: self.region.clone(),
                start: self.start + i * size,
                len: size,
                doubtful: self.doubtful,
            })
            .collect()
    }

    /// Gives heap memory back. Other memory, and memory other buffers still use, is returned as it was.
    ///
    /// # Errors
    /// The buffer itself, if its memory is not of the heap or is used by others.
    pub fn into_vec(self) -> Result<Vec<u8>, Buffer> {
        if self.region.handle != MemHandle::NONE || self.len != self.region.memory().len() {
            return Err(self);
        }
        let Buffer { region, start, len, doubtful } = self;
        let mut region = match Arc::try_unwrap(region) {
            Ok(region) => region,
            Err(region) => return Err(Buffer { region, start, len, doubtful }),
        };
        let memory = region.memory.take().expect("memory is there until taken here");
        memory.into_heap().map_err(Buffer::unregistered)
    }

    /// The memory of the whole region and where this buffer lies in it.
    pub(crate) fn place(&self) -> (&RawMemory, usize, usize) {
        (self.region.memory(), self.start, self.len)
    }

    pub(crate) fn ptr(&self) -> *mut u8 {
        self.region.memory().ptr().wrapping_add(self.start)
    }

    pub(crate) fn raw_segment(&self, range: Range<usize>) -> RawSegment {
        assert!(range.start <= range.end && range.end <= self.len, "segment outside the buffer");
        let len = u32::try_from(range.end - range.start).expect("a segment has less than 4 GiB");
        RawSegment { addr: self.ptr().wrapping_add(range.start), len, handle: self.region.handle }
    }

    /// A receive into it did not succeed.
    pub(crate) fn doubt(&mut self) {
        self.doubtful = true;
    }

    /// Whether safe code may look at the bytes as a slice: no peer has rights to them, nor a reason to write them.
    #[inline]
    pub(crate) fn gives_slices(&self) -> bool {
        !self.doubtful && self.region.slices.give()
    }

    /// Whether the region was registered with the NIC that has this list.
    pub(crate) fn belongs_to(&self, retired: &Arc<Retired>) -> bool {
        self.region.retired.as_ref().is_some_and(|ours| Arc::ptr_eq(ours, retired))
    }

    /// Takes the region's memory out if this is its only buffer.
    pub(crate) fn into_memory(self) -> Result<(MemHandle, RawMemory), Buffer> {
        let Buffer { region, start, len, doubtful } = self;
        match Arc::try_unwrap(region) {
            Ok(mut r) => Ok((r.handle, r.memory.take().expect("memory is there until taken here"))),
            Err(region) => Err(Buffer { region, start, len, doubtful }),
        }
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        assert!(offset <= self.len && len <= self.len - offset, "range outside the buffer");
    }
}

/// Heap memory for implicit registration: send and receive anywhere, without telling the NIC first.
impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer::unregistered(RawMemory::from_heap(bytes))
    }
}

/// Bytes that several sends share without copies of them: read only, registered on demand.
impl From<Arc<[u8]>> for Buffer {
    fn from(bytes: Arc<[u8]>) -> Buffer {
        Buffer::unregistered(RawMemory::from_arc(bytes))
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes of region {:#x})", self.len, self.region.handle.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_share_the_region_and_give_it_back() {
        let buffer = Buffer::from((0u8..100).collect::<Vec<_>>());
        let (mut a, b) = buffer.split_at(30);
        assert_eq!((a.len(), b.len()), (30, 70));
        a.write(0, &[9; 30]);
        assert_eq!(b.to_vec(2), [30, 31]);
        let b = b.into_vec().unwrap_err();
        drop(b);
        assert!(a.into_vec().is_err(), "a piece is not the whole region");
        assert_eq!(Buffer::from(vec![1, 2]).into_vec().unwrap(), [1, 2]);
    }

    #[test]
    fn slices_are_of_memory_that_peers_cannot_reach() {
        let mut buffer = Buffer::from(vec![1, 2, 3, 4]);
        buffer.slice_mut().unwrap()[1] = 9;
        let (a, mut b) = buffer.split_at(2);
        assert_eq!((a.slice(), b.slice()), (Some(&[1, 9][..]), Some(&[3, 4][..])));
        b.doubt();
        assert!(b.slice().is_none() && b.slice_mut().is_none() && a.slice().is_some());
    }

    #[test]
    fn shared_bytes_are_sent_and_not_written() {
        let bytes: Arc<[u8]> = Arc::from(&b"shared"[..]);
        let mut one = Buffer::from(bytes.clone());
        let two = Buffer::from(bytes.clone());
        assert_eq!((one.to_vec(6), two.slice().unwrap()), (b"shared".to_vec(), &bytes[..]));
        assert!(one.slice_mut().is_none() && one.is_lent());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| one.write(0, b"x"))).is_err());
        drop((one, two));
        assert_eq!(Arc::strong_count(&bytes), 1);
    }

    #[test]
    #[should_panic(expected = "outside the buffer")]
    fn reading_past_a_piece_panics() {
        let (a, _b) = Buffer::from(vec![0; 16]).split_at(8);
        a.read(4, &mut [0; 8]);
    }
}
