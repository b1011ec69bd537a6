//! Connections that several processes hold before any has claimed them.
//!
//! When one process upgrades such a connection, what comes to it comes through the ring, and a process that has asked the kernel
//! alone never hears of it. Of each such connection one of two things holds therefore: every process claims it at its next use, before it
//! sleeps for it, also where that use is to register it with epoll; or the agent was told that it stays on TCP, and no process
//! upgrades it. When in doubt it stays on TCP.
//!
//! A child by `fork` and its kin shares what its parent knew. Of children by the system call alone the parent learns nothing: what such a child
//! inherits unclaimed is safe only if the parent does not sleep for it.

use viaduct_os::bare::whoami;

use crate::carry::{Heir, is_inherited, most_borrowed};
use crate::endpoint::{self, PENDING};
use crate::table::{self, ELSEWHERE, Kind, LEFT, PASSED};
use crate::{back, claim, companion, descriptors, epoll, learn, route, settings};

/// Why a connection that was passed on before it was claimed stays on TCP.
pub(crate) const IN_A_MESSAGE: &str = "it was passed on in a message";
const THREADS: &str = "several threads used it before its time";

/// A child is about to be made, which shares what this process has.
pub fn before_child() {
    if settings::claims() {
        table::unclaimed().for_each(share);
        // The child may see first that the other side is ready, while this process sleeps.
        pending().for_each(|(fd, index)| epoll::adopt(fd, index));
    }
}

/// Connections that are registered with epoll, and whose other side was not seen to be ready.
fn pending() -> impl Iterator<Item = (i32, u32)> {
    let waits = |&(fd, index): &(i32, u32)| endpoint::slot(index).has(PENDING) && epoll::is_registered(fd);
    table::claimed().filter(waits)
}

/// Another process holds this socket from now on.
fn share(fd: i32) {
    table::mark(fd, ELSEWHERE);
    if !learn::spread(fd) {
        claim::leave(fd, THREADS);
    } else if epoll::is_registered(fd) {
        // A thread may sleep in that set, or will, without another call on this descriptor.
        let _ = route(fd);
    }
}

/// A program is about to start. It knows nothing of what this process knew, and may claim what it inherits.
pub fn before_program(heir: Heir) {
    if !settings::claims() {
        if settings::leaves_all() && !whoami::borrows_memory() {
            bar_where(|fd| endpoint_of(fd).is_none());
        }
        return;
    }
    if table::marked(LEFT).next().is_none()
        && table::unclaimed().next().is_none()
        && pending().next().is_none()
    {
        return;
    }
    if whoami::borrows_memory() {
        before_program_of_a_borrower();
        return;
    }
    descriptors::begin();
    if heir == Heir::Child {
        before_child();
    }
    // Sleeping in a set that its parent made, this process or the parent asks the kernel alone for what was not claimed.
    let asleep = table::unclaimed().filter(|&fd| epoll::is_in_inherited_set(fd));
    for fd in table::marked(LEFT).chain(asleep).filter(|&fd| is_inherited(fd)) {
        if claim::bar(fd) {
            table::unmark(fd, LEFT);
        }
    }
}

/// As [`before_program`], in a child of vfork: the tables are those of the parent, which goes on, and this child may have moved and closed its
/// descriptors without a note there.
#[cold]
fn before_program_of_a_borrower() {
    for fd in table::unclaimed() {
        table::mark(fd, ELSEWHERE);
        if !learn::spread(fd) {
            claim::note_left(fd);
        }
    }
    let asleep = || table::unclaimed().filter(|&fd| epoll::is_registered(fd));
    let kept = || table::marked(LEFT).chain(asleep()).chain(pending().map(|(fd, _)| fd));
    let lost = kept().any(|fd| companion::cookie(fd).is_none());
    if kept().next().is_some() {
        bar_where(|fd| {
            let cookie = companion::cookie(fd);
            lost || kept().any(|other| companion::cookie(other) == cookie)
        });
    }
}

/// Bars those connections that a program which is about to start inherits, and that this process has not opened.
fn bar_where(concerns: impl Fn(i32) -> bool) {
    for fd in (0..most_borrowed()).filter(|&fd| is_inherited(fd)) {
        let index = || companion::cookie(fd).and_then(endpoint::by_cookie);
        let opened = || index().is_some_and(|index| !endpoint::slot(index).has(PENDING));
        if companion::is_tcp(fd) && !opened() && concerns(fd) {
            claim::bar(fd);
        }
    }
}

/// A descriptor is about to be passed on in a message. The receiver may have the library or not, and this process may go on with it.
pub fn pass_on(fd: i32) {
    epoll::part_with(fd);
    if settings::claims() && !whoami::borrows_memory() {
        descriptors::begin();
        match table::kind(fd) {
            // A process before this one, or another that holds it, may have upgraded it.
            Kind::Unknown => {
                let _ = route(fd);
            }
            Kind::Tcp if table::has(fd, ELSEWHERE) => {
                let _ = route(fd);
            }
            Kind::Tcp => pass_on_unclaimed(fd),
            Kind::Plain if table::has(fd, LEFT) && claim::bar(fd) => table::unmark(fd, LEFT),
            _ => {}
        }
    }
    if let Some(index) = endpoint_of(fd) {
        let _ = back::move_back(fd, index, IN_A_MESSAGE);
    }
}

/// The receiver may upgrade it, if it does so first.
fn pass_on_unclaimed(fd: i32) {
    let sleeps = !learn::spread(fd) || epoll::is_registered(fd);
    claim::copies(fd).chain([fd]).for_each(|fd| table::mark(fd, ELSEWHERE | PASSED));
    if sleeps {
        claim::leave(fd, IN_A_MESSAGE);
    }
}

fn endpoint_of(fd: i32) -> Option<u32> {
    descriptors::endpoint_of(fd)
}
