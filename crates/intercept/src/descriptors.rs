//! What happens to descriptors: closed, duplicated, replaced, made not to block, inherited.
//!
//! A child of vfork runs in its parent's memory but has descriptors of its own: there nothing is noted, the kernel does it
//! alone.

use std::sync::atomic::Ordering;

use viaduct_os::bare::{calls, whoami};

pub use crate::companion::{FAST_OPEN, FILTERED, TELLS_REST, TELLS_TIMES};
use crate::endpoint::{self, PENDING, SHUT_READ, STALE, slot};
use crate::learn::Turn;
use crate::table::{self, Kind};
use crate::{back, claim, epoll, learn, send, settings};

/// The endpoint of a descriptor that is about to be used for data; claims it if it is time to. `None`: the kernel's.
#[inline]
pub fn route(fd: i32) -> Option<u32> {
    match table::kind(fd) {
        Kind::Plain => None,
        Kind::Ring(index) => ring(fd, index),
        kind => route_slowly(fd, kind),
    }
}

#[inline]
fn ring(fd: i32, index: u32) -> Option<u32> {
    if whoami::check() == whoami::Process::New {
        after_fork();
    }
    if slot(index).has(PENDING | STALE) {
        return look(fd, index);
    }
    Some(index)
}

#[cold]
fn look(fd: i32, index: u32) -> Option<u32> {
    let slot = slot(index);
    if slot.has(STALE) && !whoami::borrows_memory() {
        slot.lower(STALE);
        epoll::refresh(index);
    }
    if slot.has(PENDING) && claim::look(fd, index) == claim::Progress::Plain {
        return None;
    }
    Some(index)
}

#[cold]
#[inline(never)]
fn route_slowly(fd: i32, kind: Kind) -> Option<u32> {
    if settings::claims() { route_claiming(fd, kind) } else { None }
}

/// Apart, so that a process which claims nothing does not pay for what this needs of the stack.
#[inline(never)]
fn route_claiming(fd: i32, kind: Kind) -> Option<u32> {
    if whoami::check() == whoami::Process::New {
        after_fork();
    }
    let kind = if kind == Kind::Unknown { claim::classify(fd) } else { kind };
    match kind {
        // What borrows its parent's memory must not put anything into its tables.
        Kind::Tcp => {
            let turn = claim::turn(fd);
            if turn == Turn::Later || whoami::borrows_memory() {
                return None;
            }
            let kind = if turn == Turn::Now {
                claim::claim(fd)
            } else {
                claim::leave(fd, "several threads used it before its time")
            };
            match kind {
                Kind::Ring(index) => ring(fd, index),
                _ => None,
            }
        }
        Kind::Ring(index) => ring(fd, index),
        _ => None,
    }
}

/// Whether it is a descriptor of ours, which does not exist for the application.
#[inline]
pub fn is_internal(fd: i32) -> bool {
    table::kind(fd) == Kind::Internal && !whoami::borrows_memory()
}

/// A new descriptor of a TCP socket. Where nothing is claimed it stays unknown, so that no call on it has to be looked at.
pub fn note_tcp(fd: i32) {
    table::note_alone(fd);
    if settings::claims() {
        table::set_tcp(fd);
    } else {
        table::set(fd, Kind::Unknown);
    }
}

/// Whether what is known of a descriptor must not be lost while it is open. Unknown ones can be found out again, and where
/// nothing is claimed, plain ones are not looked at.
pub fn must_be_kept(fd: i32) -> bool {
    match table::kind(fd) {
        Kind::Unknown => false,
        Kind::Plain | Kind::Tcp => settings::claims() || epoll::is_registered(fd),
        Kind::Ring(_) | Kind::Epoll(_) | Kind::Internal => true,
    }
}

/// A new descriptor of something else that is never upgraded.
pub fn note_plain(fd: i32) {
    table::set(fd, Kind::Plain);
}

/// A new descriptor of which nothing is known.
pub fn note_unknown(fd: i32) {
    table::forget(fd);
}

/// A descriptor is about to be closed, or replaced by another.
#[inline]
pub fn closing(fd: i32) {
    match table::kind(fd) {
        Kind::Unknown => {}
        Kind::Internal => {}
        Kind::Plain => drop(table::forget(fd)),
        kind => closing_slowly(fd, kind),
    }
}

