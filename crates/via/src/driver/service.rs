//! The service thread of a driver: the ticks of its layer, and sends whose owner makes no calls.
//!
//! It is started when first needed and asleep while there is nothing to do; connection news unpark it.
//!
//! A send that the transport could not take at once moves on inside calls. Where no call is made for [`SILENCE`], the
//! thread moves it, woken by the bell as a waiting owner is; while calls are made it stays off the bell, because a sleeper
//! there makes every arriving message a system call of its sender.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use viaduct_os::error::OsError;
use viaduct_os::signals;
use viaduct_os::wait::Sleep;

use super::lookout::PAUSE;
use super::place::Duty;
use super::sleepers::Sleepers;
use super::{Driver, Inner, Layer, Rest};
use crate::error::Error;

/// Time without a call after which the service thread moves the sends that are under way.
const SILENCE: Duration = Duration::from_millis(1);

/// Pauses in a row that end by themselves before the layer is served all the same, and sends are moved: an unpark may have come
/// just then, and not every call moves sends.
const MOST_PAUSES: u32 = 16;

/// Longest time between two looks at sends that nothing moves.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl<L: Layer> Driver<L> {
    /// Starts the service thread, which is otherwise started when it is needed first.
    ///
    /// # Errors
    /// [`Error::Closed`], and [`Error::Os`] if there can be no more threads.
    pub fn start(&self) -> Result<(), Error> {
        let mut service = self.0.lock_service();
        if service.is_some() {
            return Ok(());
        }
        if self.0.closing.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        let (weak, sleep) = (Arc::downgrade(&self.0), self.0.sleep.clone());
        let thread = thread::Builder::new().name(L::THREAD.into());
        // The program's signal handlers run on its own threads, which may know what they interrupt.
        let started = signals::while_blocked(|| thread.spawn(move || serve(&weak, &sleep)));
        let handle = started.map_err(|e| Error::Os(OsError::sys("clone", e)))?;
        self.0.sleep.unpark_at_news(Some(handle.thread().clone()));
        let _ = self.0.server.set(handle.thread().clone());
        *service = Some(handle);
        Ok(())
    }

    /// Has the service thread tick soon, and starts it if it has not been. Not for a thread inside its turn, which has
    /// [`News::poke`](super::News::poke).
    pub fn poke(&self) {
        // Without a thread the sends move inside calls, as those of a plain NIC, and there are no ticks.
        if self.0.server.get().is_some() || self.start().is_ok() {
            self.0.wake_service();
        }
    }

    /// As [`poke`](Self::poke), for a thread that knows that the service thread does not sleep on the bell, or need not wake if it does.
    /// Returns false if there is no such thread: it was stopped, or there can be none.
    pub(super) fn poke_parked(&self) -> bool {
        if self.0.closing.load(Ordering::SeqCst) || self.0.server.get().is_none() && self.start().is_err() {
            return false;
        }
        self.0.server.get().inspect(|thread| thread.unpark()).is_some()
    }

    /// Ends the service thread and waits for it. The layer stays, and has no ticks any more.
    pub fn stop(&self) {
        self.0.closing.store(true, Ordering::SeqCst);
        self.0.end_service();
        // Threads that wait may have relied on it to stand in at the bell.
        self.0.lookout.unwatch();
        self.0.sleep.wake_all();
    }

    /// Leaves sends that are under way to the service thread, which moves them while no call does.
    #[inline(never)]
    pub(super) fn leave_sends_to_service(&self) {
        if !self.0.sends_left.swap(true, Ordering::SeqCst)
            && self.start().is_ok()
            && let Some(thread) = self.0.server.get()
        {
            // Not by the bell, too: it is in no hurry.
            thread.unpark();
        }
    }

    /// Moves sends that are under way. Returns true if some are left.
    fn move_sends(&self) -> bool {
        if !self.0.sends_left.load(Ordering::SeqCst) {
            return false;
        }
        let moved = self.own_turn(|layer| {
            let moved = layer.nic().move_sends();
            // In our turn: a send that is posted later raises the flag again.
            self.0.sends_left.store(moved.left, Ordering::SeqCst);
            moved
        });
        let moved = moved.unwrap_or_default();
        if moved.something {
            // Also ourselves, for the next look.
            self.0.sleep.ring();
        }
        moved.left
    }
}

impl<L: Layer> Inner<L> {
    fn lock_service(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.service.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn wake_service(&self) {
        if let Some(thread) = self.server.get() {
            thread.unpark();
        }
        if self.sleep.any_thread() {
            self.sleep.ring();
        }
    }

    /// Ends the service thread, if there is one. `closing` is set.
    pub(super) fn end_service(&self) {
        let service = self.lock_service().take();
        if let Some(handle) = service {
            self.sleep.unpark_at_news(None);
            self.wake_service();
            // The layer may be closed, or dropped last, on the service thread itself.
            if handle.thread().id() != thread::current().id() {
                let _ = handle.join();
            }
        }
    }
}

/// The service thread: serves the layer, then sleeps on the bell while the layer wants that or sends are left to it, else
/// until unparked.
fn serve<L: Layer>(driver: &Weak<Inner<L>>, sleep: &Sleepers) {
    let (mut rest, mut paused, mut pauses) = (Rest::parked(), false, 0u32);
    // Times that the lookout had left at the last look; whether the last pause was for its sake alone.
    let (mut seen, mut watching) = (0, false);
    loop {
        let open = |inner: &Arc<Inner<L>>| !inner.closing.load(Ordering::SeqCst);
        let Some(inner) = driver.upgrade().filter(open) else { return };
        let held = Driver(inner);
        let left = held.0.sends_left.load(Ordering::SeqCst);
        // While calls are made, sends move inside them.
        let called = left && held.0.called.swap(false, Ordering::Relaxed);
        // The end of a pause is no reason to take the layer from the thread that makes those calls.
        pauses = if paused { pauses + 1 } else { 0 };
        let enough = pauses.is_multiple_of(MOST_PAUSES);
        if !(paused && (called || watching)) || enough || rest.is_over() {
            rest = L::serve(&held);
        }
        if paused && called && enough {
            // Calls that only post, or hold something back, move no sends.
            held.move_sends();
        }
        paused = false;
        let duty = held.0.lookout.duty(&mut seen);
        if !rest.on_bell && duty != Duty::Stand && (!left || called) {
            drop(held);
            if driver.strong_count() == 0 {
                return;
            }
            watching = duty == Duty::Watch && !left;
            let limit =
                left.then_some(SILENCE).into_iter().chain((duty == Duty::Watch).then_some(PAUSE)).min();
            match rest.time(limit) {
                Some(time) => {
                    let begin = Instant::now();
                    thread::park_timeout(time);
                    paused = limit.is_some() && begin.elapsed() >= time;
                }
                None => thread::park(),
            }
            continue;
        }
        let ticket = sleep.announce();
        rest = L::serve(&held);
        let stands = held.0.lookout.duty(&mut seen) == Duty::Stand;
        if stands {
            held.own_turn(L::take_in);
        }
        let left = if called { left } else { held.move_sends() };
        let sleeps = (rest.on_bell || left || stands) && open(&held.0);
        drop(held);
        if sleeps && driver.strong_count() > 0 {
            let limit = if called { SILENCE } else { LOOK_AGAIN };
            sleep.park(ticket, rest.time(left.then_some(limit)));
        }
        sleep.cancel();
    }
}
