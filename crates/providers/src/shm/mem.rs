//! Directly shareable memory: an allocator over slabs, each one sealed segment.
//!
//! Blocks are cut from slabs first fit and joined again when freed; a large block has a slab of its own. Slab numbers
//! are never used twice, so a peer that kept a number cannot reach what came later. In a forked child the slabs become
//! private copies: the parent's transfers use the parent's pages (SOVIA, section 3.5.1).
//!
//! A segment of the program's own is a slab from which nothing is cut, for as long as a region lies in it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use viaduct_os::budget::Budget;
use viaduct_os::fork;
use viaduct_os::point::point;
use viaduct_os::segment::Segment;
use viaduct_via::Error;
use viaduct_via::provider::SharedMemory;
use viaduct_via::raw::{Locator, RawMemory};

use crate::heap::part_of;

/// Smallest slab.
const SLAB_MIN: usize = 256 << 10;
/// Largest slab that is shared by blocks.
const SLAB_MAX: usize = 16 << 20;
const PAGE: usize = 4096;
const LINE: usize = 64;

/// The allocator of one NIC.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    budget: Budget,
    generation: u32,
}

struct State {
    slabs: BTreeMap<u32, Slab>,
    next: u32,
    total: usize,
}

struct Slab {
    segment: Arc<Segment>,
    /// Free ranges: offset to length.
    free: BTreeMap<usize, usize>,
    use_of: Use,
}

/// What a slab is there for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Blocks are cut from it.
    Blocks,
    /// Nothing but bounce buffers of one pair is in it, and that pair's peer alone is given it.
    Bounces,
    /// It is the program's, and so many regions lie in it.
    Program(usize),
}

/// A slab of the program's in use; let go when dropped.
struct Share {
    memory: Memory,
    slab: u32,
}

/// A block in use; freed when dropped.
struct Block {
    memory: Memory,
    slab: u32,
    offset: usize,
    len: usize,
}

impl Memory {
    pub(crate) fn new(budget: Budget) -> Memory {
        let state = Mutex::new(State { slabs: BTreeMap::new(), next: 1, total: 0 });
        Memory(Arc::new(Inner { state, budget, generation: fork::generation() }))
    }

    /// Cuts a block; blocks of a page or more start at a page, smaller ones at a cache line, all at a multiple of `align`.
    pub(crate) fn allocate(&self, len: usize, align: usize) -> Result<SharedMemory, Error> {
        let unit = if len >= PAGE { PAGE } else { LINE };
        let (rounded, align) = (len.next_multiple_of(unit), align.max(unit));
        point("alloc.begin");
        let mut state = self.lock();
        if rounded < SLAB_MAX / 2 {
            let found = state
                .slabs
                .iter_mut()
                .filter(|(_, s)| s.use_of == Use::Blocks)
                .find_map(|(id, slab)| slab.cut(rounded, align).map(|offset| (*id, offset)));
            if let Some((id, offset)) = found {
                return Ok(self.block(&state, id, offset, rounded, len));
            }
        }
        let size = if rounded < SLAB_MAX / 2 {
            (state.total.next_power_of_two() / 4).clamp(SLAB_MIN, SLAB_MAX).max(rounded.next_power_of_two())
        } else {
            rounded
        };
        // A segment starts at a page: what has to lie at a larger border may begin that much later.
        let size = if align > PAGE { size.max(rounded + align) } else { size };
        let id = self.add_slab(&mut state, size, Use::Blocks)?;
        let slab = state.slabs.get_mut(&id).expect("just added");
        let offset = slab.cut(rounded, align).expect("a fresh slab holds what it was made for");
        Ok(self.block(&state, id, offset, rounded, len))
    }

    /// A slab for the bounce buffers of one pair, with its segment.
    pub(crate) fn allocate_bounces(&self, len: usize) -> Result<(SharedMemory, Arc<Segment>), Error> {
        let mut state = self.lock();
        let id = self.add_slab(&mut state, len, Use::Bounces)?;
        let slab = state.slabs.get_mut(&id).expect("just added");
        let offset = slab.cut(len, PAGE).expect("a fresh slab holds what it was made for");
        let segment = slab.segment.clone();
        Ok((self.block(&state, id, offset, len, len), segment))
    }

