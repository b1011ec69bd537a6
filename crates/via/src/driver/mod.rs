//! The runtime under every layer: a driver that owns a layer with its NIC, and lets threads take turns on it.
//!
//! ```text
//!   threads ──▶ Driver::with ── turn ─▶ Layer { nic, news, its own state }
//!           ──▶ Driver::wait ── spin, yield, sleep on the NIC's bell; the turn is held only while it looks
//!           ──▶ Driver::wait_at ── one of the threads sleeps on the bell, the others are woken by name   (lookout.rs)
//!   event loop ▶ Watch         one descriptor for everything on the NIC
//!   service thread ──▶ Layer::tick    accepts, timers; moves sends whose owner makes no calls   (service.rs)
//! ```
//!
//! A layer above VIA has a NIC, a completion queue and objects of its own (sockets, ranks, requests), and threads that call
//! in, wait, or do neither while a peer wants something. What is hard about that is here once: the lock is one that the
//! usual thread enters with plain stores ([`Turn`]), waits do not hold it, and a thread that took something in for another
//! says so in its [`News`], which the driver acts on after the turn. The chapter "Write a layer" of the book has an example.

mod lookout;
mod news;
mod place;
mod service;
mod sleepers;
mod watch;

/// Atomics of the lookout's place, by a name of their own: the loom model of that file has loom's beside it.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
}

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use viaduct_os::turn::{Turn, TurnGuard};
use viaduct_os::wait::{Sleep, WaitConfig, WaitPolicy, Waits};
use viaduct_os::{clock, fork};

use crate::counters::{Counter, CounterSlot};
use crate::error::Error;
use crate::handle::Vi;
use crate::nic::Nic;

pub use news::{News, Rest};
use place::Lookout;
use sleepers::Sleepers;
pub use watch::Watch;

/// What stands on a NIC: the NIC, and a state of its own. A [`Driver`] owns it.
pub trait Layer: Send + Sized + 'static {
    /// Name of the service thread.
    const THREAD: &'static str;

    /// The NIC, which the layer was made with.
    fn nic(&mut self) -> &mut Nic;

    /// What the layer has to say after this turn.
    fn news(&mut self) -> &mut News;

    /// Does what is due, on the service thread: when that starts, at every piece of connection news (a request, an answer,
    /// a peer that is gone), after a [poke](News::poke), and when the time has come that the last one asked for. `now` is of
    /// [`clock::now_ns`].
    fn tick(&mut self, now: u64) -> Rest {
        let _ = now;
        Rest::parked()
    }

    /// Takes in what has come, on the service thread while that stands in for threads that wait at objects
    /// ([`Driver::wait_at`]), and wakes those concerned.
    fn take_in(&mut self) {}

    /// One round of the service thread. For layers that run code of their users, which may call in again and therefore must
    /// not run inside a turn; the others have [`tick`](Self::tick).
    fn serve(driver: &Driver<Self>) -> Rest {
        driver.own_turn(|layer| layer.tick(clock::now_ns())).unwrap_or(Rest::parked())
    }
}

/// A layer that threads share. Clones are handles of one; when the last is dropped, the service thread ends and the
/// layer is dropped.
pub struct Driver<L: Layer>(Arc<Inner<L>>);

impl<L: Layer> fmt::Debug for Driver<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

struct Inner<L: Layer> {
    /// There until it is closed.
    layer: Turn<Option<L>>,
    sleep: Sleepers,
    lookout: Lookout,
    /// How calls wait, as the NIC was set when it was handed over.
    wait: WaitConfig,
    counters: CounterSlot,
    /// The NIC's pollable descriptor, once a program has asked for it.
    pollable: OnceLock<Arc<OwnedFd>>,
    /// Sends are under way that the service thread moves while no call does. Cleared by the service thread, in its turn.
    sends_left: AtomicBool,
    /// Calls were made since the service thread looked last.
    called: AtomicBool,
    closing: AtomicBool,
    service: Mutex<Option<JoinHandle<()>>>,
    server: OnceLock<Thread>,
    /// The process that made it.
    generation: u32,
}

