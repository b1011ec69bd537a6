//! A connection request is answered once.

use viaduct_via::{ConnRequest, Nic, Vi};

fn accept_and_reject(nic: &mut Nic, vi: Vi, request: ConnRequest) {
    let _ = nic.accept(request, vi);
    let _ = nic.reject(request); //~ E0382
}

fn main() {}
