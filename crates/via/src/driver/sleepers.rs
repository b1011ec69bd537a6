//! A NIC's sleeping place for several threads: it is awake again only when the last of them is.
//!
//! A thread that goes to sleep announces it, looks once more in its turn, and parks without it; a thread that did something
//! in its turn that others may wait for wakes them afterwards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::{Thread, ThreadId};
use std::time::Duration;

use viaduct_os::wait::Sleep;

use crate::error::Error;
use crate::nic::Nic;
use crate::waiting::NicSleep;

/// One watcher of the pollable descriptor, in the word that counts threads below it.
const WATCHER: u64 = 1 << 32;
/// The lookout, among the threads: it is woken by name.
const LOOKOUT: u64 = 1 << 31;

/// Where the threads that share a NIC sleep.
#[derive(Clone)]
pub(super) struct Sleepers {
    inner: NicSleep,
    counted: Arc<Counted>,
}

#[derive(Default)]
struct Counted {
    /// Held while the bell is told, so that the count and the bell agree. The threads that wait at objects and have fallen asleep once,
    /// parked or not.
    asleep: Mutex<Vec<Thread>>,
    /// Threads that sleep in the lower half, with a bit for the lookout; watchers in the upper half.
    count: AtomicU64,
}

impl Sleepers {
    pub(super) fn new(inner: NicSleep) -> Sleepers {
        Sleepers { inner, counted: Arc::default() }
    }

    /// Whether some thread sleeps or watches, or is about to. Asked by the thread that has the NIC, or had it just now: a
    /// sleeper that looked at the NIC before announced itself before that, and one that looks later sees what was done.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.counted.count.load(Ordering::SeqCst) > 0
    }

    /// Whether some thread sleeps or watches that is not woken by name. Asked as [`any`](Self::any) is.
    #[inline]
    pub(super) fn any_unnamed(&self) -> bool {
        self.counted.count.load(Ordering::SeqCst) & !LOOKOUT > 0
    }

    /// Whether some thread sleeps on the bell, or is about to.
    pub(super) fn any_thread(&self) -> bool {
        self.counted.count.load(Ordering::SeqCst) as u32 > 0
    }

    /// Arms the pollable descriptor. It is cleared if there are no more watchers than the caller's: others may not have seen
    /// yet that it is readable. What comes next signals it either way, which wakes an event loop that heard of it before.
    pub(super) fn arm(&self, nic: &mut Nic, callers: u64) -> Result<(), Error> {
        let watchers = self.counted.count.load(Ordering::SeqCst) / WATCHER;
        if watchers <= callers { nic.arm() } else { nic.arm_again() }
    }

    /// One more. The caller has the NIC.
    pub(super) fn add_watcher(&self) {
        self.counted.count.fetch_add(WATCHER, Ordering::SeqCst);
    }

    /// One less. Returns true if it was the last.
    pub(super) fn remove_watcher(&self) -> bool {
        self.counted.count.fetch_sub(WATCHER, Ordering::SeqCst) / WATCHER == 1
    }

    /// Rings the bell, also when no thread sleeps, and not in the middle of an announcement: a bell that is rung
    /// before it knows of the sleeper does not ring.
    #[cold]
    pub(super) fn ring(&self) {
        let _held = self.hold();
        self.inner.ring();
    }

    /// A thread waits at an object from here on, until it [leaves](Self::leave), and may be parked.
    pub(super) fn enter(&self, thread: Thread) {
        self.hold().push(thread);
    }

    /// It waits no more.
    pub(super) fn leave(&self, thread: ThreadId) {
        let mut asleep = self.hold();
        if let Some(at) = asleep.iter().position(|other| other.id() == thread) {
            asleep.swap_remove(at);
        }
    }

    /// Rings the bell, and has the threads look again that wait at objects, too.
    #[cold]
    pub(super) fn wake_all(&self) {
        let asleep = self.hold();
        self.inner.ring();
        asleep.iter().for_each(Thread::unpark);
    }

    /// A thread that is unparked at every piece of news which is no message: a request, an answer, a peer that is gone.
    /// A parked thread costs the senders nothing, unlike one that sleeps on the bell.
    pub(super) fn unpark_at_news(&self, thread: Option<Thread>) {
        self.inner.unpark_at_news(thread);
    }

    /// Whether the lock of this sleeping place is free now. It is held for moments only; a thread that finds it taken for
    /// long holds it itself, below a signal handler.
    pub(super) fn is_free(&self) -> bool {
        !matches!(self.counted.asleep.try_lock(), Err(TryLockError::WouldBlock))
    }

    fn hold(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.counted.asleep.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Sleepers {
    /// The lookout is about to sleep. As [`Sleep::announce`] else.
    pub(super) fn announce_lookout(&self) -> u32 {
        self.announce_as(LOOKOUT)
    }

    /// The lookout is awake.
    pub(super) fn cancel_lookout(&self) {
        self.cancel_as(LOOKOUT);
    }

    fn announce_as(&self, unit: u64) -> u32 {
        let _held = self.hold();
        self.counted.count.fetch_add(unit, Ordering::SeqCst);
        self.inner.announce()
    }

    fn cancel_as(&self, unit: u64) {
        let _held = self.hold();
        if u64::from(self.counted.count.fetch_sub(unit, Ordering::SeqCst) as u32) == unit {
            self.inner.cancel();
        }
    }
}

impl Sleep for Sleepers {
    fn announce(&self) -> u32 {
        self.announce_as(1)
    }

    fn cancel(&self) {
        self.cancel_as(1);
    }

    fn park(&self, ticket: u32, timeout: Option<Duration>) {
        self.inner.park(ticket, timeout);
    }
}
