//! Memory that a descriptor does not own is named behind `unsafe` alone.

use viaduct_via::{Descriptor, MemHandle};

fn point_anywhere(descriptor: Descriptor) -> Descriptor {
    descriptor.raw_segment(0x1000 as *mut u8, 8, MemHandle::NONE) //~ E0133
}

fn main() {}
