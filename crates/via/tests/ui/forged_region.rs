//! What a provider lets peers reach is described by the model alone: safe code cannot make it up.

use viaduct_via::provider::Provider;
use viaduct_via::{MemAttributes, MemHandle, RegionInfo};

fn open_everything(provider: &mut dyn Provider, attributes: MemAttributes, mut region: RegionInfo) {
    region.base = 0; //~ E0616
    region.len = u64::MAX; //~ E0616
    let _ = provider.publish(MemHandle::NONE, &region);
}

fn main() {}
