//! When the senders are asked to fence themselves: the owner of a NIC counts its sleeps, and where they are many and the CPUs
//! are crowded the control thread tells all peers.
//!
//! Going to sleep reaches every CPU with a barrier as long as some sender leaves the fence to it. One sleep now and then
//! is cheaper so; a process that sleeps between most messages, on CPUs that others wait for, interrupts those for each of
//! its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use viaduct_os::eventfd::EventFd;
use viaduct_os::{barrier, clock, cpu};

/// Sleeps between two looks at the machine.
const SLEEPS: u32 = 128;
/// Sleeps are frequent if so many take no longer than this: a hundred a second.
const SPAN_NS: u64 = SLEEPS as u64 * 10_000_000;
/// Looks that found a crowd, less those that did not, after which the peers are told.
const ENOUGH: u32 = 3;

const CALM: u8 = 0;
const WISHES: u8 = 1;
const ASKED: u8 = 2;

/// What a NIC knows of its sleeps.
pub(crate) struct Crowd {
    sleeps: AtomicU32,
    since: AtomicU64,
    found: AtomicU32,
    state: AtomicU8,
    /// Wakes the control thread.
    wake: Arc<EventFd>,
    /// Whether the peers may be asked at all.
    enabled: bool,
}

impl Crowd {
    pub(crate) fn new(wake: Arc<EventFd>, enabled: bool) -> Crowd {
        Crowd {
            sleeps: AtomicU32::new(0),
            since: AtomicU64::new(0),
            found: AtomicU32::new(0),
            state: AtomicU8::new(CALM),
            wake,
            enabled,
        }
    }

    /// A thread is about to sleep.
    #[inline]
    pub(crate) fn note_sleep(&self) {
        let sleeps = self.sleeps.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if self.enabled && sleeps.is_multiple_of(SLEEPS) && self.state.load(Ordering::Relaxed) == CALM {
            let now = clock::now_ns();
            let took = now.saturating_sub(self.since.swap(now, Ordering::Relaxed));
            self.judge(took, barrier::reaches_out() && cpu::crowded());
        }
    }

    #[cold]
    fn judge(&self, took: u64, crowded: bool) {
        let before = self.found.load(Ordering::Relaxed);
        let found = if crowded && took < SPAN_NS { before + 1 } else { before.saturating_sub(1) };
        self.found.store(found, Ordering::Relaxed);
        if found >= ENOUGH {
            self.state.store(WISHES, Ordering::Release);
            self.wake.signal();
        }
    }

    /// Whether the control thread has to ask now; it is told once.
    pub(crate) fn take_wish(&self) -> bool {
        self.state.compare_exchange(WISHES, ASKED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether the peers were asked; new ones are, too.
    pub(crate) fn has_asked(&self) -> bool {
        self.state.load(Ordering::Acquire) == ASKED
    }

    /// As if the peers had been asked.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn pretend_asked(&self) {
        self.state.store(ASKED, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn peers_are_asked_once_after_many_sleeps_in_a_crowd() {
        let crowd = Crowd::new(Arc::new(EventFd::new().unwrap()), true);
        for (took, crowded) in [(1, true), (1, true), (SPAN_NS, true), (1, false), (1, true), (1, true)] {
            crowd.judge(took, crowded);
            assert!(!crowd.take_wish() && !crowd.has_asked(), "rare sleeps, or free CPUs");
        }
        crowd.judge(1, true);
        assert!(crowd.take_wish() && crowd.has_asked());
        assert!(!crowd.take_wish(), "told once");
    }
}
