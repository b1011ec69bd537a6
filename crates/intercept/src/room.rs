//! Descriptors are the application's: what the library needs of them has its bounds, and makes way.
//!
//! An upgraded connection has two bells beside its socket. All of ours together take at most a third of what this process
//! may open; connections beyond that stay on TCP. Where the application itself meets its limit, a connection that is
//! quiet is moved back to TCP and its bells are closed: the program gets every descriptor that it gets without us.

use std::sync::atomic::{AtomicU32, Ordering};

use viaduct_os::bare::{Errno, calls, whoami};

use crate::endpoint::{self, PENDING, Slot, slot};
use crate::table::{self, Kind};
use crate::{back, claim, epoll};

/// Descriptors of ours for each upgraded connection.
const EACH: u64 = 2;
/// Where a process that cannot ask for its limit has it.
const USUAL: u64 = 1024;

/// Where the next connection that makes way is looked for.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// How many descriptors this process may have, as far as the table of them goes.
fn limit() -> u64 {
    calls::descriptor_limit().unwrap_or(USUAL).min(table::MOST as u64)
}

/// Whether so many connections are as many as may be upgraded.
pub(crate) fn is_enough(connections: u32) -> bool {
    exceeds(u64::from(connections), limit())
}

fn exceeds(connections: u64, limit: u64) -> bool {
    connections * EACH > limit / 3
}

/// The lowest number for a descriptor of ours: the application counts on low ones.
pub(crate) fn lowest() -> i32 {
    (limit() / 3 * 2) as i32
}

/// Makes a call that opens a descriptor, again if the application has met its limit and one of ours can make way.
///
/// # Errors
/// Those of the call.
#[inline]
pub fn open(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    loop {
        match call() {
            Err(Errno(libc::EMFILE)) if make_way() => {}
            made => return made,
        }
    }
}

/// Moves one quiet connection back to TCP; without one, takes leave of the agent. Whether a descriptor is free now.
#[cold]
fn make_way() -> bool {
    if whoami::check() == whoami::Process::New || whoami::borrows_memory() {
        return false;
    }
    if !endpoint::any() {
        return claim::let_go();
    }
    let first = NEXT.load(Ordering::Relaxed) as i32;
    let (before, after): (i32, i32) = (first, table::MOST as i32);
    let quiet = (before..after).chain(0..before).find(|&fd| match table::kind(fd) {
        Kind::Ring(index) => is_quiet(slot(index)) && epoll::may_leave(fd),
        _ => false,
    });
    let Some(fd) = quiet else { return claim::let_go() };
    NEXT.store(fd as u32 + 1, Ordering::Relaxed);
    back::retire(fd, "the program needs its descriptors")
}

/// Whether nothing is under way in either direction, and no other descriptor and no sleeper has to do with it.
fn is_quiet(slot: &Slot) -> bool {
    let Ok(view) = slot.view() else { return false };
    let empty = view.header().directions.iter().all(|way| {
        way.producer.head.load(Ordering::SeqCst) == way.consumer.tail.load(Ordering::SeqCst)
            && way.producer.shut.load(Ordering::SeqCst) == 0
    });
    empty && !slot.has(PENDING) && slot.is_alone() && slot.inside.load(Ordering::Acquire) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_descriptors_are_for_bells() {
        assert!(!exceeds(3333, 20_000) && exceeds(3334, 20_000));
        assert!(!exceeds(0, 0) && exceeds(1, 5) && !exceeds(1, 6));
        assert!(i64::from(lowest()) <= table::MOST as i64);
    }

    #[test]
    fn a_call_that_meets_the_limit_is_not_made_forever() {
        let mut calls = 0;
        let made = open(|| {
            calls += 1;
            Err(Errno(libc::EMFILE))
        });
        assert_eq!((made, calls), (Err(Errno(libc::EMFILE)), 1), "nothing is upgraded here");
        assert_eq!(open(|| Ok(7)), Ok(7));
    }
}
