//! Models of the lookout's place (`crates/via/src/driver/place.rs`, the real source): a thread that waits is never left without one that
//! is at the bell for it, whatever the order in which threads fall asleep, leave the place and do not want it, and in which the service
//! thread watches and stops watching. Between the words stand the steps of `Post` (`lookout.rs`) and of `serve` (`service.rs`) beside it;
//! keep them in step.
//!
//! loom takes sequentially consistent accesses for weaker ones, so those of the place are made of accesses between two fences here, which
//! amounts to what they are. [`Without::Fences`] leaves the fences out: the twins that should panic show that the order is needed.
#![cfg(loom)]

mod model;

#[path = "../../via/src/driver/place.rs"]
#[allow(dead_code, unreachable_pub)]
mod place;

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};
use model::{Without, check, check_without, thread};
use place::{Duty, Lookout};

/// Sequentially consistent words.
mod sync {
    pub(crate) use loom::sync::atomic::Ordering;

    use crate::model::sync::fence;

    /// An access of the place: between two fences if it is to be sequentially consistent.
    fn between<R>(ordering: Ordering, access: impl FnOnce(Ordering) -> R) -> R {
        if ordering != Ordering::SeqCst {
            return access(ordering);
        }
        fence(Ordering::SeqCst);
        let result = access(Ordering::Relaxed);
        fence(Ordering::SeqCst);
        result
    }

    #[derive(Default)]
    pub(crate) struct AtomicU32(loom::sync::atomic::AtomicU32);

    impl AtomicU32 {
        pub(crate) fn load(&self, ordering: Ordering) -> u32 {
            between(ordering, |ordering| self.0.load(ordering))
        }

        pub(crate) fn store(&self, value: u32, ordering: Ordering) {
            between(ordering, |ordering| self.0.store(value, ordering));
        }

        pub(crate) fn fetch_add(&self, value: u32, ordering: Ordering) -> u32 {
            between(ordering, |ordering| self.0.fetch_add(value, ordering))
        }

        pub(crate) fn fetch_sub(&self, value: u32, ordering: Ordering) -> u32 {
            between(ordering, |ordering| self.0.fetch_sub(value, ordering))
        }

        pub(crate) fn compare_exchange(
            &self,
            current: u32,
            new: u32,
            success: Ordering,
            _: Ordering,
        ) -> Result<u32, u32> {
            between(success, |ordering| self.0.compare_exchange(current, new, ordering, ordering))
        }

        pub(crate) fn fetch_update(
            &self,
            set: Ordering,
            _: Ordering,
            update: impl FnMut(u32) -> Option<u32>,
        ) -> Result<u32, u32> {
            between(set, |ordering| self.0.fetch_update(ordering, ordering, update))
        }
    }

    #[derive(Default)]
    pub(crate) struct AtomicBool(loom::sync::atomic::AtomicBool);

    impl AtomicBool {
        pub(crate) fn load(&self, ordering: Ordering) -> bool {
            between(ordering, |ordering| self.0.load(ordering))
        }

        pub(crate) fn store(&self, value: bool, ordering: Ordering) {
            between(ordering, |ordering| self.0.store(value, ordering));
        }

        pub(crate) fn swap(&self, value: bool, ordering: Ordering) -> bool {
            between(ordering, |ordering| self.0.swap(value, ordering))
        }
    }
}

/// What a park token is: raised once, and taken by the thread that it is for.
#[derive(Default)]
struct Token {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Token {
    fn raise(&self) {
        *self.raised.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn take(&self) {
        let mut raised = self.raised.lock().unwrap();
        while !*raised {
            raised = self.changed.wait(raised).unwrap();
        }
        *raised = false;
    }
}

#[derive(Default)]
struct Driver {
    lookout: Lookout,
    /// Of the service thread, and of the thread that waits.
    service: Token,
    follower: Token,
    /// The wait is over.
    done: loom::sync::atomic::AtomicBool,
}

impl Driver {
    /// With a thread at the bell.
    fn manned() -> Arc<Driver> {
        let driver = Arc::<Driver>::default();
        assert!(driver.lookout.take());
        driver
    }

    /// The thread at the bell has what it waited for, and goes.
    fn leave(&self) {
        if self.lookout.leave() {
            self.service.raise();
        }
    }

    /// A thread falls asleep. Its message comes once some thread is at the bell: itself, or the service thread, which wakes it.
    fn wait(&self, declines: bool) {
        self.lookout.follow();
        if declines {
            if self.lookout.decline() {
                self.service.raise();
            }
            self.follower.take();
        } else if !self.lookout.take() {
            self.follower.take();
        }
        self.lookout.unfollow();
        self.done.store(true, std::sync::atomic::Ordering::SeqCst);
        self.service.raise();
    }

    /// The service thread, until the wait is over: parked while it has no duty.
    fn serve(&self) {
        let mut seen = 0;
        while !self.done.load(std::sync::atomic::Ordering::SeqCst) {
            match self.lookout.duty(&mut seen) {
                Duty::Off => self.service.take(),
                Duty::Watch => thread::yield_now(),
                // It is at the bell, and takes in what comes.
                Duty::Stand => {
                    self.follower.raise();
                    self.service.take();
                }
            }
        }
    }
}

/// One thread leaves the place while another falls asleep.
fn leaving_meets_falling_asleep(declines: bool) {
    let driver = Driver::manned();
    let (first, second) = (driver.clone(), driver.clone());
    let waits = thread::spawn(move || second.wait(declines));
    let leaves = thread::spawn(move || first.leave());
    driver.serve();
    leaves.join().unwrap();
    waits.join().unwrap();
}

/// One leaves while another falls asleep, and the service thread has been told of others that are gone by now, and is about to stop watching.
fn leaving_meets_the_end_of_the_watch() {
    let driver = Driver::manned();
    driver.lookout.follow();
    driver.leave();
    driver.lookout.unfollow();
    assert!(driver.lookout.take());
    let (first, second) = (driver.clone(), driver.clone());
    let waits = thread::spawn(move || second.wait(false));
    let leaves = thread::spawn(move || first.leave());
    driver.serve();
    leaves.join().unwrap();
    waits.join().unwrap();
}

#[test]
fn a_thread_that_falls_asleep_while_the_place_is_left_is_stood_in_for() {
    check(|| leaving_meets_falling_asleep(false));
}

#[test]
fn a_thread_that_does_not_want_the_place_is_stood_in_for() {
    check(|| leaving_meets_falling_asleep(true));
}

#[test]
fn a_watch_that_ends_leaves_no_thread_asleep() {
    check(leaving_meets_the_end_of_the_watch);
}

#[test]
#[should_panic(expected = "deadlock")]
fn leaving_without_order_is_noticed() {
    check_without(Without::Fences, || leaving_meets_falling_asleep(false));
}

#[test]
#[should_panic(expected = "deadlock")]
fn declining_without_order_is_noticed() {
    check_without(Without::Fences, || leaving_meets_falling_asleep(true));
}

#[test]
#[should_panic(expected = "deadlock")]
fn ending_the_watch_without_order_is_noticed() {
    check_without(Without::Fences, leaving_meets_the_end_of_the_watch);
}
