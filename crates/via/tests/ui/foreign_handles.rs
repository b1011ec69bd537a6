//! Handles of different things are different types.

use viaduct_via::{Cq, Nic, Vi};

fn mix(nic: &mut Nic, vi: Vi, cq: Cq) {
    let _ = nic.poll_cq(vi); //~ E0308
    let _ = nic.poll_recv(cq); //~ E0308
}

fn main() {}
