//! Posted memory cannot be taken back from the NIC.

use viaduct_via::{Buffer, Descriptor, Nic, Vi};

fn receive_into_nothing(nic: &mut Nic, vi: Vi, buffer: Buffer) {
    nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
    let _ = nic.deregister(buffer); //~ E0382
}

fn main() {}
