//! A NIC is used by one thread at a time; threads that share one use a SharedNic.

use viaduct_via::{Nic, Vi};

fn poll_from_two(nic: &mut Nic, one: Vi, two: Vi) {
    std::thread::scope(|scope| {
        scope.spawn(|| nic.poll_recv(one));
        scope.spawn(|| nic.poll_recv(two)); //~ E0499
    });
}

fn main() {}
