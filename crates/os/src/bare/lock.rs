//! A lock in memory that processes share, which does not stay locked when its owner dies.
//!
//! Design, section 2.4. The word names its owner: process, thread, and a second (since boot) at which that process was
//! alive. A waiter that has waited long asks the kernel: if there is no such process, one without that thread, or one that was
//! started later than that second (the number was given out again), the owner is dead and the lock is taken over. That is sound only for what is
//! published by one store or one compare-and-swap after the work is done: a new owner finds either all of it or nothing.
//!
//! A thread that finds itself as the owner was interrupted by a signal in the middle, and either its handler calls
//! again or it left by longjmp. It gets the lock, too: an owner publishes by compare-and-swap, so that the
//! interrupted one notices.
//!
//! A peer may write anything into the word. It can keep the lock from being taken, and nothing else: waiting has an end.

use super::calls;
use super::sync::{AtomicU64, Ordering};

/// Looks at the word before the kernel is asked about its owner. A model has few of them, since loom tries each order.
const PATIENT_LOOKS: u32 = if cfg!(loom) { 2 } else { 200 };
/// Questions after which the lock is given up: each is a yield and a sleep of a millisecond, so ten seconds and more.
const MOST_QUESTIONS: u32 = 10_000;

const NUMBER: u64 = (1 << 22) - 1;
const SECOND: u64 = (1 << 20) - 1;

/// A thread of a process that was alive at some second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u64);

impl Owner {
    /// Numbers of processes and threads have 22 bits on Linux.
    #[inline]
    pub fn new(process: u32, thread: u32, second: u64) -> Owner {
        Owner((u64::from(process) & NUMBER) << 42 | (u64::from(thread) & NUMBER) << 20 | second & SECOND)
    }

    fn process(self) -> u32 {
        (self.0 >> 42) as u32
    }

    fn thread(self) -> u32 {
        (self.0 >> 20 & NUMBER) as u32
    }

    /// Whether the kernel says that this thread has ended. Where it does not say, the thread lives: as long as a lock is kept from
    /// others, no byte is lost.
    fn is_dead(self) -> bool {
        let (process, thread) = (self.process(), self.thread());
        if !calls::has_thread(process, thread)
            || matches!(calls::state_of(process, thread), Some(b'Z' | b'X'))
        {
            return true;
        }
        // A number that was given out again belongs to a process that is younger; seconds wrap after twelve days. Only the process
        // tells: its threads may be started at any time after the second that the owner names.
        let age = |start: u64| (start & SECOND).wrapping_sub(self.0 & SECOND) & SECOND;
        calls::start_of(process).is_some_and(|start| (2..SECOND / 2).contains(&age(start)))
    }
}

/// How a lock was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was free.
    Free,
    /// Its owner is dead.
    FromTheDead,
    /// This thread had it already.
    Again,
    /// It was not: the owner lives and keeps it, or the word was spoilt.
    Refused,
}

/// The lock. All zeros is free.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct RecoverableLock(AtomicU64);

impl RecoverableLock {
    /// Takes it, and waits for it if need be.
    #[inline]
    pub fn lock(&self, me: Owner) -> Taken {
        match self.0.compare_exchange(0, me.0, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Taken::Free,
            Err(owner) => self.contend(me, owner),
        }
    }

    #[cold]
    fn contend(&self, me: Owner, mut owner: u64) -> Taken {
        let mut looks = 0;
        let mut questions = 0;
        loop {
            if owner == me.0 {
                return Taken::Again;
            }
            let try_from = |value| self.0.compare_exchange(value, me.0, Ordering::Acquire, Ordering::Relaxed);
            if owner == 0 {
                match try_from(0) {
                    Ok(_) => return Taken::Free,
                    Err(now) => owner = now,
                }
                continue;
            }
            looks += 1;
            if looks > PATIENT_LOOKS {
                if Owner(owner).is_dead() && try_from(owner).is_ok() {
                    return Taken::FromTheDead;
                }
                questions += 1;
                if questions > MOST_QUESTIONS {
                    return Taken::Refused;
                }
                looks = PATIENT_LOOKS / 2;
                let _ = calls::poll(&mut [], Some(1_000_000), None);
            }
            if looks % 8 == 0 {
                calls::yield_now()
            } else {
                core::hint::spin_loop()
            }
            owner = self.0.load(Ordering::Relaxed);
        }
    }

