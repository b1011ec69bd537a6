//! What the loom models share: how they are run, and the stand-ins for what lies below the code under test.
//!
//! The models include the real sources (`#[path]`), and these find here, under the names they ask for, loom's atomics,
//! a futex that loom understands, and the barrier pair of `os` as two SeqCst fences, which is what the pair amounts to
//! (loom has no membarrier). loom takes SeqCst accesses for AcqRel ones and knows no load buffering, so plain memory
//! that is handed over is modelled by [`Plain`], whose races it does see.
//!
//! loom 0.7 keeps one last access per word to find what it must reorder, so a thread's own load hides an earlier load of
//! another thread from the store that follows it. Where a thread loads a word that it stores afterwards, the thread
//! that only reads must be the one that is spawned: it then runs last in the first execution, and its loads are
//! reordered with the stores.
//!
//! A check that cannot fail is worthless: [`check_without`] runs a model with one thing left out ([`Without`]).
#![allow(dead_code, unused_imports)]

pub(crate) mod sync;

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use loom::thread;

/// What is left out of the code under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Without {
    /// Nothing: the code as it is.
    Nothing,
    /// The sleeper's (or closer's) barrier.
    Heavy,
    /// The ringer's (or copier's) barrier.
    Light,
    /// Fences of the sources under test.
    Fences,
    /// Release of stores, but for those to a [`credit`](sync::AtomicU64::credit).
    Release,
    /// Acquire of loads, but for those of a credit.
    Acquire,
    /// Release of stores to a credit.
    CreditRelease,
    /// Acquire of loads of a credit.
    CreditAcquire,
    /// Order of read-modify-writes.
    RmwOrder,
    /// Swapping in one step: a load, then a store.
    Swap,
}

std::thread_local! {
    // The threads of a model are coroutines on the thread of its test.
    static WITHOUT: Cell<Without> = const { Cell::new(Without::Nothing) };
}

fn lacks(what: Without) -> bool {
    WITHOUT.get() == what
}

/// Runs a model over all interleavings within the bound on preemptions: `LOOM_MAX_PREEMPTIONS`, or 3.
pub(crate) fn check(model: impl Fn() + Send + Sync + 'static) {
    check_without(Without::Nothing, model);
}

/// Runs a model with something left out, which the model must notice: for tests that should panic.
pub(crate) fn check_without(what: Without, model: impl Fn() + Send + Sync + 'static) {
    WITHOUT.set(what);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.max_branches = 20_000;
    let runs = Arc::new(AtomicU64::new(0));
    let count = runs.clone();
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{} executions", runs.load(Ordering::Relaxed));
}

/// Memory that is not atomic. loom panics when it is written while another thread may touch it.
pub(crate) struct Plain(loom::cell::UnsafeCell<u64>);

// SAFETY: loom checks that accesses do not overlap; finding out whether they do is what the models are for.
unsafe impl Sync for Plain {}

impl Plain {
    pub(crate) fn new(value: u64) -> Plain {
        Plain(loom::cell::UnsafeCell::new(value))
    }

    pub(crate) fn write(&self, value: u64) {
        // SAFETY: loom hands out the pointer only if no other thread is inside.
        self.0.with_mut(|p| unsafe { *p = value });
    }

    pub(crate) fn read(&self) -> u64 {
        // SAFETY: as above.
        self.0.with(|p| unsafe { *p })
    }
}

/// Stands for `os::barrier`.
pub(crate) mod barrier {
    use super::{Without, lacks};
    use loom::sync::atomic::{Ordering, fence};

    pub(crate) fn register() {}

    pub(crate) fn heavy() {
        if !lacks(Without::Heavy) {
            fence(Ordering::SeqCst);
        }
    }

    pub(crate) fn light() {
        if !lacks(Without::Light) {
            fence(Ordering::SeqCst);
        }
    }
}

/// Stands for `os::futex`: the kernel compares under the lock of its queue, and wakes under it. No timeout, and no
/// wake-up without a reason, so that a lost one is a deadlock, which loom reports.
pub(crate) mod futex {
    use super::sync::{AtomicU32, Ordering};
    use std::time::Duration;

    pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        assert!(timeout.is_none(), "models have no clock");
        let (queue, woken) = word.queue();
        let guard = queue.lock().unwrap();
        if word.load(Ordering::Relaxed) == expected {
            drop(woken.wait(guard).unwrap());
        }
    }

    pub(crate) fn wake(word: &AtomicU32, _all: u32) {
        let (queue, woken) = word.queue();
        let _guard = queue.lock().unwrap();
        woken.notify_all();
    }
}

/// Stands for `os::eventfd`: one event per model.
pub(crate) mod eventfd {
    use super::BorrowedFd;
    use loom::sync::{Condvar, Mutex};
    use std::cell::RefCell;
    use std::sync::Arc;

    #[derive(Default)]
    pub(crate) struct Event {
        raised: Mutex<bool>,
        changed: Condvar,
    }

    std::thread_local! {
        static EVENT: RefCell<Option<Arc<Event>>> = const { RefCell::new(None) };
    }

    impl Event {
        /// The event that [`signal`] raises in this run of the model.
        pub(crate) fn install() -> Arc<Event> {
            let event = Arc::new(Event { raised: Mutex::new(false), changed: Condvar::new() });
            EVENT.set(Some(event.clone()));
            event
        }

        /// As epoll does: until it is raised.
        pub(crate) fn wait(&self) {
            let mut raised = self.raised.lock().unwrap();
            while !*raised {
                raised = self.changed.wait(raised).unwrap();
            }
            *raised = false;
        }
    }

    pub(crate) fn signal(_fd: BorrowedFd<'_>) {
        let event = EVENT.with_borrow(Clone::clone).expect("the model installed one");
        *event.raised.lock().unwrap() = true;
        event.changed.notify_all();
    }
}

/// Stands for `os::wait`: the trait alone.
pub(crate) mod wait {
    use std::time::Duration;

    pub(crate) trait Sleep {
        fn announce(&self) -> u32;
        fn cancel(&self);
        fn park(&self, ticket: u32, timeout: Option<Duration>);
    }
}