    /// The segment behind a slab of user memory, for a peer in direct mode that asks.
    pub(crate) fn segment(&self, slab: u32) -> Option<Arc<Segment>> {
        let state = self.lock();
        let slab = state.slabs.get(&slab)?;
        (slab.use_of != Use::Bounces).then(|| slab.segment.clone())
    }

    /// Makes a slab of the program's segment, or finds the one that it is already, for one region more.
    pub(crate) fn share(&self, segment: &Arc<Segment>, range: Range<usize>) -> Result<SharedMemory, Error> {
        let mut state = self.lock();
        let known = state.slabs.iter_mut().find_map(|(id, slab)| match &mut slab.use_of {
            Use::Program(regions) if Arc::ptr_eq(&slab.segment, segment) => {
                *regions += 1;
                Some(*id)
            }
            _ => None,
        });
        let slab = match known {
            Some(id) => id,
            None => {
                let free = BTreeMap::new();
                state.add(Slab { segment: segment.clone(), free, use_of: Use::Program(1) })?
            }
        };
        drop(state);
        point("share.slab");
        let locator = Some(Locator { slab, offset: range.start as u64 });
        let owner = Arc::new(Share { memory: self.clone(), slab });
        Ok(SharedMemory { memory: part_of(segment, range, owner), locator })
    }

    fn add_slab(&self, state: &mut State, size: usize, use_of: Use) -> Result<u32, Error> {
        let segment = Segment::create("viaduct-slab", size, &self.0.budget)?;
        segment.private_in_child()?;
        point("alloc.slab");
        let (len, free) = (segment.len(), BTreeMap::from([(0, segment.len())]));
        let id = state.add(Slab { segment: Arc::new(segment), free, use_of })?;
        state.total += len;
        Ok(id)
    }

