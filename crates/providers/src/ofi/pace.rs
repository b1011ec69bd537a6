//! Which thread moves the engine on: the owner of the NIC while it polls, the control thread while it does not.
//!
//! libfabric's descriptors are readable for both. If the control thread came for every message that an owner in a loop is
//! about to take, the two would fight over the lock; so it stays away for a moment when it sees that the owner polls. An
//! owner that goes to sleep says so, and calls it back.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use viaduct_os::epoll::{Epoll, Interest};
use viaduct_os::error::OsError;
use viaduct_os::eventfd::EventFd;
use viaduct_os::wait::Sleep;
use viaduct_via::Error;
use viaduct_via::provider::Sleeper;

/// How long the control thread stays away before it looks whether the owner still polls: each time that it finds it in a
/// tight loop twice as long, because every wake-up costs the owner some microseconds if they share a core.
const ASIDE: Duration = Duration::from_millis(1);
const LONGEST_ASIDE: Duration = Duration::from_millis(8);
/// Looks in a millisecond that only a tight loop makes.
const TIGHT: u64 = 100;
/// How long in a row if the loop is not tight: an owner that looks now and then moves little on. In a tight loop the owner has all
/// the duties, and keeps the lock nearly all of the time: to fight for it would cost both more than it is worth.
const SLOW_ASIDE: Duration = Duration::from_millis(50);

/// Looks in a row that are a loop: more than a waiter makes before it goes to sleep.
const LOOP: u32 = 32;

/// A thread sleeps on the bell, or in poll or epoll.
const PARKED: u32 = 1;
const ARMED: u32 = 2;

pub(super) struct Pace {
    /// Looks of the owner, under the engine's lock.
    polls: AtomicU64,
    asleep: AtomicU32,
    /// The control thread stays away.
    aside: AtomicBool,
    /// There is something that only the control thread does.
    called: AtomicBool,
    /// It sleeps on a list of descriptors, and does not know yet that it has changed. Written under the engine's lock, but
    /// for its end.
    pub(super) listed: AtomicBool,
    /// Looks of the owner since it does, under the engine's lock; and that there were enough of them for a loop.
    looks: AtomicU32,
    looping: AtomicBool,
    /// Wakes the control thread, wherever it sleeps.
    pub(super) wake: EventFd,
    /// Nothing but that.
    only_wake: Epoll,
}

impl Pace {
    pub(super) fn new() -> Result<Pace, OsError> {
        let (wake, only_wake) = (EventFd::new()?, Epoll::new()?);
        only_wake.add(&wake, 0, Interest::Read)?;
        Ok(Pace {
            polls: AtomicU64::new(0),
            asleep: AtomicU32::new(0),
            aside: AtomicBool::new(false),
            called: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            looks: AtomicU32::new(0),
            looping: AtomicBool::new(false),
            wake,
            only_wake,
        })
    }

    /// The owner has looked.
    pub(super) fn polled(&self) {
        // Only ever written under the engine's lock.
        self.polls.store(self.polls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if !self.listed.load(Ordering::Relaxed) {
            return;
        }
        // A thread that looks while the control thread sleeps on a list has to compare the list each time. An owner in a loop does
        // not: it sends the control thread aside. That may not get to run for milliseconds on the same core.
        let looks = self.looks.load(Ordering::Relaxed) + 1;
        self.looks.store(looks, Ordering::Relaxed);
        if looks > LOOP {
            self.looping.store(true, Ordering::Relaxed);
            self.unlist();
        }
    }

    /// The control thread begins to sleep on a list.
    pub(super) fn list(&self) {
        self.looks.store(0, Ordering::Relaxed);
        self.listed.store(true, Ordering::Relaxed);
    }

    /// The list is not worth sleeping on any more.
    pub(super) fn unlist(&self) {
        self.listed.store(false, Ordering::Relaxed);
        self.wake.signal();
    }

    /// Calls the control thread for something that only it does.
    pub(super) fn call(&self) {
        self.called.store(true, Ordering::SeqCst);
        self.wake.signal();
    }

    /// The control thread comes: what it was called for, it will see under the lock.
    pub(super) fn clear_call(&self) {
        self.called.store(false, Ordering::SeqCst);
    }

    /// The control thread is awake. Whether it stays away, if `messages` were all that woke it.
    pub(super) fn defers_to_owner(&self, messages: bool) -> bool {
        // Before the look at what it was called for, which is in `step_aside`.
        self.wake.drain();
        self.looping.swap(false, Ordering::Relaxed) || messages
    }

    /// The control thread: stays away as long as the owner polls. `seen` is what it saw the last time.
    pub(super) fn step_aside(&self, seen: &mut u64) {
        let (mut aside, mut slow) = (Duration::ZERO, Duration::ZERO);
        while slow < SLOW_ASIDE && !self.called.load(Ordering::SeqCst) {
            let polls = self.polls.load(Ordering::Relaxed);
            let before = std::mem::replace(seen, polls);
            if before == polls {
                return;
            }
            let tight = !aside.is_zero() && polls.wrapping_sub(before) > TIGHT * aside.as_millis() as u64;
            if tight {
                aside = (2 * aside).min(LONGEST_ASIDE);
            } else {
                aside = ASIDE;
                slow += ASIDE;
            }
            // Said before the look, as the owner says that it sleeps before it looks at this: one sees the other.
            self.aside.store(true, Ordering::SeqCst);
            let called = self.asleep.load(Ordering::SeqCst) != 0
                || self.only_wake.wait(&mut Vec::new(), Some(aside)).is_ok_and(|n| n > 0);
            self.aside.store(false, Ordering::Relaxed);
            if called {
                return;
            }
        }
    }

    fn sleeps(&self, how: u32) {
        self.asleep.fetch_or(how, Ordering::SeqCst);
        if self.aside.load(Ordering::SeqCst) {
            self.wake.signal();
        }
    }

    fn awake(&self, how: u32) {
        self.asleep.fetch_and(!how, Ordering::Relaxed);
    }
}

/// A NIC's sleeping place that tells the control thread of sleepers, once there is one.
pub(crate) struct Paced {
    pub(super) inner: Arc<dyn Sleeper>,
    pace: OnceLock<Arc<Pace>>,
}

impl Paced {
    pub(crate) fn new(inner: Arc<dyn Sleeper>) -> Paced {
        Paced { inner, pace: OnceLock::new() }
    }

