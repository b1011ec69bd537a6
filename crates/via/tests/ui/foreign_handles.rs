//! Handles of different things are different types.

use viaduct_via::{Cq, Nic, Vi};

fn mix(nic: &mut Nic, vi: Vi, cq: Cq) {
    let _ = nic.poll_cq(vi);
    let _ = nic.poll_recv(cq);
}

fn main() {}
