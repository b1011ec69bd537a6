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
//!
//! Where all wakers fence themselves, those of this process and those of every peer ([`LightPeer`]), a sleeper does too and
//! reaches no other CPU. A process chooses that from the start ([`force_symmetric`] before [`register`]; its peers hear of it
//! when they connect), or goes over to it when it finds that it sleeps often in a crowd, and has its peers do the same: a
//! message then costs some ten nanoseconds more, and a sleep interrupts no other CPU.
//!
//! A filter for system calls may be installed after registration. The first [`heavy`] that is refused then makes all threads
//! of this process fence for themselves, and runs the fence that it owes them by other means. Peers are not reached by
//! that: a wake-up that this process misses is found when its sleep ends, 200 ms later at most by default.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence, fence};

#[cfg(target_arch = "x86_64")]
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::thread::{MembarrierCommand, membarrier};

use crate::fork;

/// Registers this process; idempotent, and a forked child is registered again by the handlers of [`crate::fork`].
///
/// The process stays symmetric if the kernel or a sandbox refuses: correct, only slower.
pub fn register() {
    // Before the flag is up, so that a child forked in between finds the handler that re-registers it.
    fork::install();
    if !ASYMMETRIC.load(Ordering::Relaxed) && !FORCED.load(Ordering::Relaxed) {
        register_process();
        if FORCED.load(Ordering::SeqCst) {
            force_symmetric(); // another thread decided so meanwhile
        }
    }
}

/// Whether [`light`] is a compiler fence only. False until [`register`] succeeded.
#[inline]
pub fn asymmetric() -> bool {
    ASYMMETRIC.load(Ordering::Relaxed)
}

/// Gives up the bargain for this process and its children: [`light`] becomes a full fence. When it returns, no thread of this
/// process relies on the [`heavy`] of a sleeper any more.
///
/// For peers that cannot call membarrier, or that sleep so often that they ask for it.
pub fn force_symmetric() {
    FORCED.store(true, Ordering::SeqCst);
    ASYMMETRIC.store(false, Ordering::SeqCst);
    if RELIES.load(Ordering::Relaxed) {
        // Threads that have not seen the flag yet run their old, light fence at most once more; let this be that time.
        reach_all();
        RELIES.store(false, Ordering::SeqCst);
    }
}

/// A peer process whose wakers may leave the fence to the sleeper: as long as there is one, [`heavy`] reaches every CPU.
#[derive(Debug)]
pub struct LightPeer(());

impl LightPeer {
    /// One more; before it can ring.
    #[expect(clippy::new_without_default, reason = "it counts")]
    pub fn new() -> LightPeer {
        LIGHT_PEERS.fetch_add(1, Ordering::SeqCst);
        LightPeer(())
    }
}

impl Drop for LightPeer {
    fn drop(&mut self) {
        LIGHT_PEERS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether [`heavy`] has to reach other CPUs, because some waker does not fence itself.
pub fn reaches_out() -> bool {
    let wanted = RELIES.load(Ordering::Relaxed) || LIGHT_PEERS.load(Ordering::Relaxed) > 0;
    wanted && !REFUSED.load(Ordering::Relaxed)
}

/// The sleeper's half: a full fence here and, unless all wakers fence themselves, in every registered process that is
/// running at this moment.
pub fn heavy() {
    if reaches_out() {
        reach_all();
    } else {
        fence(Ordering::SeqCst);
    }
}

fn reach_all() {
    if !REFUSED.load(Ordering::Relaxed) {
        if membarrier(MembarrierCommand::GlobalExpedited).is_ok() {
            return;
        }
        refused();
    }
    fence(Ordering::SeqCst);
}

/// The command is refused, and will be: goes over to fences of every thread's own.
#[cold]
fn refused() {
    ASYMMETRIC.store(false, Ordering::SeqCst);
    if REGISTERED.load(Ordering::Relaxed) {
        // Threads that ran a light fence before they could see the flag.
        fence_all_threads();
    }
    // Only now: another thread that finds this set relies on what was done above.
    REFUSED.store(true, Ordering::Release);
}

/// Runs a full fence in every running thread of this process, without membarrier: taking a right from a page that is mapped
/// and in use interrupts each CPU which runs one of them, so that it forgets its translation.
#[cfg(target_arch = "x86_64")]
fn fence_all_threads() {
    let size = rustix::param::page_size();
    let both = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping, which nothing else knows of; it is written before the right is taken from it.
    let done = unsafe {
        mmap_anonymous(std::ptr::null_mut(), size, both, MapFlags::PRIVATE).and_then(|page| {
            page.cast::<u8>().write_volatile(1);
            let taken = mprotect(page, size, MprotectFlags::READ);
            taken.and(munmap(page, size))
        })
    };
    if done.is_err() {
        no_fence();
    }
}

/// Elsewhere other CPUs are told of a changed mapping without an interrupt.
#[cfg(not(target_arch = "x86_64"))]
fn fence_all_threads() {
    no_fence();
}

/// Going on would let two threads into one turn.
#[cold]
fn no_fence() -> ! {
    eprintln!(
        "viaduct: membarrier worked when this process registered and is refused now; install the filter for system calls \
         before the first NIC is opened, or allow membarrier"
    );
    std::process::abort()
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
/// The light fence was used at some time.
static REGISTERED: AtomicBool = AtomicBool::new(false);
/// The kernel or a sandbox is known to refuse the command, and no thread relies on it.
static REFUSED: AtomicBool = AtomicBool::new(false);
/// Full fences were asked for, for good.
static FORCED: AtomicBool = AtomicBool::new(false);
/// Threads of this process may leave the fence to the sleeper.
static RELIES: AtomicBool = AtomicBool::new(false);
/// Peers that may.
static LIGHT_PEERS: AtomicUsize = AtomicUsize::new(0);

fn register_process() {
    let known = membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
        && membarrier(MembarrierCommand::GlobalExpedited).is_ok();
    if known {
        REGISTERED.store(true, Ordering::SeqCst);
        RELIES.store(true, Ordering::SeqCst);
    }
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