    /// From now on sleepers announce themselves. One that sleeps already is woken, to do so again.
    pub(super) fn set(&self, pace: Arc<Pace>) {
        // There is one control thread to a NIC, so this is called once.
        let _ = self.pace.set(pace);
        self.inner.ring();
    }

    fn sleeps(&self, how: u32) {
        if let Some(pace) = self.pace.get() {
            pace.sleeps(how);
        }
    }

    fn awake(&self, how: u32) {
        if let Some(pace) = self.pace.get() {
            pace.awake(how);
        }
    }
}

impl Sleep for Paced {
    fn announce(&self) -> u32 {
        self.sleeps(PARKED);
        self.inner.announce()
    }

    fn cancel(&self) {
        self.awake(PARKED);
        self.inner.cancel();
    }

    fn park(&self, ticket: u32, timeout: Option<Duration>) {
        self.inner.park(ticket, timeout);
    }
}

impl Sleeper for Paced {
    fn ring(&self) {
        self.inner.ring();
    }

    fn arm_fd(&self) -> Result<(), Error> {
        self.sleeps(ARMED);
        self.inner.arm_fd()
    }

    fn drain_fd(&self) {
        self.awake(ARMED);
        self.inner.drain_fd();
    }

    fn fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.inner.fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "needs epoll")]
    fn the_control_thread_stays_away_only_while_the_owner_polls() {
        let pace = Pace::new().unwrap();
        let mut seen = 0;
        pace.step_aside(&mut seen); // the owner never polled: returns at once, or the test hangs below
        pace.polled();
        pace.step_aside(&mut seen);
        assert_eq!(seen, 1, "one more look, and no poll since");
        // A sleeper needs it now, however much was polled before.
        pace.polled();
        pace.sleeps(PARKED);
        pace.step_aside(&mut seen);
        assert_eq!(seen, 2);
        assert!(!pace.aside.load(Ordering::Relaxed));
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs epoll")]
    fn an_owner_in_a_loop_sends_it_away_but_not_from_what_it_was_called_for() {
        let pace = Pace::new().unwrap();
        pace.list();
        for _ in 0..LOOP {
            pace.polled();
        }
        assert!(pace.listed.load(Ordering::Relaxed) && !pace.defers_to_owner(false));
        pace.polled();
        assert!(!pace.listed.load(Ordering::Relaxed), "the list is compared no more");
        assert_eq!(pace.only_wake.wait(&mut Vec::new(), None).unwrap(), 1, "and it is woken");
        assert!(pace.defers_to_owner(false) && !pace.defers_to_owner(false));
        let (done, mut seen) = (AtomicBool::new(false), 0);
        std::thread::scope(|scope| {
            let busy = scope.spawn(|| {
                for n in 0.. {
                    pace.polled();
                    if n == 100_000 {
                        pace.call();
                    }
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            while !pace.called.load(Ordering::SeqCst) {
                pace.step_aside(&mut seen);
                assert!(!busy.is_finished(), "it comes back although the owner polls");
            }
            done.store(true, Ordering::Relaxed);
        });
        pace.clear_call();
        assert!(!pace.called.load(Ordering::SeqCst));
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs epoll")]
    fn a_sleeper_calls_it_back() {
        let pace = Pace::new().unwrap();
        let mut seen = 0;
        std::thread::scope(|scope| {
            let busy = scope.spawn(|| {
                while !pace.aside.load(Ordering::SeqCst) {
                    pace.polled();
                }
                pace.sleeps(ARMED);
            });
            // It comes back by being called, or because the owner polls no more; in neither case it stays.
            while !busy.is_finished() {
                pace.polled();
                pace.step_aside(&mut seen);
            }
        });
        assert_ne!(pace.asleep.load(Ordering::Relaxed), 0);
    }
}
