//! The directory: which regions a NIC has registered, for its peers to read.
//!
//! Heir of Berkeley VIA's translation table. It is mapped read only by peers and grows by segments, each as large as
//! all before it, so that the number of regions is bounded by the host's memory and nothing else. An entry is written
//! under a sequence number; a reader that meets a change reads again.

use std::sync::Arc;

use viaduct_os::budget::Budget;
use viaduct_os::point::point;
use viaduct_os::segment::Segment;
use viaduct_via::{Error, MemHandle, RegionInfo};

use super::shared::Entries;
use super::sync::{AtomicU32, AtomicU64, Ordering, fence, spin_loop};
use crate::parties::tag_number;

/// Entries of the first segment.
const FIRST: u32 = 1024;
/// Segments at most: 1,024 entries doubled ten times make the 2^20 a handle can name.
pub(crate) const CHUNKS: usize = 11;

const WRITE: u32 = 1;
const READ: u32 = 2;
const SHARED: u32 = 4;

/// A region as peers see it.
#[repr(C, align(64))]
pub(crate) struct Entry {
    /// Odd while the entry is being written.
    version: AtomicU32,
    /// The handle, or 0.
    handle: AtomicU32,
    flags: AtomicU32,
    slab: AtomicU32,
    offset: AtomicU64,
    base: AtomicU64,
    len: AtomicU64,
    tag: AtomicU64,
}

/// What a reader learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) base: u64,
    pub(crate) len: u64,
    pub(crate) write: bool,
    pub(crate) read: bool,
    pub(crate) tag: u64,
    /// Slab and offset of the first byte, if the region is shareable.
    pub(crate) place: Option<(u32, u64)>,
}

impl Found {
    /// Whether `addr..addr+len` lies inside.
    pub(crate) fn contains(&self, addr: u64, len: u64) -> bool {
        addr >= self.base && len <= self.len && addr - self.base <= self.len - len
    }
}

/// Which segment holds an entry, and where in it.
pub(crate) fn chunk_of(index: u32) -> (usize, usize) {
    if index < FIRST {
        return (0, index as usize);
    }
    let chunk = (index / FIRST).ilog2() as usize + 1;
    (chunk, (index - (FIRST << (chunk - 1))) as usize)
}

/// Bytes of a segment of the directory.
pub(crate) fn chunk_len(chunk: usize) -> usize {
    (if chunk == 0 { FIRST } else { FIRST << (chunk - 1) }) as usize * size_of::<Entry>()
}

/// The directory of our own NIC.
pub(crate) struct Directory {
    chunks: Vec<(Arc<Segment>, Entries)>,
    budget: Budget,
}

impl Directory {
    pub(crate) fn new(budget: Budget) -> Result<Directory, Error> {
        let mut d = Directory { chunks: Vec::new(), budget };
        d.grow()?;
        Ok(d)
    }

    /// The segment with this number, for a peer that asks.
    pub(crate) fn chunk(&self, n: usize) -> Option<&Arc<Segment>> {
        self.chunks.get(n).map(|(segment, _)| segment)
    }

    /// Whether a peer may be in the middle of something that it is no longer allowed.
    pub(crate) fn publish(&mut self, handle: MemHandle, region: &RegionInfo) -> Result<bool, Error> {
        let (chunk, at) = chunk_of(handle.index());
        while self.chunks.len() <= chunk {
            self.grow()?;
        }
        let a = region.attributes();
        let mut flags = 0;
        flags |= if a.rdma_write { WRITE } else { 0 };
        flags |= if a.rdma_read { READ } else { 0 };
        flags |= if region.locator().is_some() { SHARED } else { 0 };
        let before = self.rights(handle);
        self.chunks[chunk].1[at].change(|e| {
            e.handle.store(handle.number(), Ordering::Relaxed);
            e.flags.store(flags, Ordering::Relaxed);
            e.slab.store(region.locator().map_or(0, |l| l.slab), Ordering::Relaxed);
            e.offset.store(region.locator().map_or(0, |l| l.offset), Ordering::Relaxed);
            e.base.store(region.base(), Ordering::Relaxed);
            e.len.store(region.len(), Ordering::Relaxed);
            e.tag.store(tag_number(a.ptag), Ordering::Relaxed);
        });
        Ok(before)
    }

    /// Whether a peer may be in the middle of something that it is no longer allowed.
    pub(crate) fn withdraw(&mut self, handle: MemHandle) -> bool {
        let (chunk, at) = chunk_of(handle.index());
        let before = self.rights(handle);
        if let Some((_, entries)) = self.chunks.get(chunk) {
            entries[at].change(|e| e.handle.store(0, Ordering::Relaxed));
        }
        before
    }

    /// Whether peers have had any right to this region since it was published or last changed.
    fn rights(&self, handle: MemHandle) -> bool {
        self.find(handle).is_some_and(|found| found.write || found.read)
    }

    pub(crate) fn find(&self, handle: MemHandle) -> Option<Found> {
        let (chunk, at) = chunk_of(handle.index());
        self.chunks.get(chunk)?.1.get(at)?.read(handle)
    }

    fn grow(&mut self) -> Result<(), Error> {
        let len = chunk_len(self.chunks.len());
        let segment = Arc::new(Segment::create_read_only_for_peers("viaduct-directory", len, &self.budget)?);
        let entries = Entries::of(&segment);
        self.chunks.push((segment, entries));
        Ok(())
    }
}

impl Entry {
    /// An entry that was never written to.
    #[cfg(all(test, loom))]
    pub(crate) fn fresh() -> Entry {
        let [version, handle, flags, slab] = std::array::from_fn(|_| AtomicU32::new(0));
        let [offset, base, len, tag] = std::array::from_fn(|_| AtomicU64::new(0));
        Entry { version, handle, flags, slab, offset, base, len, tag }
    }

    fn change(&self, f: impl FnOnce(&Entry)) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Release fence: a reader that sees a changed field also sees the odd version.
        fence(Ordering::Release);
        point("directory.odd");
        f(self);
        point("directory.changed");
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// The region, if it is the one named. A handful of tries: an owner that never stops writing gets no RDMA.
    pub(crate) fn read(&self, handle: MemHandle) -> Option<Found> {
        for _ in 0..64 {
            let before = self.version.load(Ordering::Acquire);
            let flags = self.flags.load(Ordering::Relaxed);
            let place = (self.slab.load(Ordering::Relaxed), self.offset.load(Ordering::Relaxed));
            let found = Found {
                base: self.base.load(Ordering::Relaxed),
                len: self.len.load(Ordering::Relaxed),
                write: flags & WRITE != 0,
                read: flags & READ != 0,
                tag: self.tag.load(Ordering::Relaxed),
                place: (flags & SHARED != 0).then_some(place),
            };
            let named = self.handle.load(Ordering::Relaxed) == handle.number();
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before {
                return named.then_some(found);
            }
            spin_loop();
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_every_index_once() {
        let mut expected = (0, 0);
        for index in 0..FIRST * 9 {
            assert_eq!(chunk_of(index), expected, "{index}");
            expected.1 += 1;
            if expected.1 * size_of::<Entry>() == chunk_len(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(chunk_of((1 << 20) - 1).0, CHUNKS - 1);
        assert_eq!(size_of::<Entry>(), 64);
    }
}
