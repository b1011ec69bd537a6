//! A buffer that was posted is the NIC's until its descriptor comes back.

use viaduct_via::{Buffer, Descriptor, Nic, Vi};

fn send_and_scribble(nic: &mut Nic, vi: Vi, mut buffer: Buffer) {
    nic.post_send(vi, Descriptor::send(buffer)).unwrap();
    buffer.write(0, b"too late"); //~ E0382
}

fn main() {}
