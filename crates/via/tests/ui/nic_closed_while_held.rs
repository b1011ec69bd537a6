//! A NIC cannot be closed while something borrowed from it is in use.

use viaduct_via::Nic;

fn poll_a_dead_descriptor(nic: Nic) -> bool {
    let fd = nic.fd().unwrap();
    drop(nic); //~ E0505
    std::os::fd::AsRawFd::as_raw_fd(&fd) >= 0
}

fn main() {}
