//! Where a descriptor points is not changed behind the model's back.

use viaduct_via::Work;

fn point_elsewhere(work: &mut Work) {
    work.segments[0].addr = std::ptr::null_mut(); //~ E0616
}

fn main() {}