impl<L: Layer> Driver<L> {
    /// Takes a layer with its NIC.
    pub fn new(mut layer: L) -> Driver<L> {
        Driver(Arc::new(Inner {
            sleep: Sleepers::new(layer.nic().sleep()),
            lookout: Lookout::default(),
            wait: layer.nic().wait_config,
            counters: layer.nic().counters.clone(),
            layer: Turn::new(Some(layer)),
            pollable: OnceLock::new(),
            sends_left: AtomicBool::new(false),
            called: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            service: Mutex::new(None),
            server: OnceLock::new(),
            generation: fork::generation(),
        }))
    }

    /// Does something with the layer in this thread's turn, and what the layer's news ask for after it. None once it is
    /// closed.
    ///
    /// # Panics
    /// If this thread has its turn already: a turn is not entered inside another.
    #[inline(always)]
    pub fn with<R>(&self, act: impl FnOnce(&mut L) -> R) -> Option<R> {
        self.with_waking(|layer| Turned::quiet(act(layer)))
    }

    /// What [`with`](Self::with) does, where `act` says beside its result whether others look again.
    #[inline(always)]
    pub(crate) fn with_waking<R>(&self, act: impl FnOnce(&mut L) -> Turned<R>) -> Option<R> {
        let inner = &*self.0;
        inner.called.store(true, Ordering::Relaxed);
        self.turn(inner, act)
    }

    /// A turn that is no call of a user's: of the service thread.
    pub(crate) fn own_turn<R>(&self, act: impl FnOnce(&mut L) -> R) -> Option<R> {
        self.turn(&self.0, |layer| Turned::quiet(act(layer)))
    }

    /// `inner` is that of this driver, looked up once.
    #[inline(always)]
    fn turn<R>(&self, inner: &Inner<L>, act: impl FnOnce(&mut L) -> Turned<R>) -> Option<R> {
        let mut turn = inner.layer.enter();
        let layer = turn.as_mut()?;
        let Turned { result, wake } = act(layer);
        if After::is_some(layer, inner, wake) {
            self.end_turn(turn, wake);
        }
        Some(result)
    }

    /// Ends a turn after which something is to be done.
    #[cold]
    #[inline(never)]
    fn end_turn(&self, mut turn: TurnGuard<'_, Option<L>>, wake: bool) {
        let after = turn.as_mut().map(|layer| After::found(layer, &self.0, wake));
        drop(turn);
        after.into_iter().for_each(|after| self.attend_to(after));
    }

