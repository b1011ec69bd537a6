//! Atomics of the bell and of turns, by a name of their own: the loom models of `crates/providers` include those sources a
//! second time, with a module `sync` beside them that has loom's.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Looks at a thread that should be gone soon before the CPU is left to others, and then before we sleep.
const LOOKS: u32 = 64;
const YIELDS: u32 = 64;

/// Between two looks, of which there were so many.
pub(crate) fn pause(looks: u32) {
    if looks < LOOKS {
        std::hint::spin_loop();
    } else if looks < LOOKS + YIELDS {
        thread::yield_now();
    } else {
        thread::sleep(Duration::from_micros(50));
    }
}

/// A number of this thread that no other living thread has. One that is gone was out before a new one can have its.
#[inline(always)]
pub(crate) fn this_thread() -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let number: usize;
        // SAFETY: reads a word that says where it lies itself, once for each thread: so the interface of thread-local
        // storage has it. What `pthread_self` gives, without the call.
        unsafe {
            std::arch::asm!("mov {}, fs:0", out(reg) number, options(nostack, preserves_flags, readonly, pure));
        }
        number
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: always succeeds, and touches nothing.
    unsafe {
        libc::pthread_self() as usize
    }
}
