//! What the kernel is asked for on account of a registration.
//!
//! While bytes go through the ring, the kernel is asked for the end of the peer's stream in the place of room (`ends`). It refuses
//! to watch for that with `EPOLLEXCLUSIVE`, and never changes a registration that has it: the kernel's part of such a one is
//! without it, and is made anew when the kernel is to have the room again. So all sets hear of this end, of which one would be
//! enough; as far as bells go, all of them always did.

use super::node::{FIRED, GONE, Node};
use super::{change, ends, set};
use crate::endpoint::slot;
use crate::send;

pub(super) const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// What the kernel takes in a registration with `EPOLLEXCLUSIVE`.
const MAY_BE_EXCLUSIVE: u32 = EXCLUSIVE
    | (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP | libc::EPOLLWAKEUP | libc::EPOLLET)
        as u32;

/// What the kernel watches the companion for, where the application asked for `events`.
pub(super) fn kernel_mask(endpoint: u32, events: u32) -> u32 {
    let room = (libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLWRBAND) as u32;
    let is_refused = events & EXCLUSIVE != 0 && events & !MAY_BE_EXCLUSIVE != 0;
    if events & room == 0 || is_refused || !send::goes_by_ring(slot(endpoint)) {
        return events;
    }
    events & !(room | EXCLUSIVE) | ends::NOTICE
}

/// Renews what the kernel watches the companion for, if that has changed.
pub(super) fn renew(node: &Node, endpoint: u32) {
    let mask = kernel_mask(endpoint, node.events());
    if (mask != node.kernel_mask() || node.data() != node.kernel_data()) && !node.has(FIRED | GONE) {
        node.set_kernel_mask(mask);
        node.set_kernel_data(node.data());
        replace(node, mask);
    }
}

/// Gives the kernel's part of a registration another mask.
pub(super) fn replace(node: &Node, mask: u32) {
    let (set, fd) = (set(node.set()), node.fd());
    let event = Some(libc::epoll_event { events: mask, u64: node.data() });
    if node.events() & EXCLUSIVE == 0 {
        change(set, libc::EPOLL_CTL_MOD, fd, event);
    } else {
        change(set, libc::EPOLL_CTL_DEL, fd, None);
        change(set, libc::EPOLL_CTL_ADD, fd, event);
    }
}