    /// The layer, in this thread's turn until the guard is dropped.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn lock(&self) -> Result<Guard<'_, L>, Error> {
        let layer = self.0.layer.enter();
        if layer.is_none() {
            return Err(Error::Closed);
        }
        Ok(Guard { layer: Some(layer), driver: self, wake: false })
    }

    /// The layer, for an exit handler, whose thread may be in the middle of a call already: a signal handler called exit.
    /// None if it is, or if the locks were not free within `limit`.
    pub fn lock_at_exit(&self, limit: Duration) -> Option<Guard<'_, L>> {
        let end = Instant::now() + limit;
        while !self.0.sleep.is_free() {
            if Instant::now() >= end {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let layer = self.0.layer.enter_unless_inside(limit)?;
        layer.is_some().then(|| Guard { layer: Some(layer), driver: self, wake: false })
    }

    /// Waits until `poll` finds something. It has the layer while it looks, and only then.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Closed`].
    pub fn wait<T>(
        &self,
        timeout: Option<Duration>,
        poll: impl FnMut(&mut L) -> Option<T>,
    ) -> Result<T, Error> {
        let deadline = timeout.map(|t| clock::now_ns().saturating_add(t.as_nanos() as u64));
        self.wait_with(&mut self.policy(), deadline, poll)
    }

    /// Waits in the way of a policy, which learns from it, until `poll` finds something or the clock shows `deadline`.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Closed`].
    pub fn wait_with<T>(
        &self,
        policy: &mut WaitPolicy,
        deadline: Option<u64>,
        mut poll: impl FnMut(&mut L) -> Option<T>,
    ) -> Result<T, Error> {
        self.wait_waking(policy, deadline, |layer| Turned::quiet(poll(layer)))
    }

    pub(crate) fn wait_waking<T>(
        &self,
        policy: &mut WaitPolicy,
        deadline: Option<u64>,
        mut poll: impl FnMut(&mut L) -> Turned<Option<T>>,
    ) -> Result<T, Error> {
        let mut look = || match self.with_waking(&mut poll) {
            Some(found) => found.map(Ok),
            None => Some(Err(Error::Closed)),
        };
        match look() {
            Some(found) => found,
            None => self.wait_on(policy, deadline, look, &self.0.sleep),
        }
    }

    /// Waits for what a first look did not find, and counts how.
    fn wait_on<T>(
        &self,
        policy: &mut WaitPolicy,
        deadline: Option<u64>,
        look: impl FnMut() -> Option<Result<T, Error>>,
        sleep: &impl Sleep,
    ) -> Result<T, Error> {
        let before = (policy.spins, policy.yields, policy.sleeps);
        let found = policy.wait(deadline, look, sleep).unwrap_or(Err(Error::Timeout));
        let counters = &self.0.counters;
        counters.add(Counter::Spins, policy.spins - before.0);
        counters.add(Counter::Yields, policy.yields - before.1);
        counters.add(Counter::Sleeps, policy.sleeps - before.2);
        found
    }

    /// Counts waits that the layer made in its own way: those of tasks, which cannot wait in here.
    #[inline]
    pub fn count_waits(&self, waits: Waits) {
        if waits != Waits::default() {
            self.0.counters.add(Counter::Spins, waits.spins);
            self.0.counters.add(Counter::Sleeps, waits.sleeps);
        }
    }

    /// A policy that waits as the NIC was set when it was handed over, and has learned nothing yet.
    pub(crate) fn policy(&self) -> WaitPolicy {
        WaitPolicy::new(self.0.wait)
    }

    /// Ends a connection as [`Nic::disconnect`] does, without holding the layer while sends under way are waited for.
    ///
    /// # Errors
    /// [`Error::Closed`], and as of [`Nic::disconnect`].
    pub fn disconnect(&self, vi: Vi) -> Result<(), Error> {
        let limit = self.lock()?.nic().drain_limit();
        if !limit.is_zero() {
            // Whether it was enough shows in what is flushed.
            let _ = self.wait(Some(limit), |layer| layer.nic().has_sent(vi).then_some(()));
        }
        // What is flushed concerns threads that wait for it.
        let ended = self.with_waking(|layer| Turned::waking(layer.nic().disconnect_now(vi)));
        ended.unwrap_or(Err(Error::Closed))
    }

    /// Closes the layer for all threads that share it: it is dropped with its NIC, waits return, and every later call is
    /// refused. The service thread has ended afterwards.
    ///
    /// # Errors
    /// [`Error::Closed`] if it was closed before.
    pub fn close(&self) -> Result<(), Error> {
        let layer = self.0.layer.with(Option::take).ok_or(Error::Closed)?;
        self.0.closing.store(true, Ordering::SeqCst);
        // The wakers that were left with it go unwoken.
        drop(layer);
        self.0.sleep.wake_all();
        self.stop();
        Ok(())
    }

    /// Whether this is a forked child of the process that made it: its calls fail, and a thread that is not here may hold
    /// the turn.
    pub fn is_inherited(&self) -> bool {
        fork::generation() != self.0.generation
    }

    /// Does what a turn left to be done after it.
    fn attend_to(&self, after: After) {
        if after.ring {
            self.0.sleep.ring();
        }
        after.tasks.into_iter().for_each(Waker::wake);
        if after.poke {
            self.poke();
        }
        if after.sends {
            self.leave_sends_to_service();
        }
    }
}

