//! A lock of one process for short sections of memory accesses: it knows its thread, so that a signal handler which
//! interrupts the holder does not wait for it, and it can be reset in a child.
//!
//! A holder may be left for good: by a jump out of a signal handler, or because its thread ends in one. What is known of a
//! jump is said to [`LocalLock::leave`]. A holder of which nothing was said is found out when its thread comes again further up its
//! stack, or when another thread has waited long and the holder's does not exist any more.

use core::sync::atomic::{AtomicU32, Ordering};

use super::stack::{self, Entered};
use super::{calls, whoami};

/// Looks after which a waiter asks whether the holder's thread lives.
const PATIENT_LOOKS: u32 = 4096;

/// The lock. It guards no data of its own; what it guards is made of atomics.
#[derive(Debug, Default)]
pub struct LocalLock {
    holder: AtomicU32,
}

/// Holds a [`LocalLock`] until it is dropped.
#[derive(Debug)]
pub struct Held<'a>(&'a LocalLock, Entered);

impl LocalLock {
    /// A free one.
    pub const fn new() -> LocalLock {
        LocalLock { holder: AtomicU32::new(0) }
    }

    /// Takes it; `None` if this very thread holds it already, which happens in signal handlers only.
    #[inline(always)]
    pub fn lock(&self) -> Option<Held<'_>> {
        let (me, here) = (whoami::thread(), stack::here());
        // The thread's note of its innermost such frame is enough: frames that take locks inside each other are left together.
        let entered = Entered::note(here);
        if self.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err()
            && !self.contend(me, here, entered)
        {
            entered.leave();
            return None;
        }
        Some(Held(self, entered))
    }

    /// Waits for it. False if this thread holds it already.
    #[cold]
    #[inline(never)]
    fn contend(&self, me: u32, here: usize, entered: Entered) -> bool {
        let mut looks = 0u32;
        loop {
            match self.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(holder) if holder == me => {
                    return entered.outer != 0 && stack::is_left(entered.outer, here);
                }
                Err(holder) => {
                    looks += 1;
                    let lost = looks.is_multiple_of(PATIENT_LOOKS)
                        && !calls::has_thread(calls::process_id(), holder);
                    let take = || {
                        self.holder.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
                    };
                    if lost && take() {
                        return true;
                    }
                    if looks.is_multiple_of(64) { calls::yield_now() } else { core::hint::spin_loop() }
                }
            }
        }
    }

    /// This thread is about to go on with its stack at `target`: frees the lock if a frame that held it is left for good. Whether
    /// that was so.
    pub fn leave(&self, target: usize) -> bool {
        let holder = self.holder.load(Ordering::Relaxed);
        let left = holder != 0 && holder == whoami::thread() && stack::is_left(stack::holder(0), target);
        if left {
            self.reset();
        }
        left
    }

    /// Frees it, for a child whose parent had it locked by a thread that does not exist here.
    pub fn reset(&self) {
        self.holder.store(0, Ordering::Release);
    }
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.reset();
        self.1.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        static LOCK: LocalLock = LocalLock::new();
        let held = LOCK.lock().unwrap();
        assert!(LOCK.lock().is_none());
        let other = std::thread::spawn(|| LOCK.lock().is_some());
        drop(held);
        assert!(other.join().unwrap());
        std::mem::forget(LOCK.lock());
        LOCK.reset();
        assert!(LOCK.lock().is_some());
    }

    #[inline(never)]
    fn hold_and_leave(lock: &LocalLock) {
        std::mem::forget(lock.lock());
        assert!(lock.lock().is_none(), "its own frame has it");
    }

    #[test]
    fn a_frame_that_was_left_holds_nothing() {
        static LOCK: LocalLock = LocalLock::new();
        hold_and_leave(&LOCK);
        assert!(!LOCK.leave(1), "a jump inside of a handler");
        assert!(LOCK.leave(stack::here()) && !LOCK.leave(stack::here()));
        hold_and_leave(&LOCK);
        assert!(LOCK.lock().is_some(), "that frame is gone, though no jump was told");
        assert!(std::thread::spawn(|| LOCK.lock().is_some()).join().unwrap());
    }

    #[test]
    fn a_thread_that_has_ended_holds_nothing() {
        static LOCK: LocalLock = LocalLock::new();
        whoami::check();
        std::thread::spawn(|| hold_and_leave(&LOCK)).join().unwrap();
        assert!(LOCK.lock().is_some());
    }
}
