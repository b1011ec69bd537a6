//! One thread at the bell: of the threads that wait for objects of a layer one sleeps on the NIC's bell, the others are parked.
//!
//! If all of them slept there, every message would wake them all, to find that it concerns one. So the first that falls asleep is
//! the *lookout*, and the others are *followers*. Each leaves a waker with the object that it waits for; the thread that takes a message
//! in wakes the one concerned.
//!
//! A lookout that has its message takes in what came for the others, and goes. As a rule it comes back within microseconds, so it wakes no
//! other thread to stand in. The service thread watches: while the place changes hands it looks every [`PAUSE`], and if nothing has changed in
//! between and the place is vacant it stands in, until a thread that waits takes over. A lookout that only ever wakes for others, as a thread
//! that waits for connections does, leaves the place to them.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use viaduct_os::wait::{Sleep, WaitPolicy};

use super::sleepers::Sleepers;
use super::{Driver, Inner, Layer};
use crate::error::Error;

/// How long the place may be vacant before the service thread looks whether it stays so.
pub(super) const PAUSE: Duration = Duration::from_micros(200);

/// Times that a lookout wakes for others alone before it leaves them the place.
const IN_VAIN: u32 = 4;

const VACANT: u32 = 0;
const THREAD: u32 = 1;
const SERVICE: u32 = 2;

/// The place of the lookout, and what the service thread knows of it.
#[derive(Default)]
pub(super) struct Lookout {
    /// Which kind of thread has the place.
    place: AtomicU32,
    /// Times that it was left.
    left: AtomicU32,
    /// Threads that are parked, or about to be.
    followers: AtomicUsize,
    /// The service thread watches, so that it need not be told that the place is vacant.
    watched: AtomicBool,
}

/// What the service thread does about the lookout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// Nothing until it is told.
    Off,
    /// Looks again after [`PAUSE`].
    Watch,
    /// It is the lookout.
    Stand,
}

impl Lookout {
    /// Takes the place for a thread that waits; also from the service thread, which finds out when it looks next.
    fn take(&self) -> bool {
        let free = |place| (place != THREAD).then_some(THREAD);
        self.place.fetch_update(Ordering::SeqCst, Ordering::SeqCst, free).is_ok()
    }

    /// A thread leaves the place. Returns true if the service thread has to be told.
    fn leave(&self) -> bool {
        self.left.fetch_add(1, Ordering::Relaxed);
        self.place.store(VACANT, Ordering::SeqCst);
        // A follower counts itself before it finds the place taken.
        self.followers.load(Ordering::SeqCst) > 0 && !self.watched.swap(true, Ordering::SeqCst)
    }

    /// A thread does not want the place. Returns true if the service thread has to be told.
    fn decline(&self) -> bool {
        self.place.load(Ordering::SeqCst) == VACANT && !self.watched.swap(true, Ordering::SeqCst)
    }

    /// One look of the service thread, which remembers in `seen` how often the place had been left at the last one.
    pub(super) fn duty(&self, seen: &mut u32) -> Duty {
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

    /// The service thread is the lookout no more, if it was.
    fn step_down(&self) {
        let _ = self.place.compare_exchange(SERVICE, VACANT, Ordering::SeqCst, Ordering::SeqCst);
    }
}

impl<L: Layer> Driver<L> {
    /// Waits for an object of the layer until `poll` finds something or the clock shows `deadline`, in the way of a policy, which learns
    /// from it. Before the thread sleeps, `leave` puts its waker to the object, in one turn with a look; the layer wakes it
    /// ([`News::task`](super::News::task)) at everything that `poll` may wait for. Of many threads that wait so only those
    /// concerned are woken.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Closed`].
    #[inline(always)]
    pub fn wait_at<T>(
        &self,
        policy: &mut WaitPolicy,
        deadline: Option<u64>,
        mut poll: impl FnMut(&mut L) -> Option<T>,
        leave: impl FnMut(&mut L, &Waker),
    ) -> Result<T, Error> {
        match self.with(&mut poll) {
            Some(Some(found)) => Ok(found),
            Some(None) => self.wait_at_post(policy, deadline, poll, leave),
            None => Err(Error::Closed),
        }
    }

