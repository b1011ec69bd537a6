//! What is known of each descriptor of this process: one word each, in memory that was never allocated.
//!
//! "Unknown" is always right to say: the next use finds out. Numbers beyond the table are never looked after.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Descriptors with higher numbers stay as they are.
pub const MOST: usize = 1 << 16;

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing was found out yet.
    Unknown,
    /// The kernel's alone, until it is closed.
    Plain,
    /// A TCP socket that was not claimed yet.
    Tcp,
    /// A socket with an endpoint.
    Ring(u32),
    /// A set of epoll that may have such sockets.
    Epoll(u32),
    /// One of ours, which the application must not see.
    Internal,
}

static WORDS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
/// The first registration with epoll of each descriptor, plus one.
static REGISTRATIONS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];

/// Descriptors that may name a socket which others of this process name, too: a bit each.
static SHARED: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];

/// Notes that other descriptors may name the socket of this one, as long as it is open.
pub(crate) fn note_shared(fd: i32) {
    if let Some(word) = SHARED.get(fd as u32 as usize / 64) {
        word.fetch_or(1 << (fd % 64), Ordering::AcqRel);
    }
}

/// A descriptor of a socket that no other names.
pub(crate) fn note_alone(fd: i32) {
    if is_shared(fd)
        && let Some(word) = SHARED.get(fd as u32 as usize / 64)
    {
        word.fetch_and(!(1 << (fd % 64)), Ordering::AcqRel);
    }
}

/// Whether [`note_shared`] was called for it.
pub(crate) fn is_shared(fd: i32) -> bool {
    let word = SHARED.get(fd as u32 as usize / 64);
    word.is_some_and(|word| word.load(Ordering::Acquire) >> (fd % 64) & 1 != 0)
}

/// All others for which it was called, and that are TCP sockets which were not claimed yet.
pub(crate) fn shared_but(fd: i32) -> impl Iterator<Item = i32> {
    let noted = |word: &AtomicU64| word.load(Ordering::Acquire) != 0;
    let words = SHARED.iter().enumerate().filter(move |(_, word)| noted(word));
    words
        .flat_map(|(place, _)| (0..64).map(move |bit| (place * 64 + bit) as i32))
        .filter(move |&other| other != fd && is_shared(other) && kind(other) == Kind::Tcp)
}

/// What is known of a descriptor.
#[inline]
pub fn kind(fd: i32) -> Kind {
    match WORDS.get(fd as usize) {
        Some(word) => parse(word.load(Ordering::Acquire)),
        None => Kind::Plain,
    }
}

/// Notes what a descriptor is.
pub fn set(fd: i32, kind: Kind) {
    if let Some(word) = WORDS.get(fd as usize) {
        word.store(render(kind), Ordering::Release);
    }
}

/// Forgets a descriptor; what it was.
pub fn forget(fd: i32) -> Kind {
    WORDS.get(fd as usize).map_or(Kind::Plain, |word| parse(word.swap(0, Ordering::AcqRel)))
}

/// Descriptors that have an endpoint, with its number.
pub(crate) fn rings() -> impl Iterator<Item = (i32, u32)> {
    (0..MOST as i32).filter_map(|fd| match kind(fd) {
        Kind::Ring(index) => Some((fd, index)),
        _ => None,
    })
}

/// Where the list of its registrations starts.
pub(crate) fn registrations(fd: i32) -> Option<&'static AtomicU32> {
    REGISTRATIONS.get(fd as usize)
}

#[inline]
fn parse(word: u64) -> Kind {
    let index = (word >> 8) as u32;
    match word & 0xff {
        1 => Kind::Plain,
        2 => Kind::Tcp,
        3 => Kind::Ring(index),
        4 => Kind::Epoll(index),
        5 => Kind::Internal,
        _ => Kind::Unknown,
    }
}

fn render(kind: Kind) -> u64 {
    match kind {
        Kind::Unknown => 0,
        Kind::Plain => 1,
        Kind::Tcp => 2,
        Kind::Ring(index) => 3 | u64::from(index) << 8,
        Kind::Epoll(index) => 4 | u64::from(index) << 8,
        Kind::Internal => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_there_and_back() {
        for kind in [
            Kind::Unknown,
            Kind::Plain,
            Kind::Tcp,
            Kind::Ring(0),
            Kind::Ring(u32::MAX),
            Kind::Epoll(7),
            Kind::Internal,
        ] {
            assert_eq!(parse(render(kind)), kind);
            set(60_000, kind);
            assert_eq!(super::kind(60_000), kind);
            assert_eq!((forget(60_000), super::kind(60_000)), (kind, Kind::Unknown));
        }
        assert_eq!((kind(-1), kind(MOST as i32)), (Kind::Plain, Kind::Plain));
    }
}
