//! Whether other tasks want the CPU on which a thread would spin.
//!
//! A thread that spins yields now and then. A yield that takes long, and after which there is still nothing, gave the CPU
//! to a task that has nothing to do with this connection: for a time slice, while a sleeper would have been woken as soon as
//! its bytes came. The next waits sleep at once therefore; how many doubles as long as each try ends like that.

use std::sync::atomic::{AtomicU32, Ordering};

/// A yield that took longer, in nanoseconds, let another task run.
pub(super) const LONG: u64 = 25_000;
/// Waits that sleep at once after a first such yield, and at most.
const FEWEST: u32 = 64;
const MOST: u32 = 4096;

/// What yields have shown. Threads share it without a lock: a lost count changes how long it holds, and nothing else.
#[derive(Debug)]
pub(super) struct Crowd {
    /// Waits that are still to sleep at once.
    left: AtomicU32,
    /// How many the next bad yield asks for.
    next: AtomicU32,
}

impl Crowd {
    pub(super) const fn new() -> Crowd {
        Crowd { left: AtomicU32::new(0), next: AtomicU32::new(FEWEST) }
    }

    /// Whether the wait that begins is to sleep at once.
    pub(super) fn is_here(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// A yield took so long, and nothing came. True if that was long: other tasks want this CPU.
    pub(super) fn note_yield(&self, nanoseconds: u64) -> bool {
        let long = nanoseconds > LONG;
        if long {
            let next = self.next.load(Ordering::Relaxed);
            self.left.store(next, Ordering::Relaxed);
            self.next.store((next * 2).min(MOST), Ordering::Relaxed);
        }
        long
    }

    /// What was waited for came while spinning.
    pub(super) fn note_success(&self) {
        if self.next.load(Ordering::Relaxed) != FEWEST {
            self.next.store(FEWEST, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asleep(crowd: &Crowd) -> u32 {
        (0..2 * MOST).take_while(|_| crowd.is_here()).count() as u32
    }

    #[test]
    fn bad_yields_make_waits_sleep_at_once_longer_and_longer() {
        let crowd = Crowd::new();
        assert!(!crowd.is_here() && !crowd.note_yield(LONG) && !crowd.is_here());
        for expected in [64, 128, 256, 512, 1024, 2048, 4096, 4096] {
            assert!(crowd.note_yield(LONG + 1));
            assert_eq!(asleep(&crowd), expected);
        }
        crowd.note_success();
        assert!(crowd.note_yield(4_000_000));
        assert_eq!(asleep(&crowd), 64);
    }
}
