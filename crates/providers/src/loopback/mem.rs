//! Memory of the loopback provider: the heap, and the regions each NIC has registered.

use viaduct_via::provider::SharedMemory;
use viaduct_via::raw::RawMemory;
use viaduct_via::{Error, MemHandle, RegionInfo};

use super::nic::Loopback;

/// Heap memory aligned to 64 bytes would need an allocator of its own; words of 8 bytes are what atomics need.
pub(super) fn allocate(len: usize) -> Result<SharedMemory, Error> {
    let words: Vec<u64> = vec![0; len.div_ceil(8)];
    let words: std::sync::Arc<Box<[u64]>> = std::sync::Arc::new(words.into_boxed_slice());
    let ptr = words.as_ptr().cast_mut().cast::<u8>();
    // SAFETY: the boxed words live as long as the Arc, hold at least len bytes and are used by no other code.
    let memory = unsafe { RawMemory::from_shared(ptr, len, words) };
    Ok(SharedMemory { memory, locator: None })
}

impl Loopback {
    pub(super) fn publish_region(&self, handle: MemHandle, region: &RegionInfo) {
        if let Some(nic) = self.hub.lock().nics.get_mut(&self.id) {
            nic.regions.insert(handle.number(), *region);
        }
    }

    /// RDMA works under the hub's lock, so no peer is in the region once it is out of the table.
    pub(super) fn withdraw_region(&self, handle: MemHandle) {
        if let Some(nic) = self.hub.lock().nics.get_mut(&self.id) {
            nic.regions.remove(&handle.number());
        }
    }
}