impl<L: Layer> Clone for Driver<L> {
    fn clone(&self) -> Driver<L> {
        Driver(self.0.clone())
    }
}

/// What a turn gave, and whether the other threads that wait look again after it, whatever the layer's news say.
pub(crate) struct Turned<R> {
    pub(crate) result: R,
    pub(crate) wake: bool,
}

impl<R> Turned<R> {
    /// A turn after which others look again.
    #[inline(always)]
    pub(crate) fn waking(result: R) -> Turned<R> {
        Turned { result, wake: true }
    }

    /// A turn after which others look again only if the news say so.
    #[inline(always)]
    pub(crate) fn quiet(result: R) -> Turned<R> {
        Turned { result, wake: false }
    }
}

/// What is to be done after a turn.
struct After {
    /// Threads and watchers that sleep look again.
    ring: bool,
    poke: bool,
    /// Sends are under way.
    sends: bool,
    tasks: Vec<Waker>,
}

impl After {
    /// Whether something is to be done after a turn: as a rule not.
    #[inline(always)]
    fn is_some<L: Layer>(layer: &mut L, inner: &Inner<L>, wake: bool) -> bool {
        layer.news().said() | layer.nic().unrest.bits() != 0 || wake && inner.sleep.any()
    }

    fn found<L: Layer>(layer: &mut L, inner: &Inner<L>, wake: bool) -> After {
        let (unrest, news) = (layer.nic().unrest.take(), layer.news());
        // The lookout is woken by name, but for VIs that it has to look at itself.
        let ring =
            (wake || news.wakes()) && inner.sleep.any_unnamed() || unrest.cooled() && inner.sleep.any();
        After { ring, poke: news.pokes(), sends: unrest.sends(), tasks: news.end() }
    }
}

/// A layer in the turn of one thread.
pub struct Guard<'a, L: Layer> {
    /// There until dropped, and not closed.
    layer: Option<TurnGuard<'a, Option<L>>>,
    driver: &'a Driver<L>,
    /// Other threads that wait look again after it, whatever the news say.
    wake: bool,
}

impl<L: Layer> fmt::Debug for Guard<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("wake", &self.wake).finish_non_exhaustive()
    }
}

impl<L: Layer> Guard<'_, L> {
    /// Has other threads that wait look again after this turn, whatever the news say.
    pub(crate) fn wake_after(&mut self) {
        self.wake = true;
    }
}

impl<L: Layer> Deref for Guard<'_, L> {
    type Target = L;

    #[inline]
    fn deref(&self) -> &L {
        self.layer.as_ref().and_then(|layer| layer.as_ref()).expect("open, as was seen when it was taken")
    }
}

impl<L: Layer> DerefMut for Guard<'_, L> {
    #[inline]
    fn deref_mut(&mut self) -> &mut L {
        self.layer.as_mut().and_then(|layer| layer.as_mut()).expect("open, as was seen when it was taken")
    }
}

impl<L: Layer> Drop for Guard<'_, L> {
    #[inline]
    fn drop(&mut self) {
        let (driver, wake) = (self.driver, self.wake);
        driver.0.called.store(true, Ordering::Relaxed);
        if After::is_some(&mut **self, &driver.0, wake)
            && let Some(turn) = self.layer.take()
        {
            driver.end_turn(turn, wake);
        }
    }
}

impl<L: Layer> Drop for Inner<L> {
    fn drop(&mut self) {
        // A forked child has no service thread.
        if fork::generation() == self.generation {
            self.closing.store(true, Ordering::SeqCst);
            self.end_service();
        }
    }
}
