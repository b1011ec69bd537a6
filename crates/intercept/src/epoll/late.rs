//! Changes of registrations that the kernel need not hear of yet.
//!
//! Many event loops register a connection for what they want next: for room, then for bytes, several calls of epoll_ctl
//! for each message. Of a connection with rings the kernel's part of a registration counts only when the kernel is asked.
//! Changes are therefore noted here and made just before that; most have been taken back by then.
//!
//! Late are changes of registrations that the kernel has already, of connections that use their rings both ways, for levels (a
//! change of one for edges or for one event makes the kernel report again), while no thread sleeps in the set and no other set or process waits for it. All else is
//! done at once. What was deleted late stays in the table, [`GONE`], with its bell in the set.

use std::sync::atomic::Ordering;

use viaduct_os::bare::{Errno, whoami};

use crate::endpoint::slot;
use crate::{receive, send};

use super::asked::renew;
use super::node::{FIRED, GONE, LISTED, Node, node};
use super::{LATE, Set, change, cool, drop_node, set, warm};

/// Registrations of these kinds are never changed late.
const SPECIAL: u32 = (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLEXCLUSIVE | libc::EPOLLWAKEUP) as u32;

/// Does `epoll_ctl` for a registration that is noted, if that can be done late. `None`: the caller asks the kernel. The lock is
/// held.
pub(super) fn control(
    index: u32,
    number: u32,
    node: &Node,
    operation: i32,
    event: Option<libc::epoll_event>,
) -> Option<Result<(), Errno>> {
    let set = set(index);
    let slot = slot(node.endpoint()?);
    let by_rings = send::goes_by_ring(slot) && receive::comes_by_ring(slot);
    let kept_apart = [&set.sleepers, &set.nested, &set.inherited, &set.stale];
    let special = (node.events() | event.map_or(0, |event| event.events)) & SPECIAL != 0;
    if !by_rings
        || special
        || node.has(FIRED)
        || kept_apart.iter().any(|word| word.load(Ordering::Acquire) != 0)
    {
        return None;
    }
    match (operation, event) {
        (libc::EPOLL_CTL_ADD, _) if !node.has(GONE) => return Some(Err(Errno(libc::EEXIST))),
        (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, _) if node.has(GONE) => {
            return Some(Err(Errno(libc::ENOENT)));
        }
        (libc::EPOLL_CTL_DEL, _) if list(set, number, node) => {
            cool(number, node);
            node.disarm();
            node.raise(GONE);
        }
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, Some(event)) if list(set, number, node) => {
            node.lower(GONE);
            node.ask(event);
            warm(number, node);
        }
        _ => return None,
    }
    Some(Ok(()))
}

/// Puts a registration on the list of those that the kernel may have to hear of. False if the list is full.
fn list(set: &Set, number: u32, node: &Node) -> bool {
    if node.has(LISTED) {
        return true;
    }
    let len = set.late_len.load(Ordering::Relaxed) as usize;
    if len < LATE {
        set.late[len].store(number, Ordering::Relaxed);
        set.late_len.store(len as u32 + 1, Ordering::Release);
        node.raise(LISTED);
    }
    len < LATE
}

/// Makes the changes that were put off. The lock is held.
pub(super) fn settle(index: u32) {
    let set = set(index);
    // Each stays on the list until it is done: this thread may leave by a jump in between.
    while let Some(last) = set.late_len.load(Ordering::Acquire).checked_sub(1) {
        let number = set.late[last as usize % LATE].load(Ordering::Relaxed);
        let node = node(number);
        // Not a place that was given back, and perhaps taken again, since it was listed.
        if node.set() == index && node.has(LISTED) {
            match node.endpoint() {
                _ if node.has(GONE) => part(number, node),
                Some(endpoint) => renew(node, endpoint),
                None => {}
            }
            node.lower(LISTED);
        }
        set.late_len.store(last, Ordering::Release);
    }
}

/// Drops a registration whose descriptor is still open; from the kernel's set, too, if the application has deleted it.
pub(super) fn part(number: u32, node: &Node) {
    if node.has(GONE) {
        change(set(node.set()), libc::EPOLL_CTL_DEL, node.fd(), None);
    }
    drop_node(number, node);
}

/// Makes all changes that were put off, in all sets: others are about to get these.
pub fn settle_all() {
    let late = |set: &&Set| set.late_len.load(Ordering::Acquire) != 0;
    // A child that borrows its parent's memory has the parent's sets, and lets the parent go on with them.
    if super::used_sets().any(|set| late(&set))
        && !whoami::borrows_memory()
        && let Some(_held) = super::LOCK.lock()
    {
        (0..super::used_sets().count() as u32).for_each(settle);
    }
}
