//! A lock that costs next to nothing while one thread uses it.
//!
//! Design, section 2.1: nothing on post and poll but memory. An ordinary lock is two locked instructions, which cost as
//! much as a third of a small message. Here the thread that comes most is the *owner*: it says that it is inside with a
//! plain store, looks whether it still is the owner, and says that it left with another. Another thread that wants in
//! takes the ownership back, makes every CPU run a fence ([`barrier::heavy`], a few microseconds), waits until the owner
//! is out, and from then on every thread takes an ordinary mutex, until one has come so often in a row that it is the
//! owner again; after each change of hands that takes twice as long, so that threads that really share do not pay for
//! changes.
//!
//! Serves the C library of VIA, whose calls any thread may make, and programs of which one thread makes nearly all of them.
//! It is not recursive, and for threads of one process only.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::TryLockError;
// What a thread notes for itself alone, which models need not follow.
use std::sync::atomic::AtomicUsize as Note;
use std::time::{Duration, Instant};

use crate::barrier;
use crate::sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, pause, this_thread};

/// Visits in a row that make a thread the owner after the first change of hands.
const VISITS: u32 = 64;
/// Visits in a row that make a thread the owner after many changes of hands.
const MOST_VISITS: u32 = 1 << 16;
/// A value that one thread uses at a time.
pub struct Turn<T> {
    /// The thread that comes in by `inside` alone; 0 if everybody takes the mutex.
    owner: AtomicUsize,
    /// Whether the owner is inside.
    inside: AtomicBool,
    visits: Mutex<Visits>,
    /// The thread that holds the mutex, or has just let go of it; 0 if there is none.
    visitor: Note,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, of which there is one at a time.
unsafe impl<T: Send> Sync for Turn<T> {}

/// The thread that came last, how often in a row, and how often is enough to be the owner.
struct Visits {
    last: usize,
    row: u32,
    enough: u32,
}

/// The turn of this thread, until dropped.
#[must_use = "the turn is over when the guard is dropped"]
pub struct TurnGuard<'a, T> {
    turn: &'a Turn<T>,
    /// The mutex, if this thread is not the owner. It also keeps the guard on its thread.
    held: Option<MutexGuard<'a, Visits>>,
    value: PhantomData<&'a mut T>,
}

impl<T> Turn<T> {
    /// Puts a value behind the lock.
    pub fn new(value: T) -> Turn<T> {
        barrier::register();
        Turn {
            owner: AtomicUsize::new(0),
            inside: AtomicBool::new(false),
            visits: Mutex::new(Visits { last: 0, row: 0, enough: 1 }),
            visitor: Note::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for this thread's turn.
    ///
    /// # Panics
    /// If this thread, being the owner, has its turn already.
    #[inline(always)]
    pub fn enter(&self) -> TurnGuard<'_, T> {
        let me = this_thread();
        // One place that makes the guard, so that the compiler puts what follows behind it.
        let held = if self.enter_as_owner(me) { None } else { Some(self.visit(me)) };
        TurnGuard { turn: self, held, value: PhantomData }
    }

    /// Does something with the value in this thread's turn.
    ///
    /// # Panics
    /// If this thread, being the owner, has its turn already.
    #[inline(always)]
    pub fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.enter())
    }

    /// This thread's turn, for code that may have interrupted a turn of its own thread: an exit handler that a signal
    /// handler has brought about. `None` if this thread is inside already, or if the lock was not free within `limit`.
    pub fn enter_unless_inside(&self, limit: Duration) -> Option<TurnGuard<'_, T>> {
        let me = this_thread();
        // Only the owner sets `inside`, and a former owner has left before another thread becomes it. A visitor may have
        // become the owner during its visit.
        let owner_inside = self.owner.load(Ordering::Relaxed) == me && self.inside.load(Ordering::Relaxed);
        if owner_inside || self.visitor.load(Ordering::Relaxed) == me {
            return None;
        }
        if self.enter_as_owner(me) {
            return Some(TurnGuard { turn: self, held: None, value: PhantomData });
        }
        let end = Instant::now() + limit;
        let mut looks = 0;
        loop {
            let visits = match self.visits.try_lock() {
                Ok(visits) => visits,
                Err(TryLockError::Poisoned(e)) => e.into_inner(),
                // Perhaps held by this very thread, which cannot let go of it.
                Err(TryLockError::WouldBlock) if Instant::now() < end => {
                    pause(looks);
                    looks += 1;
                    continue;
                }
                Err(TryLockError::WouldBlock) => return None,
            };
            return Some(TurnGuard { turn: self, held: Some(self.count(visits, me)), value: PhantomData });
        }
    }

    /// Whether this thread is the owner; then it is inside.
    #[inline(always)]
    fn enter_as_owner(&self, me: usize) -> bool {
        if self.owner.load(Ordering::Relaxed) != me {
            return false;
        }
        assert!(!self.inside.load(Ordering::Relaxed), "entered twice by one thread");
        self.inside.store(true, Ordering::Relaxed);
        // Against the heavy barrier of a thread that takes the ownership: it sees us inside, or we see that it is gone.
        barrier::light();
        if self.owner.load(Ordering::Relaxed) == me {
            return true;
        }
        self.inside.store(false, Ordering::Release);
        false
    }

    /// The value, for a caller that has the lock exclusively.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Takes the mutex, and from the owner what it has.
    #[inline(never)]
    fn visit(&self, me: usize) -> MutexGuard<'_, Visits> {
        // A panic inside leaves the value as it leaves any; the counts of visits are always whole.
        self.count(self.visits.lock().unwrap_or_else(|e| e.into_inner()), me)
    }

    /// Takes from the owner what it has, and counts the visit.
    #[inline]
    fn count<'a>(&'a self, mut visits: MutexGuard<'a, Visits>, me: usize) -> MutexGuard<'a, Visits> {
        self.visitor.store(me, Ordering::Relaxed);
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != 0 && owner != me {
            self.owner.store(0, Ordering::SeqCst);
            barrier::heavy();
            self.await_owner();
            visits.enough = (visits.enough * 2).clamp(VISITS, MOST_VISITS);
        }
        visits.row = if visits.last == me { visits.row.saturating_add(1) } else { 1 };
        visits.last = me;
        if visits.row >= visits.enough {
            self.owner.store(me, Ordering::Relaxed);
        }
        visits
    }

    /// Until the former owner is out. It may be in the middle of a long copy, or not on any CPU.
    fn await_owner(&self) {
        let mut looks = 0;
        while self.inside.load(Ordering::Acquire) {
            pause(looks);
            looks += 1;
        }
    }
}

