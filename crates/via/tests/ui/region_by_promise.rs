//! A region is made of an address behind `unsafe` alone.

use viaduct_via::{MemAttributes, RegionInfo};

fn everything(attributes: MemAttributes) -> RegionInfo {
    RegionInfo::new(0, u64::MAX, attributes, None) //~ E0133
}

fn main() {}
