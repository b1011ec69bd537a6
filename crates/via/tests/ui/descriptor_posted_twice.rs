//! A descriptor is posted once at a time.

use viaduct_via::{Descriptor, Nic, Vi};

fn send_twice(nic: &mut Nic, vi: Vi, descriptor: Descriptor) {
    nic.post_send(vi, descriptor).unwrap();
    nic.post_send(vi, descriptor).unwrap(); //~ E0382
}

fn main() {}
