//! The place of the lookout: the words by which threads that wait, and the service thread, agree on the one that has it.
//!
//! Two questions are asked from both sides at once. A thread counts itself as a follower before it looks whether the place is taken, and
//! one that leaves the place empties it before it looks for followers; the service thread stops watching before it looks once more. Of
//! each pair one sees the other. `crates/providers/tests/loom_lookout.rs` includes this file and tries every order.

use super::sync::{AtomicBool, AtomicU32, Ordering};

const VACANT: u32 = 0;
const THREAD: u32 = 1;
const SERVICE: u32 = 2;

/// The place of the lookout, and what the service thread knows of it.
#[derive(Default)]
pub(crate) struct Lookout {
    /// Which kind of thread has the place.
    place: AtomicU32,
    /// Times that it was left.
    left: AtomicU32,
    /// Threads that are parked, or about to be.
    followers: AtomicU32,
    /// The service thread watches, so that it need not be told that the place is vacant.
    watched: AtomicBool,
}

/// What the service thread does about the lookout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Nothing until it is told.
    Off,
    /// Looks again after a pause.
    Watch,
    /// It is the lookout.
    Stand,
}

impl Lookout {
    /// A thread is about to sleep: it counts before it looks at the place, with [`take`](Self::take) or [`decline`](Self::decline).
    /// Returns true if there are others.
    pub(crate) fn follow(&self) -> bool {
        self.followers.fetch_add(1, Ordering::SeqCst) > 0
    }

    /// It has the place, or is awake.
    pub(crate) fn unfollow(&self) {
        self.followers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes the place for a thread that waits; also from the service thread, which finds out when it looks next.
    pub(crate) fn take(&self) -> bool {
        let free = |place| (place != THREAD).then_some(THREAD);
        self.place.fetch_update(Ordering::SeqCst, Ordering::SeqCst, free).is_ok()
    }

    /// A thread leaves the place. Returns true if the service thread has to be told.
    pub(crate) fn leave(&self) -> bool {
        self.left.fetch_add(1, Ordering::Relaxed);
        self.place.store(VACANT, Ordering::SeqCst);
        // A follower counts itself before it finds the place taken.
        self.followers.load(Ordering::SeqCst) > 0 && !self.watched.swap(true, Ordering::SeqCst)
    }

    /// A thread does not want the place. Returns true if the service thread has to be told.
    pub(crate) fn decline(&self) -> bool {
        self.place.load(Ordering::SeqCst) == VACANT && !self.watched.swap(true, Ordering::SeqCst)
    }

    /// One look of the service thread, which remembers in `seen` how often the place had been left at the last one.
    pub(crate) fn duty(&self, seen: &mut u32) -> Duty {
        if !self.watched.load(Ordering::SeqCst) {
            return Duty::Off;
        }
        let left = self.left.load(Ordering::Relaxed);
        let changed = std::mem::replace(seen, left) != left;
        let wanted =
            || self.followers.load(Ordering::SeqCst) > 0 && self.place.load(Ordering::SeqCst) != THREAD;
        match (wanted(), changed) {
            (_, true) => Duty::Watch,
            (true, false) => {
                match self.place.compare_exchange(VACANT, SERVICE, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(_) | Err(SERVICE) => Duty::Stand,
                    Err(_) => Duty::Watch,
                }
            }
            (false, false) => {
                self.step_down();
                self.watched.store(false, Ordering::SeqCst);
                // A thread that left the place in between relied on the watch.
                if wanted() {
                    self.watched.store(true, Ordering::SeqCst);
                    return Duty::Watch;
                }
                Duty::Off
            }
        }
    }

    /// There is no service thread that could watch. The caller wakes all threads that wait afterwards: they may rely on it.
    pub(crate) fn unwatch(&self) {
        self.watched.store(false, Ordering::SeqCst);
        self.step_down();
    }

    /// The service thread is the lookout no more, if it was.
    fn step_down(&self) {
        let _ = self.place.compare_exchange(SERVICE, VACANT, Ordering::SeqCst, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_service_thread_stands_in_once_the_place_stays_vacant() {
        let (lookout, mut seen) = (Lookout::default(), 0);
        assert!(lookout.take());
        assert!(!lookout.leave(), "no other thread waits");
        assert_eq!(lookout.duty(&mut seen), Duty::Off);
        assert!(lookout.take());
        lookout.follow();
        assert!(!lookout.take(), "one thread at a time");
        assert!(lookout.leave(), "the service thread is told once");
        assert!(lookout.take() && !lookout.leave());
        assert_eq!(lookout.duty(&mut seen), Duty::Watch, "the place changes hands");
        assert_eq!(lookout.duty(&mut seen), Duty::Stand);
        assert_eq!(lookout.duty(&mut seen), Duty::Stand, "for as long as no thread wants the place");
        assert!(lookout.take(), "a thread that waits takes over");
        assert_eq!(lookout.duty(&mut seen), Duty::Off, "a thread has the place, and has had it for a while");
        assert!(lookout.leave(), "it is told again");
    }

    #[test]
    fn the_service_thread_goes_when_no_thread_waits() {
        let (lookout, mut seen) = (Lookout::default(), 0);
        lookout.follow();
        assert!(lookout.decline(), "a thread that does not want the place has it watched");
        assert!(!lookout.decline());
        assert_eq!(lookout.duty(&mut seen), Duty::Stand);
        lookout.unfollow();
        assert_eq!(lookout.duty(&mut seen), Duty::Off);
        assert_eq!(lookout.place.load(Ordering::SeqCst), VACANT);
    }

    #[test]
    fn a_thread_that_cannot_be_replaced_is_told_so_each_time() {
        let (lookout, mut seen) = (Lookout::default(), 0);
        lookout.follow();
        for _ in 0..2 {
            assert!(lookout.take() && lookout.leave());
            lookout.unwatch();
        }
        assert!(lookout.decline());
        assert_eq!((lookout.duty(&mut seen), lookout.duty(&mut seen)), (Duty::Watch, Duty::Stand));
        lookout.unwatch();
        assert_eq!((lookout.duty(&mut seen), lookout.place.load(Ordering::SeqCst)), (Duty::Off, VACANT));
    }
}
