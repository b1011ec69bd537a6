//! The buffers of a descriptor cannot be exchanged behind the back of its segments.

use viaduct_via::{Buffer, Descriptor};

fn exchange(descriptor: &mut Descriptor, other: &mut Buffer) {
    std::mem::swap(&mut descriptor.buffers()[0], other); //~ E0596
}

fn main() {}
