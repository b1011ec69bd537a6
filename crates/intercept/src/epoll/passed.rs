//! Sets that leave this process: in a message, or over exec.

use std::sync::atomic::Ordering;

use viaduct_os::bare::{files, whoami};

use super::node::{self, GONE, node};
use super::{LOCK, set, used_sets};
use crate::table::{self, Kind};
use crate::{descriptors, endpoint};

/// Others get this set, by a message or over exec: bells of ours would be reported there as what they are. What is registered with it
/// is the kernel's alone from now on, and so is what is added.
pub fn part_with(fd: i32) {
    let Kind::Epoll(index) = table::kind(fd) else { return };
    // A set that a parent made may hold bells of the parent's, which goes on with it.
    if set(index).inherited.load(Ordering::Relaxed) != 0 || whoami::borrows_memory() {
        return;
    }
    for number in 0..node::used() {
        let member = || {
            let held = LOCK.lock();
            let node = node(number);
            (held.is_some() && node.set() == index && !node.has(GONE)).then(|| node.fd())
        };
        if let Some(member) = member() {
            let _ = descriptors::keep_plain(member, "registered with a set of epoll that others got");
        }
    }
    set(index).passed.store(1, Ordering::Relaxed);
}

/// As [`part_with`], for all sets that exec leaves open.
pub fn part_with_kept() {
    if endpoint::any() || table::unclaimed().next().is_some() {
        for set in used_sets().filter(|set| set.refs.load(Ordering::Relaxed) > 0) {
            let fd = set.fd.load(Ordering::Relaxed);
            if files::is_closed_by_exec(fd) == Some(false) {
                part_with(fd);
            }
        }
    }
}
