//! The bell: the one way to sleep until a peer has something, and to wake it.
//!
//! Design, sections 2.2 and 2.4: one bell per process; the waker makes a system call only if a sleeper said so. The
//! hand-off is Dekker's, made asymmetric by [`crate::barrier`]:
//!
//! ```text
//!   ringer, for every message            sleeper, once per sleep
//!   1. publish data (release store)      1. announce: draw a ticket (load seq), store state
//!   2. fence for the compiler only       2.           membarrier (a fence on every CPU)
//!   3. ring: load state                  3. look for data once more
//!      0: no thread sleeps, done            there is some: cancel, take it
//!      else: swap 0, add 1 to seq, wake  4. park until seq is not the ticket's
//! ```
//!
//! Either the ringer's load comes after the sleeper's store and it wakes, or the sleeper's second look comes after the
//! ringer's store and it stays awake: the barrier in step 2 forbids that both miss. Without membarrier the ringer
//! executes a full fence instead (a predictable branch decides). The ticket is for bells with several sleepers: one that
//! was rung for before it parked notices it, although another one may have announced itself since.
//!
//! The word lives in memory that a hostile peer may write. The worst a wrong value does is a useless system call or a
//! sleep that lasts until its timeout, so no thread parks without a limit and without another sign of life (pidfd, hang-up). It is no
//! queue and no lock: *what* is new, the sleeper finds out itself.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::sync::{AtomicU32, Ordering};
use crate::wait::Sleep;
use crate::{barrier, eventfd, futex};

/// No thread sleeps.
pub const AWAKE: u32 = 0;
/// A thread sleeps, or is about to, on the word itself.
pub const FUTEX: u32 = 1;
/// A thread sleeps, or is about to, in poll or epoll on the bell's eventfd.
pub const FD: u32 = 2;

/// The shared part of a bell, one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct BellWord {
    state: AtomicU32,
    seq: AtomicU32,
    /// Atomics too: a peer may write the whole line.
    pad: [AtomicU32; 14],
}

impl BellWord {
    /// A bell at rest. All zeroes, so a fresh segment holds valid bells already.
    pub const fn new() -> BellWord {
        BellWord {
            state: AtomicU32::new(AWAKE),
            seq: AtomicU32::new(0),
            pad: [const { AtomicU32::new(0) }; 14],
        }
    }

    /// Whether no sleeper has announced itself. A hint only: it orders nothing.
    #[inline]
    pub fn is_awake(&self) -> bool {
        self.state.load(Ordering::Relaxed) == AWAKE
    }

    /// Wakes the sleepers; costs a load if there are none.
    ///
    /// The caller has published its data with a release store before. `fd` is the eventfd that belongs to this bell,
    /// if its owner gave one away.
    #[inline]
    pub fn ring(&self, fd: Option<BorrowedFd<'_>>) {
        self.ring_by(|| fd.into_iter().for_each(eventfd::signal));
    }

    /// As [`ring`](Self::ring), for a ringer that has no descriptor of the bell: `signal` is called for a sleeper in poll
    /// or epoll.
    #[inline]
    pub fn ring_by(&self, signal: impl FnOnce()) {
        barrier::light();
        if !self.is_awake() && self.wake_slow() & FD != 0 {
            signal();
        }
    }

    /// Wakes the sleepers, whatever the word says: a peer that dies between taking the announcement and waking, or
    /// that writes nonsense, leaves a sleeper behind that is announced no more. For news that must not be missed.
    pub fn alarm(&self, fd: Option<BorrowedFd<'_>>) {
        self.state.store(AWAKE, Ordering::SeqCst);
        self.seq.fetch_add(1, Ordering::Release);
        futex::wake(&self.seq, u32::MAX);
        if let Some(fd) = fd {
            eventfd::signal(fd);
        }
    }

    /// How many rings had to wake a sleeper. For statistics: a peer can write it.
    pub fn wakes(&self) -> u32 {
        self.seq.load(Ordering::Relaxed)
    }

    /// Says that this thread is about to sleep: by [`FUTEX`], [`FD`] or both.
    ///
    /// After it the caller must look for data once more and [`cancel`](Self::cancel) if there is some. Bits add up, so
    /// one thread in [`park`](Self::park) and one in epoll may use the same bell at the same time. The ticket is for
    /// [`park`](Self::park).
    pub fn announce(&self, how: u32) -> u32 {
        let ticket = self.seq.load(Ordering::Relaxed);
        self.state.fetch_or(how, Ordering::SeqCst);
        barrier::heavy();
        ticket
    }

    /// Takes the announcement back, or tidies up after a sleep.
    ///
    /// Clears all bits, those of other sleepers too. Where there are several, use [`disarm`](Self::disarm), or none:
    /// a bit left behind costs one useless wake-up and nothing else.
    pub fn cancel(&self) {
        self.state.store(AWAKE, Ordering::Relaxed);
    }

    /// Takes back only the announcement `how`.
    pub fn disarm(&self, how: u32) {
        self.state.fetch_and(!how, Ordering::Relaxed);
    }

