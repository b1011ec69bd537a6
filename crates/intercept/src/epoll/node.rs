//! A registration of one descriptor with one set: what the application asked for, and how far we have come with it.
//!
//! Registrations form a list for each descriptor and one for each endpoint. The lock of the parent module guards them all.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::endpoint::slot;
use crate::table;
use crate::wait::{self, Want};

/// Registrations of one process that are looked after.
const MOST: usize = 1 << 15;
pub(super) const NONE: u32 = u32::MAX;

/// Counts as a sleeper for bytes.
pub(super) const ARMED_BYTES: u32 = 1;
/// Counts as a sleeper for room.
pub(super) const ARMED_ROOM: u32 = 2;
/// In its set's list of those that are looked at.
pub(super) const IS_HOT: u32 = 4;
/// A registration for one event that has come.
pub(super) const FIRED: u32 = 8;
/// Room is to be reported once.
pub(super) const EDGE: u32 = 16;
/// Bytes are to be reported even if no new ones came.
pub(super) const FRESH: u32 = 32;
/// Deleted by the application; the kernel has not heard of that yet.
pub(super) const GONE: u32 = 64;
/// In its set's list of those of which the kernel may have to hear.
pub(super) const LISTED: u32 = 128;

/// One registration.
#[derive(Debug)]
pub(super) struct Node {
    taken: AtomicU32,
    set: AtomicU32,
    fd: AtomicI32,
    endpoint: AtomicU32,
    events: AtomicU32,
    kernel_mask: AtomicU32,
    data: AtomicU64,
    kernel_data: AtomicU64,
    flags: AtomicU32,
    /// Up to where bytes were reported to a waiter for edges.
    seen: AtomicU64,
    /// The next of this descriptor, plus one.
    next_of_fd: AtomicU32,
    /// The next of this endpoint, plus one.
    next_of_endpoint: AtomicU32,
}

#[expect(clippy::declare_interior_mutable_const, reason = "the first value of each place of the table")]
const FREE: Node = Node {
    taken: AtomicU32::new(0),
    set: AtomicU32::new(NONE),
    fd: AtomicI32::new(-1),
    endpoint: AtomicU32::new(NONE),
    events: AtomicU32::new(0),
    kernel_mask: AtomicU32::new(0),
    data: AtomicU64::new(0),
    kernel_data: AtomicU64::new(0),
    flags: AtomicU32::new(0),
    seen: AtomicU64::new(0),
    next_of_fd: AtomicU32::new(0),
    next_of_endpoint: AtomicU32::new(0),
};

static NODES: [Node; MOST] = [FREE; MOST];
/// Registrations that were ever used: those beyond need not be looked at.
static USED: AtomicU32 = AtomicU32::new(0);
/// Where the next free one is looked for.
static HINT: AtomicU32 = AtomicU32::new(0);

pub(super) fn node(number: u32) -> &'static Node {
    &NODES[number as usize % MOST]
}

/// How many were ever in use.
pub(super) fn used() -> u32 {
    USED.load(Ordering::Relaxed)
}

/// All that are in use.
pub(super) fn all() -> impl Iterator<Item = (u32, &'static Node)> {
    let used = USED.load(Ordering::Relaxed);
    (0..used).map(|number| (number, node(number))).filter(|(_, node)| node.taken.load(Ordering::Relaxed) != 0)
}

/// Those of one descriptor.
pub(super) fn of_fd(fd: i32) -> impl Iterator<Item = (u32, &'static Node)> {
    let mut next = table::registrations(fd).map_or(0, |first| first.load(Ordering::Relaxed));
    std::iter::from_fn(move || {
        let number = next.checked_sub(1)?;
        next = node(number).next_of_fd.load(Ordering::Relaxed);
        Some((number, node(number)))
    })
}

/// Those of one endpoint.
pub(super) fn of_endpoint(endpoint: u32) -> impl Iterator<Item = (u32, &'static Node)> {
    let mut next = slot(endpoint).registrations.load(Ordering::Relaxed);
    std::iter::from_fn(move || {
        let number = next.checked_sub(1)?;
        next = node(number).next_of_endpoint.load(Ordering::Relaxed);
        Some((number, node(number)))
    })
}

/// A free one, for this descriptor and set; `None` if there is none.
pub(super) fn take(set: u32, fd: i32) -> Option<u32> {
    let first = table::registrations(fd)?;
    let hint = HINT.load(Ordering::Relaxed);
    let free = |&number: &u32| node(number).taken.load(Ordering::Relaxed) == 0;
    let number = (hint..MOST as u32).chain(0..hint).find(free)?;
    HINT.store((number + 1) % MOST as u32, Ordering::Relaxed);
    USED.fetch_max(number + 1, Ordering::Relaxed);
    let node = node(number);
    node.taken.store(1, Ordering::Relaxed);
    node.set.store(set, Ordering::Relaxed);
    node.fd.store(fd, Ordering::Relaxed);
    node.endpoint.store(NONE, Ordering::Relaxed);
    node.flags.store(0, Ordering::Relaxed);
    // A jump out of a handler may come between any two steps: a list is whole at all times.
    node.next_of_fd.store(first.load(Ordering::Relaxed), Ordering::Relaxed);
    first.store(number + 1, Ordering::Relaxed);
    Some(number)
}

