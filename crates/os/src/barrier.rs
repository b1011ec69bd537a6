//! The asymmetric memory barrier: free for the side that runs often, a system call for the side that is about to sleep.
//!
//! Design, section 2.2: the waker makes a system call only if a sleeper said so. Finding that out takes a store, a
//! full fence and a load; the fence costs more than the rest of a small message. With `membarrier(GLOBAL_EXPEDITED)`
//! the sleeper makes every CPU that runs a registered process execute that fence at its own cost, and the waker is
//! left with a fence for the compiler only.
//!
//! The bargain needs both sides: it holds only if the *waker's* process is registered and the *sleeper's* kernel lets it
//! call. Two processes therefore tell each other [`asymmetric`] when they connect, and a process whose peer said no
//! calls [`force_symmetric`]. This is no lock and orders nothing else.

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

use rustix::thread::{MembarrierCommand, membarrier};

use crate::fork;

/// Registers this process; idempotent, and a forked child is registered again by the handlers of [`crate::fork`].
///
/// Without a word the process stays symmetric if the kernel or a sandbox refuses: correct, only slower.
pub fn register() {
    // Before the flag is up, so that a child forked in between finds the handler that re-registers it.
    fork::install();
    if !ASYMMETRIC.load(Ordering::Relaxed) && !FORCED.load(Ordering::Relaxed) {
        register_process();
    }
}

/// Whether [`light`] is a compiler fence only. False until [`register`] succeeded.
#[inline]
pub fn asymmetric() -> bool {
    ASYMMETRIC.load(Ordering::Relaxed)
}

/// Gives up the bargain for this process and its children: [`light`] becomes a full fence.
///
/// For peers that cannot call membarrier, and for tests.
pub fn force_symmetric() {
    FORCED.store(true, Ordering::Relaxed);
    ASYMMETRIC.store(false, Ordering::SeqCst);
    // Threads that have not seen the flag yet run their old, light fence at most once more; let this be that time.
    heavy();
}

/// The sleeper's half: a full fence here and in every registered process that is running at this moment.
pub fn heavy() {
    // Whether this process is registered does not matter here: peers may ring lightly even if we do not.
    if !REFUSED.load(Ordering::Relaxed) {
        match membarrier(MembarrierCommand::GlobalExpedited) {
            Ok(()) => return,
            Err(_) => REFUSED.store(true, Ordering::Relaxed), // the answer stays the same: do not ask again
        }
    }
    fence(Ordering::SeqCst);
}

/// The waker's half: orders its earlier store before its later load against a peer's [`heavy`].
#[inline]
pub fn light() {
    if asymmetric() {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// Called in a forked child by `fork`: one system call, no allocation.
pub(crate) fn after_fork() {
    if ASYMMETRIC.load(Ordering::Relaxed) {
        register_process();
    }
}

/// The waker may use the light fence.
static ASYMMETRIC: AtomicBool = AtomicBool::new(false);
/// The kernel or a sandbox is known to refuse the command.
static REFUSED: AtomicBool = AtomicBool::new(false);
/// Somebody asked for full fences for good.
static FORCED: AtomicBool = AtomicBool::new(false);

fn register_process() {
    let known = membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
        && membarrier(MembarrierCommand::GlobalExpedited).is_ok();
    ASYMMETRIC.store(known, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registration_is_idempotent_and_fences_run() {
        register();
        let first = asymmetric();
        register();
        assert_eq!(first, asymmetric());
        light();
        heavy();
    }
}
