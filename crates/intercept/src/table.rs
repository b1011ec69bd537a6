//! What is known of each descriptor of this process: one word each, in memory that was never allocated.
//!
//! "Unknown" is always right to say: the next use finds out. Numbers beyond the table are never looked after.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

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

/// What else is known of a socket: four bits for each descriptor.
static MARKS: [AtomicU64; MOST / 16] = [const { AtomicU64::new(0) }; MOST / 16];
/// One more than the highest descriptor that ever was [`Kind::Tcp`].
static TCP_BELOW: AtomicU32 = AtomicU32::new(0);
/// The last descriptor that libc's type for a set of select has room for: how far all such sets may be looked at.
const LOW: i32 = 1023;
/// At least [`highest`].
static HIGHEST: AtomicI32 = AtomicI32::new(LOW);

/// Other descriptors of this process may name the socket.
pub(crate) const COPIED: u64 = 1;
/// Other processes may hold it.
pub(crate) const ELSEWHERE: u64 = 2;
/// This process has left it to the kernel, of which a program that holds it and shares no memory with this one has not heard.
pub(crate) const LEFT: u64 = 4;
/// It was passed on in a message before it was claimed.
pub(crate) const PASSED: u64 = 8;
const ALL: u64 = COPIED | ELSEWHERE | LEFT | PASSED;

fn place(fd: i32) -> Option<(&'static AtomicU64, u32)> {
    MARKS.get(fd as u32 as usize / 16).map(|word| (word, fd as u32 % 16 * 4))
}

/// Notes something of a socket, until another has its descriptor's number.
pub(crate) fn mark(fd: i32, marks: u64) {
    if let Some((word, shift)) = place(fd) {
        word.fetch_or(marks << shift, Ordering::AcqRel);
    }
}

/// Takes marks away.
pub(crate) fn unmark(fd: i32, marks: u64) {
    if let Some((word, shift)) = place(fd) {
        word.fetch_and(!(marks << shift), Ordering::AcqRel);
    }
}

/// Whether one of these was noted.
pub(crate) fn has(fd: i32, marks: u64) -> bool {
    marks_of(fd) & marks != 0
}

/// All that was noted.
pub(crate) fn marks_of(fd: i32) -> u64 {
    place(fd).map_or(0, |(word, shift)| word.load(Ordering::Acquire) >> shift & ALL)
}

/// A descriptor of a socket that no other names.
pub(crate) fn note_alone(fd: i32) {
    if has(fd, ALL) {
        unmark(fd, ALL);
    }
}

/// Notes that a descriptor is a TCP socket that was not claimed yet.
pub(crate) fn set_tcp(fd: i32) {
    if fd as u32 >= TCP_BELOW.load(Ordering::Relaxed) {
        TCP_BELOW.fetch_max(fd as u32 + 1, Ordering::AcqRel);
    }
    set(fd, Kind::Tcp);
}

/// Descriptors of TCP sockets that were not claimed yet.
pub(crate) fn unclaimed() -> impl Iterator<Item = i32> {
    (0..tcp_below() as i32).filter(|&fd| kind(fd) == Kind::Tcp)
}

/// Those that have an endpoint, with its number.
pub(crate) fn claimed() -> impl Iterator<Item = (i32, u32)> {
    (0..tcp_below() as i32).filter_map(|fd| match kind(fd) {
        Kind::Ring(index) => Some((fd, index)),
        _ => None,
    })
}

/// Descriptors of which this was noted.
pub(crate) fn marked(marks: u64) -> impl Iterator<Item = i32> {
    let words = MARKS[..tcp_below().div_ceil(16)].iter().enumerate();
    let noted = words.filter(|(_, word)| word.load(Ordering::Acquire) != 0);
    noted
        .flat_map(|(place, _)| (0..16).map(move |part| (place * 16 + part) as i32))
        .filter(move |&fd| has(fd, marks))
}

fn tcp_below() -> usize {
    (TCP_BELOW.load(Ordering::Acquire) as usize).min(MOST)
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
        if fd > LOW && concerns_us(kind) {
            HIGHEST.fetch_max(fd, Ordering::AcqRel);
        }
    }
}

fn concerns_us(kind: Kind) -> bool {
    matches!(kind, Kind::Tcp | Kind::Ring(_) | Kind::Epoll(_))
}

/// No descriptor above this one is a TCP socket or a set of epoll of the application's, as far as is known.
pub fn highest() -> i32 {
    loop {
        let highest = HIGHEST.load(Ordering::Acquire);
        if highest == LOW || concerns_us(kind(highest)) {
            return highest;
        }
        // Closed since. Another thread may note a higher one meanwhile.
        let _ = HIGHEST.compare_exchange(highest, highest - 1, Ordering::AcqRel, Ordering::Relaxed);
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
    fn marks_of_neighbours_are_apart() {
        set_tcp(50_017);
        mark(50_015, ALL);
        mark(50_016, COPIED | LEFT);
        mark(50_017, LEFT);
        assert_eq!(marked(LEFT).filter(|fd| (50_000..50_100).contains(fd)).count(), 3);
        unmark(50_016, COPIED);
        note_alone(50_015);
        assert_eq!([50_014, 50_015, 50_016, 50_017].map(marks_of), [0, 0, LEFT, LEFT]);
        assert!(unclaimed().any(|fd| fd == 50_017) && !has(-1, ALL) && !has(MOST as i32, ALL));
        forget(50_017);
        note_alone(50_016);
        note_alone(50_017);
    }

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
        set(59_000, Kind::Tcp);
        assert_eq!(highest(), 59_000);
        set(59_000, Kind::Plain);
        assert!(highest() < 59_000);
    }
}
