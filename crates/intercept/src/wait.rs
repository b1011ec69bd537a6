//! Waiting without burning: spin while that has paid lately, the peer runs on another CPU and no other task wants this one,
//! yield, then sleep on the bell and the companion together.
//!
//! No lock is held while a thread sleeps. One that leaves by a signal handler's longjmp or is cancelled leaves a count of sleepers
//! that stays too high, which costs the peer a system call now and then. What callers hold while they look is
//! [`leave`](mod@crate::leave)'s to give back.

mod crowd;
pub mod signals;

use std::sync::atomic::{AtomicU32, Ordering};

use viaduct_os::bare::{Errno, calls};

use crate::endpoint::Slot;
use crate::layout::{self, Header};
use crate::{settings, table};
use crowd::Crowd;

/// The longest spin, in nanoseconds.
const LONGEST: u32 = 50_000;
const SHORTEST: u32 = 2_000;
/// How long a receiver of many small messages looks away at least, in nanoseconds.
const LINGER: u64 = 1_500;
/// What a sleeper that was woken for others leaves them, in nanoseconds.
const PAUSE: u64 = 200_000;
/// One of so many waits tries the longest spin again.
const PROBE: u32 = 64;

static BUDGET: AtomicU32 = AtomicU32::new(LONGEST);
static WAITS: AtomicU32 = AtomicU32::new(0);
static CROWD: Crowd = Crowd::new();

/// What a sleeper waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Bytes, or the end of them.
    Bytes,
    /// Room.
    Room,
}

/// Looks again and again for a while. Whether it became ready.
pub(crate) fn spin(peer_cpu: u32, mut ready: impl FnMut() -> bool) -> bool {
    if CROWD.is_here() {
        return ready();
    }
    if settings::cpus() < 2 || peer_cpu == calls::current_cpu() {
        // The peer cannot run while we do.
        return (0..2).any(|_| yield_to_others(&mut ready) == Yielded::Ready);
    }
    let probe = WAITS.fetch_add(1, Ordering::Relaxed).is_multiple_of(PROBE);
    let budget = if probe { LONGEST } else { BUDGET.load(Ordering::Relaxed) };
    let start = calls::now();
    let mut turn = 0u32;
    while calls::now() - start < u64::from(budget) {
        for _ in 0..32 {
            if ready() {
                BUDGET.store(LONGEST, Ordering::Relaxed);
                CROWD.note_success();
                return true;
            }
            std::hint::spin_loop();
        }
        turn += 1;
        if turn.is_multiple_of(4) {
            match yield_to_others(&mut ready) {
                Yielded::Ready => return true,
                Yielded::Crowd => break,
                Yielded::Nothing => {}
            }
        }
    }
    if !probe {
        BUDGET.store((budget - budget / 4).max(SHORTEST), Ordering::Relaxed);
    }
    false
}

/// Looks away for some times the shortest while, unless the peer can run only where this thread runs.
pub(crate) fn linger(peer_cpu: u32, steps: u32) {
    if settings::cpus() > 1 && peer_cpu != calls::current_cpu() {
        let start = calls::now();
        while calls::now() - start < LINGER * u64::from(steps) {
            (0..8).for_each(|_| std::hint::spin_loop());
        }
    }
}

/// What a yield has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Yielded {
    /// What was waited for.
    Ready,
    /// Other tasks want this CPU.
    Crowd,
    Nothing,
}

fn yield_to_others(ready: &mut impl FnMut() -> bool) -> Yielded {
    let before = calls::now();
    calls::yield_now();
    if ready() {
        return Yielded::Ready;
    }
    if CROWD.note_yield(calls::now() - before) { Yielded::Crowd } else { Yielded::Nothing }
}

/// Waits for TCP as upgraded connections are waited for: asks the kernel again and again for a while. Only where
/// nothing is upgraded, for comparisons.
#[cold]
pub fn spin_on(fds: &mut [libc::pollfd]) {
    spin(u32::MAX, || calls::poll(fds, Some(0), None) != Ok(0));
}

/// As [`spin_on`], before a call that waits for a TCP socket that blocks.
#[cold]
pub fn spin_before(fd: i32, events: i16) {
    let blocks = || calls::status_flags(fd).is_ok_and(|flags| flags & libc::O_NONBLOCK == 0);
    if table::kind(fd) == table::Kind::Tcp && blocks() {
        spin_on(&mut [libc::pollfd { fd, events, revents: 0 }]);
    }
}

/// As [`spin_on`], for a set of epoll; what it reports.
#[cold]
pub fn spin_on_set(set: i32, events: &mut [libc::epoll_event]) -> Result<usize, Errno> {
    let mut found = Ok(0);
    spin(u32::MAX, || {
        found = calls::epoll_wait(set, events, Some(0), None);
        found != Ok(0)
    });
    found
}

