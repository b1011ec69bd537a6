//! A NIC's sleeping place for several threads: it is awake again only when the last of them is.
//!
//! For layers that keep a NIC behind a lock of their own. A thread that goes to sleep announces it, looks once more
//! under that lock, and parks without it; a thread that did something under the lock that others may wait for wakes them
//! afterwards.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::Thread;
use std::time::Duration;

use viaduct_os::wait::Sleep;

use crate::handle::Cq;
use crate::nic::Nic;
use crate::waiting::NicSleep;

/// Where the threads that share a NIC sleep.
#[derive(Clone)]
pub struct Sleepers {
    inner: NicSleep,
    counted: Arc<Counted>,
}

#[derive(Default)]
struct Counted {
    /// Held while the bell is told, so that the count and the bell agree.
    asleep: Mutex<()>,
    count: AtomicU32,
}

impl Nic {
    /// Where threads that share this NIC sleep. All of them use clones of one; two made apart do not know of each other.
    pub fn sleepers(&self) -> Sleepers {
        Sleepers { inner: self.sleep(), counted: Arc::default() }
    }

    /// Whether a thread that lets the NIC go without going to sleep has to wake the others: it has made VIs of this
    /// completion queue wait for their doorbells, and a thread that sleeps already cannot know that one of them
    /// may have missed its ring. The next thread that goes to sleep looks at them.
    #[inline]
    pub fn leaves_doubts(&self, cq: Cq) -> bool {
        self.cqs.get(cq.0).is_some_and(|cq| cq.has_cooling())
    }

    /// A thread that is unparked at every piece of news which is no message: a request, an answer, a peer that is gone.
    /// A parked thread costs the senders nothing, unlike one that sleeps on the bell.
    pub fn unpark_at_news(&self, thread: Option<Thread>) {
        self.signal.set_watcher(thread);
    }
}

impl Sleepers {
    /// Wakes the threads that sleep, if any do. What they are woken for was done under the lock under which they look.
    #[inline]
    pub fn wake_others(&self) {
        if self.any() {
            self.ring();
        }
    }

    /// Whether some thread sleeps, or is about to. Asked by the thread that has the NIC, or had it just now: a sleeper
    /// that looked at the NIC before announced itself before that, and one that looks later sees what was done.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.counted.count.load(Ordering::SeqCst) > 0
    }

    /// Rings the bell, also when no thread sleeps, and not in the middle of an announcement: a bell that is rung
    /// before it knows of the sleeper does not ring.
    #[cold]
    pub fn ring(&self) {
        let _held = self.hold();
        self.inner.ring();
    }

    /// Whether the lock of this sleeping place is free now. It is held for moments only; a thread that finds it taken for
    /// long holds it itself, below a signal handler.
    pub fn is_free(&self) -> bool {
        !matches!(self.counted.asleep.try_lock(), Err(TryLockError::WouldBlock))
    }

    fn hold(&self) -> MutexGuard<'_, ()> {
        self.counted.asleep.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Sleep for Sleepers {
    type Ticket = u32;

    fn announce(&self) -> u32 {
        let _held = self.hold();
        self.counted.count.fetch_add(1, Ordering::SeqCst);
        self.inner.announce()
    }

    fn cancel(&self) {
        let _held = self.hold();
        if self.counted.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.inner.cancel();
        }
    }

    fn park(&self, ticket: u32, timeout: Option<Duration>) {
        self.inner.park(ticket, timeout);
    }
}