/// Gives one back that is tied to no endpoint.
pub(super) fn give_back(number: u32) {
    let node = node(number);
    if let Some(first) = table::registrations(node.fd()) {
        unlink(first, number, |node| &node.next_of_fd);
    }
    node.set.store(NONE, Ordering::Relaxed);
    node.taken.store(0, Ordering::Relaxed);
    HINT.fetch_min(number, Ordering::Relaxed);
}

fn unlink(first: &AtomicU32, number: u32, next: impl Fn(&'static Node) -> &'static AtomicU32) {
    let after = next(node(number)).load(Ordering::Relaxed);
    if first.load(Ordering::Relaxed) == number + 1 {
        first.store(after, Ordering::Relaxed);
        return;
    }
    let mut at = first.load(Ordering::Relaxed);
    while let Some(before) = at.checked_sub(1) {
        at = next(node(before)).load(Ordering::Relaxed);
        if at == number + 1 {
            next(node(before)).store(after, Ordering::Relaxed);
            return;
        }
    }
}

impl Node {
    pub(super) fn set(&self) -> u32 {
        self.set.load(Ordering::Relaxed)
    }

    pub(super) fn fd(&self) -> i32 {
        self.fd.load(Ordering::Relaxed)
    }

    pub(super) fn events(&self) -> u32 {
        self.events.load(Ordering::Relaxed)
    }

    pub(super) fn data(&self) -> u64 {
        self.data.load(Ordering::Relaxed)
    }

    pub(super) fn kernel_mask(&self) -> u32 {
        self.kernel_mask.load(Ordering::Relaxed)
    }

    pub(super) fn set_kernel_mask(&self, mask: u32) {
        self.kernel_mask.store(mask, Ordering::Relaxed);
    }

    pub(super) fn kernel_data(&self) -> u64 {
        self.kernel_data.load(Ordering::Relaxed)
    }

    pub(super) fn set_kernel_data(&self, data: u64) {
        self.kernel_data.store(data, Ordering::Relaxed);
    }

    pub(super) fn endpoint(&self) -> Option<u32> {
        Some(self.endpoint.load(Ordering::Relaxed)).filter(|&endpoint| endpoint != NONE)
    }

    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    pub(super) fn raise(&self, flag: u32) {
        self.flags.fetch_or(flag, Ordering::Relaxed);
    }

    pub(super) fn lower(&self, flag: u32) {
        self.flags.fetch_and(!flag, Ordering::Relaxed);
    }

    pub(super) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    pub(super) fn see(&self, head: u64) {
        self.seen.store(head, Ordering::Relaxed);
    }

    /// What the application asked for, anew, with what the kernel was asked for.
    pub(super) fn note(&self, event: libc::epoll_event, kernel_mask: u32) {
        self.set_kernel_mask(kernel_mask);
        self.set_kernel_data(event.u64);
        self.ask(event);
    }

    /// What the application asked for, anew; the kernel has not heard of it.
    pub(super) fn ask(&self, event: libc::epoll_event) {
        self.events.store(event.events, Ordering::Relaxed);
        self.data.store(event.u64, Ordering::Relaxed);
        self.lower(FIRED);
        self.raise(EDGE | FRESH);
    }

    pub(super) fn tie(&self, number: u32, endpoint: u32) {
        self.endpoint.store(endpoint, Ordering::Relaxed);
        let first = &slot(endpoint).registrations;
        self.next_of_endpoint.store(first.load(Ordering::Relaxed), Ordering::Relaxed);
        first.store(number + 1, Ordering::Relaxed);
        self.raise(EDGE | FRESH);
    }

    pub(super) fn untie(&self, number: u32, endpoint: u32) {
        unlink(&slot(endpoint).registrations, number, |node| &node.next_of_endpoint);
        self.endpoint.store(NONE, Ordering::Relaxed);
    }

    /// Counts as a sleeper from now on. A thread that is made to leave between the two steps, here and in [`disarm`](Node::disarm),
    /// leaves a count that is too high, never one that is too low.
    pub(super) fn arm(&self) {
        let Some(endpoint) = self.endpoint() else { return };
        let slot = slot(endpoint);
        let Ok(view) = slot.view() else { return };
        for (flag, want) in [(ARMED_BYTES, Want::Bytes), (ARMED_ROOM, Want::Room)] {
            let asked = want == Want::Bytes || self.events() & libc::EPOLLOUT as u32 != 0;
            if asked && !self.has(flag) {
                wait::count(slot, view.header(), want).fetch_add(1, Ordering::SeqCst);
                self.raise(flag);
            }
        }
    }

    /// Counts as a sleeper no more.
    pub(super) fn disarm(&self) {
        let Some(endpoint) = self.endpoint() else { return };
        let slot = slot(endpoint);
        let Ok(view) = slot.view() else { return };
        for (flag, want) in [(ARMED_BYTES, Want::Bytes), (ARMED_ROOM, Want::Room)] {
            if self.has(flag) {
                self.lower(flag);
                wait::count(slot, view.header(), want).fetch_sub(1, Ordering::SeqCst);
            }
        }
    }
}