/// Ends a visit. The thread stays noted until the mutex is free: an exit handler in between must not wait for it.
#[cold]
fn give_back(held: MutexGuard<'_, Visits>, visitor: &Note) {
    drop(held);
    let _ = visitor.compare_exchange(this_thread(), 0, Ordering::Relaxed, Ordering::Relaxed);
}

impl<T> Deref for TurnGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the one guard there is: either the owner is inside, or the mutex is held and the owner is out.
        unsafe { &*self.turn.value.get() }
    }
}

impl<T> DerefMut for TurnGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed mutably.
        unsafe { &mut *self.turn.value.get() }
    }
}

impl<T> Drop for TurnGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.held.take() {
            None => self.turn.inside.store(false, Ordering::Release),
            Some(held) => give_back(held, &self.turn.visitor),
        }
    }
}

impl<T> fmt::Debug for Turn<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owned = self.owner.load(Ordering::Relaxed) != 0;
        f.debug_struct("Turn").field("owned", &owned).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    fn owner<T>(turn: &Turn<T>) -> usize {
        turn.owner.load(Ordering::Relaxed)
    }

    #[test]
    fn the_first_thread_is_the_owner_until_another_comes() {
        let turn = Turn::new(0);
        *turn.enter() += 1;
        assert_eq!(owner(&turn), this_thread());
        thread::scope(|s| s.spawn(|| *turn.enter() += 1).join()).unwrap();
        assert_eq!(owner(&turn), 0);
        for _ in 0..VISITS - 1 {
            *turn.enter() += 1;
        }
        assert_eq!(owner(&turn), 0, "not often enough yet");
        *turn.enter() += 1;
        assert_eq!((owner(&turn), *turn.enter()), (this_thread(), VISITS + 2));
        let mut turn = turn;
        assert_eq!(*turn.get_mut(), VISITS + 2);
    }

    #[test]
    fn two_threads_are_never_inside_together() {
        let (turn, inside) = (Turn::new(0u64), AtomicU32::new(0));
        let rounds = 40_000;
        thread::scope(|s| {
            for pause in [0, 7, 1000] {
                let (turn, inside) = (&turn, &inside);
                s.spawn(move || {
                    for round in 0..rounds {
                        let act = |value: &mut u64| {
                            assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "another thread is inside");
                            *value += 1;
                            inside.fetch_sub(1, Ordering::Relaxed);
                        };
                        if round % 2 == 0 {
                            act(&mut turn.enter())
                        } else {
                            turn.with(act)
                        }
                        // One comes all the time, the others in bursts, so that the ownership changes.
                        if pause > 0 && round % (pause * 10) == 0 {
                            thread::sleep(Duration::from_micros(200));
                        }
                    }
                });
            }
        });
        assert_eq!(*turn.enter(), 3 * rounds);
    }

    #[test]
    fn a_visitor_waits_for_an_owner_inside() {
        let turn = Turn::new(1);
        drop(turn.enter());
        let guard = turn.enter();
        thread::scope(|s| {
            let other = s.spawn(|| *turn.enter());
            thread::sleep(Duration::from_millis(20));
            assert!(!other.is_finished());
            drop(guard);
            assert_eq!(other.join().unwrap(), 1);
        });
    }

    #[test]
    fn code_that_interrupted_a_turn_of_its_own_thread_is_turned_away() {
        let limit = Duration::from_millis(1);
        let turn = Turn::new(3);
        assert_eq!(*turn.enter_unless_inside(limit).unwrap(), 3, "as a visitor");
        assert_eq!(*turn.enter_unless_inside(limit).unwrap(), 3, "as the owner");
        let guard = turn.enter();
        assert!(turn.enter_unless_inside(limit).is_none(), "the owner is inside");
        drop(guard);
        thread::scope(|s| {
            s.spawn(|| drop(turn.enter()));
        });
        let guard = turn.enter();
        assert_eq!(owner(&turn), 0, "no thread owns it: the mutex is held");
        assert!(turn.enter_unless_inside(limit).is_none(), "this thread holds the mutex");
        drop(guard);
        assert!(turn.enter_unless_inside(limit).is_some());
        // Visits in a row make this thread the owner, in the middle of the last of them.
        loop {
            let guard = turn.enter();
            let became_owner = owner(&turn) != 0;
            assert!(turn.enter_unless_inside(limit).is_none(), "inside, by the mutex");
            drop(guard);
            if became_owner {
                break;
            }
        }
        assert!(turn.enter_unless_inside(limit).is_some());
    }

    #[test]
    #[should_panic(expected = "entered twice")]
    fn an_owner_does_not_enter_twice() {
        let turn = Turn::new(());
        drop(turn.enter());
        let _first = turn.enter();
        let _second = turn.enter();
    }
}
