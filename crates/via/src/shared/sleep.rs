//! Sleeping when several threads do it on one NIC.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use viaduct_os::wait::Sleep;

use crate::waiting::NicSleep;

/// The NIC's sleeping place with several sleepers: it is awake again only when the last one is.
#[derive(Clone)]
pub(super) struct SharedSleep {
    inner: NicSleep,
    sleepers: Arc<Sleepers>,
}

#[derive(Default)]
struct Sleepers {
    /// Held while one announces itself or gets up, so that the place knows of one sleeper at least as long as there is.
    change: Mutex<()>,
    count: AtomicU32,
}

impl SharedSleep {
    pub(super) fn new(inner: NicSleep) -> SharedSleep {
        SharedSleep { inner, sleepers: Arc::default() }
    }

    /// Whether some thread sleeps, or is about to. Asked by who has the NIC: a sleeper that looked at the NIC before
    /// announced itself before that, and one that looks later sees what was done.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.sleepers.count.load(Ordering::Relaxed) > 0
    }

    pub(super) fn ring(&self) {
        self.inner.ring();
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.sleepers.change.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Sleep for SharedSleep {
    type Ticket = u32;

    fn announce(&self) -> u32 {
        let _change = self.change();
        self.sleepers.count.fetch_add(1, Ordering::Relaxed);
        self.inner.announce()
    }

    fn cancel(&self) {
        let _change = self.change();
        if self.sleepers.count.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.inner.cancel();
        }
    }

    fn park(&self, ticket: u32, timeout: Option<Duration>) {
        self.inner.park(ticket, timeout);
    }
}