    fn block(&self, state: &State, slab: u32, offset: usize, rounded: usize, len: usize) -> SharedMemory {
        let segment = state.slabs[&slab].segment.clone();
        let ptr = segment.as_ptr().wrapping_add(offset);
        let block = Arc::new((Block { memory: self.clone(), slab, offset, len: rounded }, segment));
        // SAFETY: the block is inside the segment, which its owner keeps mapped, and is in no other block.
        let memory = unsafe { RawMemory::from_shared(ptr, len, block) };
        SharedMemory { memory, locator: Some(Locator { slab, offset: offset as u64 }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl State {
    /// Takes a slab in; its number.
    fn add(&mut self, slab: Slab) -> Result<u32, Error> {
        let id = self.next;
        self.next = id.checked_add(1).ok_or(Error::Limit { what: "slabs", limit: u64::from(u32::MAX) })?;
        self.slabs.insert(id, slab);
        Ok(id)
    }
}

impl Slab {
    fn cut(&mut self, len: usize, align: usize) -> Option<usize> {
        let base = self.segment.as_ptr() as usize;
        let skip = |offset: usize| (base + offset).next_multiple_of(align) - (base + offset);
        let (offset, size) = self
            .free
            .iter()
            .map(|(o, s)| (*o, *s))
            .find(|(offset, size)| size.checked_sub(skip(*offset)).is_some_and(|left| left >= len))?;
        let start = offset + skip(offset);
        self.free.remove(&offset);
        if start > offset {
            self.free.insert(offset, start - offset);
        }
        let end = start + len;
        if offset + size > end {
            self.free.insert(end, offset + size - end);
        }
        Some(start)
    }

    fn join(&mut self, offset: usize, len: usize) {
        let (mut offset, mut len) = (offset, len);
        if let Some((before, size)) = self.free.range(..offset).next_back().map(|(o, s)| (*o, *s))
            && before + size == offset
        {
            self.free.remove(&before);
            (offset, len) = (before, size + len);
        }
        if let Some(after) = self.free.remove(&(offset + len)) {
            len += after;
        }
        self.free.insert(offset, len);
    }

    fn is_empty(&self) -> bool {
        self.free.get(&0) == Some(&self.segment.len())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // A forked child must not wait for a lock that a thread of its parent held.
        if fork::generation() != self.memory.0.generation {
            return;
        }
        let mut state = self.memory.lock();
        let Some(slab) = state.slabs.get_mut(&self.slab) else { return };
        slab.join(self.offset, self.len);
        point("free.joined");
        if slab.is_empty() {
            let gone = state.slabs.remove(&self.slab).expect("found above");
            state.total -= gone.segment.len();
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // As for a block.
        if fork::generation() != self.memory.0.generation {
            return;
        }
        let mut state = self.memory.lock();
        if let Some(Slab { use_of: Use::Program(regions), .. }) = state.slabs.get_mut(&self.slab) {
            *regions -= 1;
            if *regions == 0 {
                let gone = state.slabs.remove(&self.slab);
                drop(state);
                drop(gone); // may be the last that keeps the mapping
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn blocks_do_not_overlap_and_memory_comes_back() {
        let budget = Budget::new(64 << 20);
        let memory = Memory::new(budget.clone());
        let mut blocks = Vec::new();
        let mut seed = 12345u64;
        for round in 0..400 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            let len = 1 + (seed >> 33) as usize % if round % 9 == 0 { 3_000_000 } else { 9_000 };
            if round % 3 == 2 {
                blocks.swap_remove((seed >> 40) as usize % blocks.len());
            }
            let align = if round % 7 == 0 { 1 << ((seed >> 50) % 22) } else { 0 };
            if let Ok(block) = memory.allocate(len, align) {
                assert!(align == 0 || (block.memory.ptr() as usize).is_multiple_of(align), "{align}");
                blocks.push(block);
            }
        }
        let mut ranges: Vec<(usize, usize)> = blocks
            .iter()
            .map(|b| (b.memory.ptr() as usize, b.memory.ptr() as usize + b.memory.len()))
            .collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|w| w[0].1 <= w[1].0), "blocks overlap");
        for b in &blocks {
            let at = b.locator.unwrap();
            let segment = memory.segment(at.slab).unwrap();
            assert_eq!(segment.as_ptr() as u64 + at.offset, b.memory.ptr() as u64);
        }
        drop(blocks);
        assert_eq!(budget.used(), 0, "every slab is given back");
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn bounce_buffers_have_a_slab_that_is_not_handed_out_on_request() {
        let memory = Memory::new(Budget::new(2 << 20));
        let (bounces, segment) = memory.allocate_bounces(4096).unwrap();
        let user = memory.allocate(4096, 0).unwrap();
        let (at, users) = (bounces.locator.unwrap(), user.locator.unwrap());
        assert_ne!(at.slab, users.slab);
        assert!(memory.segment(at.slab).is_none() && memory.segment(users.slab).is_some());
        assert_eq!(segment.as_ptr() as u64 + at.offset, bounces.memory.ptr() as u64);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn the_budget_is_kept() {
        let memory = Memory::new(Budget::new(1 << 20));
        assert!(matches!(
            memory.allocate(2 << 20, 0),
            Err(Error::Os(viaduct_os::error::OsError::Budget { .. }))
        ));
        assert!(memory.allocate(512 << 10, 0).is_ok());
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn a_segment_of_the_program_is_one_slab_until_its_last_region_goes() {
        let memory = Memory::new(Budget::new(1 << 20));
        let segment = Arc::new(Segment::create_sparse("viaduct-test", 1 << 30).unwrap());
        let first = memory.share(&segment, 4096..8192).unwrap();
        let second = memory.share(&segment, 0..1 << 30).unwrap();
        let at = first.locator.unwrap();
        assert_eq!((at.offset, second.locator.unwrap()), (4096, Locator { slab: at.slab, offset: 0 }));
        assert_eq!(first.memory.ptr(), segment.as_ptr().wrapping_add(4096));
        assert!(memory.segment(at.slab).is_some_and(|s| Arc::ptr_eq(&s, &segment)));
        drop(first);
        assert!(memory.segment(at.slab).is_some());
        drop(second);
        assert!(memory.segment(at.slab).is_none());
        assert_eq!(Arc::strong_count(&segment), 1);
        let again = memory.share(&segment, 0..1).unwrap();
        assert_ne!(again.locator.unwrap().slab, at.slab, "no number is used twice");
        assert!(memory.allocate(64, 0).unwrap().locator.unwrap().slab != again.locator.unwrap().slab);
    }
}