    /// Whether this thread has it.
    pub fn is_held_by(&self, me: Owner) -> bool {
        self.0.load(Ordering::Relaxed) == me.0
    }

    /// Gives it back. Nothing happens if it is another's by now.
    ///
    /// While its owner lives no other thread changes the word, so that giving it back has to be one step towards handlers of this
    /// thread's signals, which may have given it back already, and need not be one towards other cores: one instruction, without
    /// the lock of the bus that makes it three times as long.
    #[inline]
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    pub fn unlock(&self, me: Owner) {
        if self.0.load(Ordering::Relaxed) != me.0 {
            return;
        }
        // SAFETY: the word is valid and aligned. Stores of x86 are seen in their order, so all that was done under the lock is
        // seen before it is free.
        unsafe {
            core::arch::asm!(
                "cmpxchg qword ptr [{word}], {free}",
                word = in(reg) self.0.as_ptr(),
                free = in(reg) 0u64,
                inout("rax") me.0 => _,
                options(nostack),
            );
        }
    }

    /// Gives it back. Nothing happens if it is another's by now.
    #[inline]
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    pub fn unlock(&self, me: Owner) {
        let _ = self.0.compare_exchange(me.0, 0, Ordering::Release, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::bare::whoami;

    #[test]
    fn one_at_a_time() {
        whoami::check();
        let (lock, count) = (RecoverableLock::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let me = whoami::owner();
                    for _ in 0..2_000 {
                        assert_eq!(lock.lock(me), Taken::Free);
                        let before = count.load(Ordering::Relaxed);
                        std::hint::spin_loop();
                        count.store(before + 1, Ordering::Relaxed);
                        lock.unlock(me);
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 8_000);
    }

    #[test]
    fn the_owner_may_come_again() {
        whoami::check();
        let (lock, me) = (RecoverableLock::default(), whoami::owner());
        assert_eq!((lock.lock(me), lock.lock(me)), (Taken::Free, Taken::Again));
        lock.unlock(me);
        assert_eq!(lock.lock(me), Taken::Free);
    }

    #[test]
    fn a_dead_owner_is_followed_by_the_next() {
        whoami::check();
        // SAFETY: an anonymous mapping of a page; zeros are a free lock. It stays until the process ends.
        let lock = unsafe {
            let (access, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            let page = libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            &*page.cast::<RecoverableLock>()
        };
        // SAFETY: the child makes system calls only and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            whoami::check();
            lock.lock(whoami::owner());
            // SAFETY: ends the child as a kill would.
            unsafe { libc::_exit(0) };
        }
        // It has ended, and no one has waited for it: the kernel still lists it.
        // SAFETY: a plain structure, for which zeros are good.
        let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: waits for our own child and leaves it to be waited for again.
        let ended =
            unsafe { libc::waitid(libc::P_PID, child as u32, &raw mut about, libc::WEXITED | libc::WNOWAIT) };
        assert_eq!((ended, lock.lock(whoami::owner())), (0, Taken::FromTheDead));
        // SAFETY: as above.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    }

    #[test]
    fn a_number_that_was_given_out_again_is_no_owner() {
        let pid = std::process::id();
        let started = calls::start_of(pid).unwrap();
        assert!(!Owner::new(pid, pid, started + 1).is_dead());
        assert!(!Owner::new(pid, pid, started).is_dead());
        assert!(Owner::new(pid, pid, started.wrapping_sub(10)).is_dead());
        assert!(Owner::new(0x3f_fff0, 1, started).is_dead());
        assert!(Owner::new(pid, 1, started).is_dead(), "that thread is another process's");
    }

    #[test]
    fn a_thread_that_has_ended_is_no_owner() {
        whoami::check();
        let lock = RecoverableLock::default();
        std::thread::scope(|scope| {
            scope.spawn(|| lock.lock(whoami::owner()));
        });
        assert_eq!(lock.lock(whoami::owner()), Taken::FromTheDead);
    }
}
