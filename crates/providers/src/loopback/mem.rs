//! Memory of the loopback provider: the regions each NIC has registered. The bytes are of the heap (`heap.rs`).

use viaduct_via::{MemHandle, RegionInfo};

use super::nic::Loopback;

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
