//! Which listeners have short connections: a claim costs more than such a connection gains, so theirs are claimed only after a
//! number of calls.
//!
//! What was learned is kept by port, in a page that children share: a server that forks for each connection learns, too.
//! A wrong number there costs a claim too early or too late, and nothing else.

use std::sync::atomic::{AtomicU32, Ordering};

use viaduct_os::bare::sockets::{Side, name};
use viaduct_os::bare::whoami;

use crate::table::{COPIED, ELSEWHERE};
use crate::{raw, settings, table};

/// Calls on a connection before it is claimed, once its listener is known for short ones.
const CALLS: u32 = 16;
/// A connection that moved fewer bytes, in less time, was short.
const BYTES: u64 = 8 << 10;
const NANOSECONDS: u64 = 100_000_000;
/// So many more short ones than long ones make a listener known, and more than twice that are not counted.
const KNOWN: u32 = 4;

/// Places for ports; those that share one learn together.
pub(crate) const PLACES: usize = 1024;

/// Of each descriptor: its port, and the calls that are still left before it is claimed.
static WORDS: [AtomicU32; table::MOST] = [const { AtomicU32::new(0) }; table::MOST];
/// Of each descriptor: the thread that has used it before it is claimed; 0 if none has.
static USERS: [AtomicU32; table::MOST] = [const { AtomicU32::new(0) }; table::MOST];
static OWN: [AtomicU32; PLACES] = [const { AtomicU32::new(0) }; PLACES];

fn score(port: u16) -> &'static AtomicU32 {
    let places = raw::shared_scores().unwrap_or(&OWN);
    &places[usize::from(port) % PLACES]
}

/// A listener, or a socket that is connected to one, has this port.
pub fn note(fd: i32, port: u16) {
    if let Some(word) = WORDS.get(fd as usize) {
        let known = score(port).load(Ordering::Relaxed) >= KNOWN;
        let patience = if known && !table::has(fd, COPIED | ELSEWHERE) { CALLS } else { 0 };
        word.store(u32::from(port) | patience << 16, Ordering::Relaxed);
        USERS[fd as usize].store(0, Ordering::Relaxed);
    }
}

/// A socket listens: children that it is inherited by learn with this process. Where nothing is claimed there is nothing
/// to learn, and a filter may forbid to ask for the port.
pub fn listening(fd: i32) {
    if !settings::claims() {
        return;
    }
    if let Ok(Some(name)) = name(fd, Side::Own) {
        raw::share_scores();
        note(fd, name.port);
    }
}

/// A connection was accepted from a listener.
pub fn accepted(listener: i32, fd: i32) {
    let port = WORDS.get(listener as usize).map_or(0, |word| word.load(Ordering::Relaxed) as u16);
    note(fd, port);
}

/// Two descriptors name one connection: calls are counted for neither, and the first claims it.
pub(crate) fn copied(fd: i32, copy: i32) {
    if let (Some(word), Some(other)) = (WORDS.get(fd as usize), WORDS.get(copy as usize)) {
        let port = word.fetch_and(0xffff, Ordering::Relaxed) & 0xffff;
        other.store(port, Ordering::Relaxed);
        USERS[copy as usize].store(USERS[fd as usize].load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Other processes hold the socket from now on, one of which may claim it at any time: no call on it is left to the kernel any more. False
/// if another thread may sleep in one that was.
pub(crate) fn spread(fd: i32) -> bool {
    let Some(word) = WORDS.get(fd as usize) else { return true };
    // In this order, which is that of `turn` the other way round: one of the two sees the other.
    word.fetch_and(0xffff, Ordering::SeqCst);
    let user = USERS[fd as usize].swap(0, Ordering::SeqCst);
    user == 0 || user == whoami::thread()
}

/// A descriptor of which nothing is known has this number now.
pub(crate) fn forget(fd: i32) {
    note(fd, 0);
}

/// The port that was noted for a descriptor; 0 if none was.
pub(crate) fn port(fd: i32) -> u16 {
    WORDS.get(fd as usize).map_or(0, |word| word.load(Ordering::Relaxed) as u16)
}

/// Whether a connection is claimed by the call that is about to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is.
    Now,
    /// It is one of those that are left alone at first.
    Later,
    /// It never is. Another thread has used it already, and may sleep in the kernel for bytes that would come through the ring
    /// after a claim: nothing would wake that thread.
    Never,
}

/// Whether its listener is known for short connections, or calls on it were left to the kernel before.
pub(crate) fn is_watched(fd: i32) -> bool {
    let watched = |word: &AtomicU32| {
        word.load(Ordering::Relaxed) >> 16 != 0 || USERS[fd as usize].load(Ordering::Relaxed) != 0
    };
    WORDS.get(fd as usize).is_some_and(watched)
}

/// Counts a call of this thread.
pub(crate) fn turn(fd: i32) -> Turn {
    let Some(word) = WORDS.get(fd as usize) else { return Turn::Now };
    let user = &USERS[fd as usize];
    let me = whoami::thread();
    // Two threads that begin at once: one of them is noted, the other finds that.
    match user.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst) {
        Err(other) if other != me => return Turn::Never,
        _ => {}
    }
    let one_less = |word: u32| (word >> 16 != 0).then(|| word - (1 << 16));
    let left = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
    if left.is_ok() { Turn::Later } else { Turn::Now }
}

/// A connection that was upgraded has ended: how many bytes it moved, and how long it lived.
pub(crate) fn ended(port: u16, bytes: u64, nanoseconds: u64) {
    if port == 0 {
        return;
    }
    let score = score(port);
    let before = score.load(Ordering::Relaxed);
    let short = bytes < BYTES && nanoseconds < NANOSECONDS;
    let after = if short { (before + 1).min(2 * KNOWN) } else { before / 2 };
    if after != before {
        score.store(after, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_with_short_connections_is_known_and_forgotten_again() {
        let (listener, fd, number) = (61_001, 61_002, 61_003);
        note(listener, number);
        for _ in 0..KNOWN {
            accepted(listener, fd);
            assert!(!is_watched(fd));
            ended(port(fd), 500, 1_000_000);
        }
        accepted(listener, fd);
        assert!((0..CALLS).all(|_| is_watched(fd) && turn(fd) == Turn::Later));
        assert_eq!((is_watched(fd), turn(fd)), (true, Turn::Now), "then it is claimed");
        let elsewhere = std::thread::spawn(move || turn(fd)).join().unwrap();
        assert_eq!(elsewhere, Turn::Never, "a thread may sleep in one of the calls that were left alone");
        accepted(listener, fd);
        assert_eq!(
            (turn(fd), std::thread::spawn(move || turn(fd)).join().unwrap()),
            (Turn::Later, Turn::Never)
        );
        accepted(listener, fd);
        assert_eq!((turn(fd), spread(fd)), (Turn::Later, true), "this thread sleeps in no call");
        assert!(!is_watched(fd), "another process may claim it at any time");
        accepted(listener, fd);
        std::thread::spawn(move || turn(fd)).join().unwrap();
        assert!(!spread(fd), "that thread may sleep in the call that was left alone");
        // It was long after all, and so are the next.
        ended(port(fd), BYTES, 5);
        ended(port(fd), 0, NANOSECONDS);
        accepted(listener, fd);
        assert!(!is_watched(fd));
        assert!(!is_watched(-1) && port(i32::MAX) == 0);
    }
}
