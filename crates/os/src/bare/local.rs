//! A lock of one process for short sections of memory accesses: it knows its thread, so that a signal handler which
//! interrupts the holder does not wait for it, and it can be reset in a child.

use core::sync::atomic::{AtomicU32, Ordering};

use super::{calls, whoami};

/// The lock. It guards no data of its own; what it guards is made of atomics.
#[derive(Debug, Default)]
pub struct LocalLock(AtomicU32);

/// Holds a [`LocalLock`] until it is dropped.
#[derive(Debug)]
pub struct Held<'a>(&'a LocalLock);

impl LocalLock {
    /// A free one.
    pub const fn new() -> LocalLock {
        LocalLock(AtomicU32::new(0))
    }

    /// Takes it; `None` if this very thread holds it already, which happens in signal handlers only.
    #[inline]
    pub fn lock(&self) -> Option<Held<'_>> {
        let me = whoami::thread();
        let mut looks = 0u32;
        loop {
            match self.0.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Held(self)),
                Err(owner) if owner == me => return None,
                Err(_) => {
                    looks += 1;
                    if looks.is_multiple_of(64) { calls::yield_now() } else { core::hint::spin_loop() }
                }
            }
        }
    }

    /// Frees it, for a child whose parent had it locked by a thread that does not exist here.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Release);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
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
}
