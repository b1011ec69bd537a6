//! Models of the lock word that outlives its owner (`crates/os/src/bare/lock.rs`, the real source): one thread is inside at a
//! time, one of several takes the lock over from an owner that is dead, and none from one that lives.
#![cfg(loom)]

mod model;

#[path = "../../os/src/bare/lock.rs"]
#[allow(dead_code, unreachable_pub)]
mod lock;

use std::sync::Arc;

use lock::{Owner, RecoverableLock, Taken};
use model::{Plain, Without, check, check_without, sync, thread};

/// Stands for the kernel, which knows one dead process. The others were started in the second that their owners name.
mod calls {
    pub(crate) const DEAD: u32 = 7;

    pub(crate) fn has_thread(process: u32, _: u32) -> bool {
        process != DEAD
    }

    pub(crate) fn state_of(process: u32, _: u32) -> Option<u8> {
        (process != DEAD).then_some(b'S')
    }

    pub(crate) fn start_of(process: u32) -> Option<u64> {
        (process != DEAD).then_some(0)
    }

    pub(crate) fn poll(_: &mut [u8], _: Option<u64>, _: Option<u64>) -> Result<usize, ()> {
        loom::thread::yield_now();
        Ok(0)
    }

    pub(crate) fn yield_now() {
        loom::thread::yield_now();
    }
}

fn owner(process: u32) -> Owner {
    Owner::new(process, process, 0)
}

/// A lock, and what it guards.
struct Guarded {
    lock: RecoverableLock,
    inside: Plain,
}

impl Guarded {
    fn new() -> Arc<Guarded> {
        Arc::new(Guarded { lock: RecoverableLock::default(), inside: Plain::new(0) })
    }

    /// One more, by a process that lives.
    fn count(&self, process: u32) -> Taken {
        let taken = self.lock.lock(owner(process));
        assert_ne!(taken, Taken::Refused);
        self.inside.write(self.inside.read() + 1);
        self.lock.unlock(owner(process));
        taken
    }

    /// Two processes come at once. How they got in, and the sum.
    fn both(self: &Arc<Guarded>) -> ([Taken; 2], u64) {
        let theirs = self.clone();
        let other = thread::spawn(move || theirs.count(2));
        let mine = self.count(1);
        let taken = [mine, other.join().unwrap()];
        self.lock.lock(owner(3));
        (taken, self.inside.read())
    }
}

fn two_that_live() {
    assert_eq!(Guarded::new().both(), ([Taken::Free; 2], 2));
}

fn two_after_a_dead_one() {
    let guarded = Guarded::new();
    assert_eq!(guarded.lock.lock(owner(calls::DEAD)), Taken::Free);
    let (taken, sum) = guarded.both();
    assert_eq!(sum, 2);
    assert_eq!(taken.iter().filter(|taken| **taken == Taken::FromTheDead).count(), 1);
}

#[test]
fn two_processes_are_never_inside_together() {
    check(two_that_live);
}

#[test]
fn one_process_takes_the_lock_over_from_a_dead_one() {
    check(two_after_a_dead_one);
}

#[test]
#[should_panic]
fn taking_it_in_two_steps_is_noticed() {
    check_without(Without::Swap, two_after_a_dead_one);
}

#[test]
#[should_panic]
fn a_lock_without_order_is_noticed() {
    check_without(Without::RmwOrder, two_that_live);
}
