//! Which listeners have short connections: a claim costs more than such a connection gains, so theirs are claimed only after a
//! number of calls.
//!
//! What was learned is kept by port, in a page that children share: a server that forks for each connection learns, too.
//! A wrong number there costs a claim too early or too late, and nothing else.

use std::sync::atomic::{AtomicU32, Ordering};

use viaduct_os::bare::sockets::{Side, name};

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
static OWN: [AtomicU32; PLACES] = [const { AtomicU32::new(0) }; PLACES];

fn score(port: u16) -> &'static AtomicU32 {
    let places = raw::shared_scores().unwrap_or(&OWN);
    &places[usize::from(port) % PLACES]
}

/// A listener, or a socket that is connected to one, has this port.
pub fn note(fd: i32, port: u16) {
    if let Some(word) = WORDS.get(fd as usize) {
        let patience = if score(port).load(Ordering::Relaxed) >= KNOWN { CALLS } else { 0 };
        word.store(u32::from(port) | patience << 16, Ordering::Relaxed);
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

/// The port that was noted for a descriptor; 0 if none was.
pub(crate) fn port(fd: i32) -> u16 {
    WORDS.get(fd as usize).map_or(0, |word| word.load(Ordering::Relaxed) as u16)
}

/// Whether this call is one of those that a connection still has to make before it is claimed.
pub(crate) fn is_early(fd: i32) -> bool {
    let Some(word) = WORDS.get(fd as usize) else { return false };
    let early = word.load(Ordering::Relaxed) >> 16 != 0;
    if early {
        word.fetch_sub(1 << 16, Ordering::Relaxed);
    }
    early
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
            assert!(!is_early(fd));
            ended(port(fd), 500, 1_000_000);
        }
        accepted(listener, fd);
        assert_eq!((0..CALLS).filter(|_| is_early(fd)).count(), CALLS as usize);
        assert!(!is_early(fd), "then it is claimed");
        // It was long after all, and so are the next.
        ended(port(fd), BYTES, 5);
        ended(port(fd), 0, NANOSECONDS);
        accepted(listener, fd);
        assert!(!is_early(fd));
        assert!(!is_early(-1) && port(i32::MAX) == 0);
    }
}