#[cold]
fn closing_slowly(fd: i32, kind: Kind) {
    if !must_be_kept(fd) {
        // Without a system call: this process may have a filter.
        table::forget(fd);
        return;
    }
    if whoami::borrows_memory() {
        return;
    }
    if whoami::check() == whoami::Process::New {
        after_fork();
    }
    if let Kind::Ring(index) = kind {
        back::serve(fd, index);
    }
    epoll::forget(fd);
    table::forget(fd);
    match kind {
        Kind::Ring(index) => endpoint::release(index),
        Kind::Epoll(index) => epoll::release_set(index),
        _ => {}
    }
}

/// `copy` is a duplicate of `fd`; what `copy` was before has been [`closing`].
pub fn duplicated(fd: i32, copy: i32) {
    let kind = table::kind(fd);
    if matches!(kind, Kind::Ring(_) | Kind::Epoll(_)) && whoami::borrows_memory() {
        return;
    }
    match kind {
        Kind::Ring(index) if (copy as usize) < table::MOST => {
            endpoint::hold(index);
            table::set(copy, kind);
        }
        Kind::Epoll(index) => {
            epoll::hold_set(index);
            table::set(copy, kind);
        }
        Kind::Internal => {}
        kind => {
            if kind == Kind::Tcp {
                learn::copied(fd, copy);
                table::mark(fd, table::COPIED);
            }
            table::note_alone(copy);
            match table::marks_of(fd) {
                0 => {}
                marks => table::mark(copy, marks),
            }
            if kind == Kind::Tcp { table::set_tcp(copy) } else { table::set(copy, kind) }
        }
    }
}

/// The socket was made blocking or not.
pub fn note_nonblocking(fd: i32, nonblocking: bool) {
    if let Kind::Ring(index) = table::kind(fd) {
        let slot = slot(index);
        if let Ok(view) = slot.view() {
            slot.own_end(view.header()).nonblocking.store(u32::from(nonblocking), Ordering::Relaxed);
        }
    }
}

/// The companion was shut down.
pub fn note_shutdown(fd: i32, how: i32) {
    let Kind::Ring(index) = table::kind(fd) else { return };
    if how != libc::SHUT_WR {
        slot(index).raise(SHUT_READ);
    }
    if how != libc::SHUT_RD {
        back::serve(fd, index);
        send::note_shut(index);
    }
    // Threads that sleep at this end look again.
    if let Ok(view) = slot(index).view() {
        slot(index).ring_own(view.header());
    }
}

/// Whether this descriptor has an endpoint, without making one.
pub fn endpoint_of(fd: i32) -> Option<u32> {
    match table::kind(fd) {
        Kind::Ring(index) => Some(index),
        _ => None,
    }
}

/// This connection is the kernel's alone from now on; one with rings is moved back. Whether that was possible.
pub fn keep_plain(fd: i32, reason: &'static str) -> bool {
    match table::kind(fd) {
        Kind::Ring(_) => back::retire(fd, reason),
        Kind::Unknown if settings::claims() && claim::classify(fd) != Kind::Tcp => keep_plain(fd, reason),
        Kind::Unknown | Kind::Tcp if settings::claims() && table::has(fd, table::ELSEWHERE) => {
            match claim::leave(fd, reason) {
                Kind::Ring(_) => back::retire(fd, reason),
                _ => true,
            }
        }
        Kind::Unknown | Kind::Tcp => {
            claim::note_left(fd);
            true
        }
        _ => true,
    }
}

/// The lowest descriptor from `from` to `to` that is ours; closing a range goes around it.
pub fn next_internal(from: u32, to: u32) -> Option<u32> {
    (from..=to.min(table::MOST as u32 - 1)).find(|&fd| table::kind(fd as i32) == Kind::Internal)
}

/// Descriptors in a range of which something is known.
pub fn closing_range(from: u32, to: u32) {
    if calls::process_id() != whoami::recorded_process() && whoami::recorded_process() != 0 {
        return;
    }
    (from..=to.min(table::MOST as u32 - 1)).for_each(|fd| closing(fd as i32));
}

/// A child that has not noticed yet that it is one begins.
pub fn begin() {
    if whoami::check() == whoami::Process::New {
        after_fork();
    }
}

/// This process ends: what others have asked for is done now or never.
pub fn ending() {
    if endpoint::any() && whoami::check() == whoami::Process::Same && !whoami::borrows_memory() {
        table::rings().for_each(|(fd, index)| back::serve(fd, index));
    }
}

/// A child begins: threads, connections to the agent and sleepers were its parent's.
#[cold]
fn after_fork() {
    claim::after_fork();
    endpoint::after_fork();
    epoll::after_fork();
}

/// Moves one of our descriptors to another number, because the application wants this one. Whether that worked.
pub fn make_way(fd: i32) -> bool {
    endpoint::move_bell(fd) || claim::move_channel(fd)
}
