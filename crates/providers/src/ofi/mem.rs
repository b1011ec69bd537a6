//! Memory of the ofi provider: the regions that peers may work on. The bytes are of the heap (`heap.rs`).
//!
//! Peers reach a region through messages that this process carries out, so nothing is registered with libfabric; the
//! table of regions is what is looked up for each of them.

use std::collections::HashMap;

use viaduct_via::{MemHandle, Op, RegionInfo, RemoteAttributes};

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
