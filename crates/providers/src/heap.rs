//! Memory for providers whose peers map none of it: aligned blocks of the heap, and segments of the program's as they are.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use viaduct_os::segment::Segment;
use viaduct_via::Error;
use viaduct_via::provider::SharedMemory;
use viaduct_via::raw::RawMemory;

/// A line of the cache: no two buffers share one, and words in them are aligned.
const LINE: usize = 64;

struct Block {
    memory: *mut u8,
    layout: Layout,
}

// SAFETY: only frees the memory.
unsafe impl Send for Block {}
// SAFETY: has nothing to be called.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: made with this layout, and freed once.
        unsafe { dealloc(self.memory, self.layout) };
    }
}

/// Fresh memory, at a cache line or at a multiple of `align`.
pub(crate) fn allocate(len: usize, align: usize) -> Result<SharedMemory, Error> {
    let too_much = || Error::Limit { what: "bytes in a region", limit: isize::MAX as u64 };
    let layout = Layout::from_size_align(len.max(1), align.max(LINE)).map_err(|_| too_much())?;
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        return Err(too_much());
    }
    let block = Arc::new(Block { memory, layout });
    // SAFETY: the block has at least len bytes, lives as long as the Arc and has no other user.
    let memory = unsafe { RawMemory::from_shared(memory, len, block) };
    Ok(SharedMemory { memory, locator: None })
}

/// Bytes of a segment, which no peer maps.
pub(crate) fn share(segment: &Arc<Segment>, range: Range<usize>) -> SharedMemory {
    SharedMemory { memory: part_of(segment, range, segment.clone()), locator: None }
}

/// Bytes of a segment as memory of a region. `owner` keeps the segment, or is it.
///
/// # Panics
/// If the range lies outside.
pub(crate) fn part_of(
    segment: &Arc<Segment>,
    range: Range<usize>,
    owner: Arc<dyn Any + Send + Sync>,
) -> RawMemory {
    assert!(range.start <= range.end && range.end <= segment.len(), "a range outside the segment");
    let ptr = segment.as_ptr().wrapping_add(range.start);
    let owner = Arc::new((owner, segment.clone()));
    // SAFETY: the range lies in the mapping, which the owner keeps; a segment gives out addresses and no references. The model
    // asks for one that is mapped for reading and writing.
    unsafe { RawMemory::from_shared(ptr, range.len(), owner) }
}