    /// Sleeps until the bell rings or the time is up. May come back early for no reason.
    ///
    /// Returns at once if it rang since the announcement that gave the ticket, or if no sleeper is announced any more.
    pub fn park(&self, ticket: u32, timeout: Option<Duration>) {
        if self.state.load(Ordering::Acquire) & FUTEX != 0 {
            futex::wait(&self.seq, ticket, timeout);
        }
    }

    /// Takes the announcements and wakes the sleepers on the word. The announcements that were there.
    #[cold]
    #[inline(never)]
    fn wake_slow(&self) -> u32 {
        let state = self.state.swap(AWAKE, Ordering::AcqRel);
        if state == AWAKE {
            return AWAKE; // another ringer was faster
        }
        // Before a sleeper is woken: a thread that compares later does not go to sleep.
        self.seq.fetch_add(1, Ordering::Release);
        // Unknown bits, which only a broken peer sets, are cleared and ignored.
        if state & FUTEX != 0 {
            futex::wake(&self.seq, u32::MAX);
        }
        state
    }
}

impl Default for BellWord {
    fn default() -> BellWord {
        BellWord::new()
    }
}

/// Sleeping on the word alone, for a bell with one sleeper.
impl Sleep for BellWord {
    fn announce(&self) -> u32 {
        self.announce(FUTEX)
    }

    fn cancel(&self) {
        self.disarm(FUTEX);
    }

    fn park(&self, ticket: u32, timeout: Option<Duration>) {
        self.park(ticket, timeout);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::eventfd::EventFd;

    #[test]
    fn layout_is_one_line() {
        assert_eq!((size_of::<BellWord>(), align_of::<BellWord>()), (64, 64));
        let bell = BellWord::default();
        assert!(bell.is_awake() && bell.pad.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn ring_without_sleeper_does_nothing() {
        let (bell, event) = (BellWord::new(), EventFd::new().unwrap());
        bell.ring(Some(event.as_fd()));
        assert!(!event.drain());
        assert_eq!(bell.wakes(), 0);
    }

    #[test]
    fn announced_fd_is_signalled_once() {
        let (bell, event) = (BellWord::new(), EventFd::new().unwrap());
        bell.announce(FD);
        bell.ring(Some(event.as_fd()));
        bell.ring(Some(event.as_fd()));
        assert!(event.drain() && bell.is_awake());
        assert_eq!(bell.wakes(), 1);
        bell.announce(FD);
        bell.ring(None);
        assert!(!event.drain() && bell.is_awake());
    }

    #[test]
    fn any_state_value_is_survived() {
        let (bell, event) = (BellWord::new(), EventFd::new().unwrap());
        for value in [4, u32::MAX, 0x8000_0000, 3] {
            bell.state.store(value, Ordering::Relaxed);
            bell.park(bell.wakes(), Some(Duration::from_millis(1)));
            bell.ring(Some(event.as_fd()));
            assert!(bell.is_awake());
        }
    }

    #[test]
    fn disarm_leaves_the_other_sleeper() {
        let bell = BellWord::new();
        bell.announce(FD);
        let ticket = bell.announce(FUTEX);
        bell.disarm(FUTEX);
        bell.park(ticket, None); // returns: not announced
        assert!(!bell.is_awake());
        bell.cancel();
        assert!(bell.is_awake());
    }

    #[test]
    fn a_sleeper_that_was_rung_for_does_not_park_although_another_announces_itself() {
        let bell = BellWord::new();
        let ticket = bell.announce(FUTEX);
        bell.ring(None);
        bell.announce(FUTEX);
        bell.park(ticket, None); // returns: it rang
    }

    #[test]
    fn an_alarm_wakes_a_sleeper_whose_announcement_was_taken() {
        let (bell, event) = (Arc::new(BellWord::new()), EventFd::new().unwrap());
        let ticket = bell.announce(FUTEX | FD);
        bell.state.store(AWAKE, Ordering::Relaxed); // a ringer that died before it woke anybody
        let sleeper = bell.clone();
        let parked = std::thread::spawn(move || futex::wait(&sleeper.seq, ticket, None));
        bell.alarm(Some(event.as_fd()));
        parked.join().unwrap();
        assert!(event.drain());
    }

    /// No wake-up is lost over many hand-offs in both directions. A lost one would hang here.
    #[test]
    fn ping_pong_between_threads() {
        const ROUNDS: u64 = 20_000;
        barrier::register();
        struct Side {
            bell: BellWord,
            data: AtomicU64,
        }
        let sides = Arc::new([(); 2].map(|()| Side { bell: BellWord::new(), data: AtomicU64::new(0) }));
        let play = |me: usize| {
            let sides = Arc::clone(&sides);
            move || {
                for round in 1..=ROUNDS {
                    if me == 0 {
                        sides[1].data.store(round, Ordering::Release);
                        sides[1].bell.ring(None);
                    }
                    while sides[me].data.load(Ordering::Acquire) != round {
                        let ticket = sides[me].bell.announce(FUTEX);
                        if sides[me].data.load(Ordering::Acquire) != round {
                            sides[me].bell.park(ticket, None);
                        }
                        sides[me].bell.cancel();
                    }
                    if me == 1 {
                        sides[0].data.store(round, Ordering::Release);
                        sides[0].bell.ring(None);
                    }
                }
            }
        };
        let other = std::thread::spawn(play(1));
        play(0)();
        other.join().unwrap();
    }
}
