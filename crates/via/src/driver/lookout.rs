//! One thread at the bell: of the threads that wait for objects of a layer one sleeps on the NIC's bell, the others are parked.
//!
//! If all of them slept there, every message would wake them all, to find that it concerns one. So the first that falls asleep is
//! the *lookout*, and the others are *followers*. Each leaves a waker with the object that it waits for; the thread that takes a message
//! in wakes the one concerned.
//!
//! A lookout that has its message takes in what came for the others, and goes. As a rule it comes back within microseconds, so it wakes no
//! other thread to stand in. The service thread watches: while the place changes hands it looks every [`PAUSE`], and if nothing has changed in
//! between and the place is vacant it stands in, until a thread that waits takes over. A lookout that only ever wakes for others, as a thread
//! that waits for connections does, leaves the place to them. Where there can be no service thread all that wait are woken when the place
//! is left, and one of them takes it.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
            let (sleep, thread) = (self.inner().sleep.clone(), thread::current());
            sleep.enter(thread.clone());
            let sleeper = Arc::new(Sleeper { thread, at_bell: AtomicBool::new(false), sleep });
            (sleeper.clone(), Waker::from(sleeper))
        })
    }
}

impl<L: Layer> Drop for Post<'_, L> {
    fn drop(&mut self) {
        if let Some((sleeper, _)) = self.waker.get() {
            sleeper.sleep.leave(sleeper.thread.id());
        }
    }
}

impl<L: Layer> Sleep for Post<'_, L> {
    fn announce(&self) -> u32 {
        let (lookout, sleep) = (&self.inner().lookout, &self.inner().sleep);
        // Counted first: a thread that leaves the place sees this one, or this one sees the place vacant.
        let others = lookout.follow();
        self.woken.set(false);
        // Known by name before it looks, so that one that closes the layer, or leaves it without a lookout, finds it.
        self.waker();
        self.role.set(Role::Follower);
        if others && self.vain.get() >= IN_VAIN {
            if !lookout.decline() || self.driver.poke_parked() {
                return 0;
            }
            lookout.unwatch();
        }
        if !lookout.take() {
            return 0;
        }
        lookout.unfollow();
        self.role.set(Role::Lookout);
        self.waker().0.at_bell.store(true, Ordering::SeqCst);
        sleep.announce_lookout()
    }

    fn cancel(&self) {
        let (lookout, sleep) = (&self.inner().lookout, &self.inner().sleep);
        match self.role.replace(Role::Awake) {
            Role::Awake => {}
            Role::Follower => lookout.unfollow(),
            Role::Lookout => {
                self.woken.set(true);
                self.vain.set(self.vain.get() + 1);
                self.waker().0.at_bell.store(false, Ordering::SeqCst);
                sleep.cancel_lookout();
                if lookout.leave() && !self.driver.poke_parked() {
                    lookout.unwatch();
                    sleep.wake_all();
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
