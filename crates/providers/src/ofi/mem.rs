//! Memory of the ofi provider: the heap, and the regions that peers may work on.
//!
//! Peers reach a region through messages that this process carries out, so nothing is registered with libfabric; the
//! table of regions is what is looked up for each of them.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::sync::Arc;

use viaduct_via::provider::SharedMemory;
use viaduct_via::raw::RawMemory;
use viaduct_via::{Error, MemHandle, Op, RegionInfo, RemoteAttributes};

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

/// Fresh memory.
pub(super) fn allocate(len: usize) -> Result<SharedMemory, Error> {
    let too_much = || Error::Limit { what: "bytes in a region", limit: isize::MAX as u64 };
    let layout = Layout::from_size_align(len.max(1), LINE).map_err(|_| too_much())?;
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

/// The regions of one NIC.
#[derive(Default)]
pub(super) struct Regions(HashMap<u32, RegionInfo>);

impl Regions {
    pub(super) fn publish(&mut self, handle: MemHandle, region: &RegionInfo) {
        self.0.insert(handle.number(), *region);
    }

    pub(super) fn withdraw(&mut self, handle: MemHandle) {
        self.0.remove(&handle.number());
    }

    /// Whether the peer of a VI like `ours` may do this to these bytes.
    pub(super) fn allow(&self, op: Op, handle: u32, address: u64, len: u64, ours: &RemoteAttributes) -> bool {
        let Some(region) = self.0.get(&handle) else { return false };
        let (write, read) = (
            region.attributes().rdma_write && ours.rdma_write,
            region.attributes().rdma_read && ours.rdma_read,
        );
        let rights = match op {
            Op::RdmaWrite => write,
            Op::RdmaRead => read,
            Op::CompareSwap | Op::FetchAdd => write && read && len == 8 && address.is_multiple_of(8),
            _ => false,
        };
        rights && region.attributes().ptag.goes_with(ours.ptag) && region.contains(address, len)
    }
}