    /// Waits for what a first look did not find.
    #[cold]
    #[inline(never)]
    fn wait_at_post<T>(
        &self,
        policy: &mut WaitPolicy,
        deadline: Option<u64>,
        mut poll: impl FnMut(&mut L) -> Option<T>,
        mut leave: impl FnMut(&mut L, &Waker),
    ) -> Result<T, Error> {
        let post = Post {
            driver: self,
            role: Cell::new(Role::Awake),
            woken: Cell::new(false),
            vain: Cell::new(0),
            waker: OnceCell::new(),
        };
        let look = || {
            let look = self.with(|layer| {
                let found = poll(layer);
                if found.is_some() && post.woken.get() {
                    // No bell rings again for what came together with it.
                    layer.take_in();
                }
                if found.is_none() && post.role.get() != Role::Awake {
                    leave(layer, &post.waker().1);
                }
                found
            });
            match look {
                Some(found) => found.map(Ok),
                None => Some(Err(Error::Closed)),
            }
        };
        self.wait_on(policy, deadline, look, &post)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Awake,
    Lookout,
    Follower,
}

/// How one thread sleeps in one wait.
struct Post<'a, L: Layer> {
    driver: &'a Driver<L>,
    role: Cell<Role>,
    /// It was the lookout just now.
    woken: Cell<bool>,
    /// Times that it was the lookout and found nothing for itself.
    vain: Cell<u32>,
    /// Made when it first falls asleep.
    waker: OnceCell<(Arc<Sleeper>, Waker)>,
}

impl<L: Layer> Post<'_, L> {
    fn inner(&self) -> &Inner<L> {
        &self.driver.0
    }

    fn waker(&self) -> &(Arc<Sleeper>, Waker) {
        self.waker.get_or_init(|| {
            let sleep = self.inner().sleep.clone();
            let sleeper =
                Arc::new(Sleeper { thread: thread::current(), at_bell: AtomicBool::new(false), sleep });
            (sleeper.clone(), Waker::from(sleeper))
        })
    }
}

impl<L: Layer> Sleep for Post<'_, L> {
    fn announce(&self) -> u32 {
        let (lookout, sleep) = (&self.inner().lookout, &self.inner().sleep);
        // Counted first: a thread that leaves the place sees this one, or this one sees the place vacant.
        let others = lookout.followers.fetch_add(1, Ordering::SeqCst) > 0;
        self.woken.set(false);
        let declines = others && self.vain.get() >= IN_VAIN;
        if declines || !lookout.take() {
            self.role.set(Role::Follower);
            if declines && lookout.decline() {
                self.driver.poke_parked();
            }
            return 0;
        }
        lookout.followers.fetch_sub(1, Ordering::SeqCst);
        self.role.set(Role::Lookout);
        self.waker().0.at_bell.store(true, Ordering::SeqCst);
        sleep.announce_lookout()
    }

    fn cancel(&self) {
        let (lookout, sleep) = (&self.inner().lookout, &self.inner().sleep);
        match self.role.replace(Role::Awake) {
            Role::Awake => {}
            Role::Follower => {
                lookout.followers.fetch_sub(1, Ordering::SeqCst);
            }
            Role::Lookout => {
                self.woken.set(true);
                self.vain.set(self.vain.get() + 1);
                self.waker().0.at_bell.store(false, Ordering::SeqCst);
                sleep.cancel_lookout();
                if lookout.leave() {
                    self.driver.poke_parked();
                }
            }
        }
    }

    fn park(&self, ticket: u32, timeout: Option<Duration>) {
        match (self.role.get(), timeout) {
            (Role::Lookout, _) => self.inner().sleep.park(ticket, timeout),
            (_, Some(time)) => thread::park_timeout(time),
            (_, None) => thread::park(),
        }
    }
}

/// A thread that sleeps, as objects of the layer know it.
struct Sleeper {
    thread: Thread,
    at_bell: AtomicBool,
    sleep: Sleepers,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.at_bell.load(Ordering::SeqCst) {
            self.sleep.ring();
        } else {
            self.thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_thread_stands_in_once_the_place_stays_vacant() {
        let (lookout, mut seen) = (Lookout::default(), 0);
        assert!(lookout.take());
        assert!(!lookout.leave(), "no other thread waits");
        assert_eq!(lookout.duty(&mut seen), Duty::Off);
        assert!(lookout.take());
        lookout.followers.fetch_add(1, Ordering::SeqCst);
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
        lookout.followers.fetch_add(1, Ordering::SeqCst);
        assert!(lookout.decline(), "a thread that does not want the place has it watched");
        assert!(!lookout.decline());
        assert_eq!(lookout.duty(&mut seen), Duty::Stand);
        lookout.followers.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(lookout.duty(&mut seen), Duty::Off);
        assert_eq!(lookout.place.load(Ordering::SeqCst), VACANT);
    }
}