/// When a wait is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<u64>);

impl Deadline {
    /// So many nanoseconds from now, or never.
    pub(crate) fn after(limit_ns: Option<u64>) -> Deadline {
        Deadline(limit_ns.map(|limit| calls::now().saturating_add(limit)))
    }

    /// What is left of it: nothing if it has passed, `None` if there is none.
    pub(crate) fn left(self) -> Option<u64> {
        self.0.map(|end| end.saturating_sub(calls::now()))
    }
}

/// Says that this thread sleeps for one end, until it is dropped by [`Asleep::wake`].
#[derive(Debug)]
pub(crate) struct Asleep<'a> {
    slot: &'a Slot,
    header: &'a Header,
    want: Want,
}

impl<'a> Asleep<'a> {
    /// From here on the peer rings. The caller looks once more before it sleeps.
    pub(crate) fn announce(slot: &'a Slot, header: &'a Header, want: Want) -> Asleep<'a> {
        slot.inside.fetch_add(1, Ordering::AcqRel);
        count(slot, header, want).fetch_add(1, Ordering::SeqCst);
        Asleep { slot, header, want }
    }

    /// Sleeps on the bell and the companion. Not for a descriptor that the kernel calls nonblocking: the note of that which the
    /// processes of a connection share lies where a hostile peer can write, and its victim would wait in a call that never does.
    pub(crate) fn sleep(&self, fd: i32, limit_ns: Option<u64>) -> Result<usize, Errno> {
        if calls::status_flags(fd).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0) {
            return Ok(0);
        }
        // A half-closed connection is always readable: a thread that waits for room waits for the end of the peer's
        // stream only until it was seen once.
        let events = match self.want {
            Want::Bytes => libc::POLLIN | libc::POLLRDHUP,
            Want::Room => libc::POLLRDHUP,
        };
        let mut fds = [
            libc::pollfd { fd, events, revents: 0 },
            libc::pollfd { fd: self.slot.bell(), events: libc::POLLIN, revents: 0 },
            signals::NONE,
        ];
        let woken = signals::sleep(&mut fds, limit_ns)?;
        if fds[1].revents != 0 {
            self.slot.empty_bell(self.header);
            let counted = match self.want {
                Want::Bytes => [1, 0],
                Want::Room => [0, 1],
            };
            let ready = match self.want {
                Want::Bytes => has_bytes(self.slot, self.header),
                Want::Room => has_some_room(self.slot, self.header),
            };
            pass_on(self.slot, self.header, counted, ready);
        }
        Ok(woken)
    }

    pub(crate) fn wake(self) {
        count(self.slot, self.header, self.want).fetch_sub(1, Ordering::SeqCst);
        self.slot.inside.fetch_sub(1, Ordering::AcqRel);
    }
}

fn has_bytes(slot: &Slot, header: &Header) -> bool {
    let incoming = slot.incoming(header);
    incoming.producer.head.load(Ordering::SeqCst) != incoming.consumer.tail.load(Ordering::SeqCst)
}

fn has_some_room(slot: &Slot, header: &Header) -> bool {
    let outgoing = slot.outgoing(header);
    let (head, tail) =
        (outgoing.producer.head.load(Ordering::SeqCst), outgoing.consumer.tail.load(Ordering::SeqCst));
    let most = layout::capacity(outgoing.producer.most.load(Ordering::Relaxed));
    layout::writable(head, tail, most).is_none_or(|room| layout::has_room(room, most))
}

/// An end has one bell for all its sleepers, threads and processes. The one that empties it rings it again if
/// there is something for others: `counted` is how often the caller itself counts as a sleeper, for bytes and for room.
/// If the caller found nothing for itself (`ready` is false) it gives the others a moment.
pub(crate) fn pass_on(slot: &Slot, header: &Header, counted: [u32; 2], ready: bool) {
    let others = |want: Want, own: u32| count(slot, header, want).load(Ordering::SeqCst) > own;
    let due = others(Want::Bytes, counted[0]) && has_bytes(slot, header)
        || others(Want::Room, counted[1]) && has_some_room(slot, header);
    if due {
        slot.ring_own(header);
        if !ready {
            let _ = calls::poll(&mut [], Some(PAUSE), None);
        }
    }
}

/// Where sleepers of one end are counted.
pub(crate) fn count<'h>(slot: &Slot, header: &'h Header, want: Want) -> &'h AtomicU32 {
    match want {
        Want::Bytes => &slot.incoming(header).wishes.readers,
        Want::Room => &slot.outgoing(header).writers.0,
    }
}

/// Whether a call whose sleep a signal interrupted ends, or goes on as `SA_RESTART` asks for.
pub(crate) fn interrupts(has_limit: bool) -> bool {
    has_limit || viaduct_os::bare::signals::handlers().interrupting != 0
}
