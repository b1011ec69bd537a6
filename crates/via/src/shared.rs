//! A NIC shared by threads: calls that take turns on it, and waits that do not hold it.
//!
//! It is a [`Driver`] whose layer has nothing of its own but the NIC, and a value that a program may keep beside it. Every
//! call may concern every thread, so those that sleep look again after each. Notify handlers, error handlers and futures
//! are in [`notify`].

mod notify;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use viaduct_os::clock;

use crate::accepting::ConnRequest;
use crate::address::NetAddress;
use crate::arriving::Arrival;
use crate::attributes::RemoteAttributes;
use crate::completion::{Completion, Ended};
use crate::driver::{Driver, Guard, Layer, News, Rest, Turned};
use crate::error::Error;
use crate::handle::{Cq, Listener, Vi};
use crate::nic::Nic;
use crate::vi::Queue;
use notify::Handlers;
pub use notify::{Connected, EntryHandler, Next, NextRequest, NotifyHandler, SharedErrorHandler};

/// A NIC that threads share, with a value of the program's beside it.
pub struct SharedNic<T: Send + 'static = ()> {
    driver: Driver<Sharing<T>>,
    handlers: Arc<Handlers<T>>,
}

/// What is behind the turn.
struct Sharing<T: Send + 'static> {
    nic: Nic,
    news: News,
    value: T,
    handlers: Arc<Handlers<T>>,
    /// A handler of errors is set, which runs on the service thread.
    tells_errors: bool,
}

impl<T: Send + 'static> Layer for Sharing<T> {
    const THREAD: &'static str = "viaduct-notify";

    #[inline(always)]
    fn nic(&mut self) -> &mut Nic {
        &mut self.nic
    }

    #[inline(always)]
    fn news(&mut self) -> &mut News {
        &mut self.news
    }

    fn serve(driver: &Driver<Self>) -> Rest {
        let Some(handlers) = driver.own_turn(|sharing| sharing.handlers.clone()) else {
            return Rest::parked();
        };
        let shared = SharedNic { driver: driver.clone(), handlers };
        if shared.fire() { Rest::on_bell().until(shared.next_deadline()) } else { Rest::parked() }
    }
}

impl<T: Send + 'static> Sharing<T> {
    /// Errors that a call met are for the handler on the service thread.
    #[inline(always)]
    fn after_call(&mut self) {
        if self.nic.errors.is_waiting() && self.tells_errors {
            self.news.poke();
        }
    }
}

impl SharedNic {
    /// Makes a NIC shareable.
    pub fn new(nic: Nic) -> SharedNic {
        SharedNic::with_value(nic, ())
    }
}

impl<T: Send + 'static> SharedNic<T> {
    /// Makes a NIC shareable, with a value that goes with it: the thread that has the one has the other.
    pub fn with_value(nic: Nic, value: T) -> SharedNic<T> {
        let handlers = Arc::<Handlers<T>>::default();
        let sharing =
            Sharing { nic, news: News::default(), value, handlers: handlers.clone(), tells_errors: false };
        SharedNic { driver: Driver::new(sharing), handlers }
    }

    /// The NIC, held until the guard is dropped. Other threads that wait are woken then, because what was done may
    /// concern them.
    ///
    /// # Panics
    /// If the NIC was closed.
    pub fn lock(&self) -> NicGuard<'_, T> {
        self.try_lock().expect("a NIC that was not closed")
    }

    /// What [`lock`](Self::lock) does, where the NIC may have been closed.
    ///
    /// # Errors
    /// [`Error::Closed`].
    #[inline]
    pub fn try_lock(&self) -> Result<NicGuard<'_, T>, Error> {
        let mut guard = self.driver.lock()?;
        guard.wake_after();
        Ok(NicGuard(guard))
    }

    /// Does something with the NIC: what [`lock`](Self::lock) does, in fewer instructions. None if it was closed.
    #[inline(always)]
    pub fn with<R>(&self, act: impl FnOnce(&mut Nic) -> R) -> Option<R> {
        self.with_both(|nic, _| act(nic))
    }

    /// Does something with the NIC and the value beside it. None if the NIC was closed.
    #[inline(always)]
    pub fn with_both<R>(&self, act: impl FnOnce(&mut Nic, &mut T) -> R) -> Option<R> {
        self.driver.with_waking(|sharing| {
            let result = act(&mut sharing.nic, &mut sharing.value);
            sharing.after_call();
            Turned::waking(result)
        })
    }

    /// Ends a connection as [`Nic::disconnect`] does, without holding the NIC while sends under way are waited for.
    ///
    /// # Errors
    /// [`Error::Closed`], and as of [`Nic::disconnect`].
    pub fn disconnect(&self, vi: Vi) -> Result<(), Error> {
        self.driver.disconnect(vi)
    }

    /// Ends a connection and destroys its VI as [`Nic::retire`] does, without holding the NIC while sends under way are
    /// waited for.
    ///
    /// # Errors
    /// As of [`Nic::retire`]; [`Error::Closed`].
    pub fn retire(&self, vi: Vi) -> Result<(), Error> {
        // Refused for an idle VI; what is left to do is done below.
        let _ = self.disconnect(vi);
        self.cancel_notify(vi);
        self.hold()?.nic.retire(vi)
    }

    /// Closes the NIC for all threads that share it: connections end, waits return, and every later call is refused.
    ///
    /// # Errors
    /// [`Error::Closed`] if it was closed before.
    pub fn close(&self) -> Result<(), Error> {
        self.handlers.clear();
        self.driver.close()
    }

    /// Waits for the next message of a VI without holding the NIC, as [`Nic::wait_recv`] does.
    ///
    /// # Errors
    /// [`Error::Unsuccessful`] if the receive ended in another way; as of [`wait`](Self::wait).
    pub fn wait_recv(&self, vi: Vi, timeout: Option<Duration>) -> Result<Completion, Error> {
        self.wait(vi, Queue::Receive, timeout)?.ok()
    }

    /// Waits for the next send of a VI to be done without holding the NIC, as [`Nic::wait_send`] does.
    ///
    /// # Errors
    /// [`Error::Unsuccessful`] if it was not carried out; as of [`wait`](Self::wait).
    pub fn wait_send(&self, vi: Vi, timeout: Option<Duration>) -> Result<Completion, Error> {
        self.wait(vi, Queue::Send, timeout)?.ok()
    }

    /// Waits for a completion or a connection request without holding the NIC, as [`Nic::wait_any`] does.
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::InvalidHandle`]; [`Error::Closed`].
    pub fn wait_any(&self, cq: Cq, listener: Listener, timeout: Option<Duration>) -> Result<Arrival, Error> {
        self.wait_until(timeout, |nic| nic.poll_any(cq, listener).transpose())
    }

    /// Waits for the next completion of a queue, however it ended, without holding the NIC.
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::QueueEmpty`] if the connection is over and nothing is posted; [`Error::BoundToCq`];
    /// [`Error::InvalidHandle`]; [`Error::Closed`].
    pub fn wait(&self, vi: Vi, queue: Queue, timeout: Option<Duration>) -> Result<Ended, Error> {
        self.hold()?.nic.check_unbound(vi, queue)?;
        self.wait_until(timeout, |nic| {
            let found = match queue {
                Queue::Send => nic.poll_send(vi),
                Queue::Receive => nic.poll_recv(vi),
            };
            // Another thread may post to an idle or connected VI; one in the error state brings nothing any more.
            match found {
                Ok(None) if nic.is_finished(vi, queue) => Some(Err(Error::QueueEmpty)),
                other => other.transpose(),
            }
        })
        .map(Ended)
    }

    /// Waits for the next completion of a completion queue without holding the NIC.
    ///
    /// # Errors
    /// As of [`Nic::wait_cq`], and [`Error::Closed`].
    pub fn wait_cq(&self, cq: Cq, timeout: Option<Duration>) -> Result<Ended, Error> {
        self.wait_until(timeout, |nic| nic.poll_cq(cq).transpose()).map(Ended)
    }

    /// Waits for a request at an address, as [`Nic::connect_wait`] does, without holding the NIC.
    ///
    /// # Errors
    /// As of [`Nic::connect_wait`], and [`Error::Closed`].
    pub fn connect_wait(
        &self,
        address: &NetAddress,
        timeout: Option<Duration>,
    ) -> Result<ConnRequest, Error> {
        let listener = self.hold()?.nic.begin_waiting(address)?;
        let request = self.wait_until(timeout, |nic| nic.poll_listener(listener).transpose());
        self.hold()?.nic.end_waiting(listener, request.is_ok());
        request
    }

    /// Waits for the outcome of a request, as [`Nic::connect_finish`] does, without holding the NIC.
    ///
    /// # Errors
    /// As of [`Nic::connect_finish`], and [`Error::Closed`].
    pub fn connect_finish(&self, vi: Vi) -> Result<RemoteAttributes, Error> {
        let deadline = self.hold()?.nic.connect_deadline(vi)?;
        self.wait_deadline(deadline, |nic, _| nic.connect_poll(vi).transpose())
    }

    /// Waits until `poll` finds something. It has the NIC while it looks, and only then.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Closed`], [`Error::Forked`].
    pub fn wait_until<R>(
        &self,
        timeout: Option<Duration>,
        mut poll: impl FnMut(&mut Nic) -> Option<Result<R, Error>>,
    ) -> Result<R, Error> {
        self.wait_until_both(timeout, |nic, _| poll(nic))
    }

    /// Waits until `poll` finds something. It has the NIC and the value beside it while it looks, and only then.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Closed`], [`Error::Forked`].
    pub fn wait_until_both<R>(
        &self,
        timeout: Option<Duration>,
        poll: impl FnMut(&mut Nic, &mut T) -> Option<Result<R, Error>>,
    ) -> Result<R, Error> {
        let deadline = timeout.map(|t| clock::now_ns().saturating_add(t.as_nanos() as u64));
        self.wait_deadline(deadline, poll)
    }

    fn wait_deadline<R>(
        &self,
        deadline: Option<u64>,
        mut poll: impl FnMut(&mut Nic, &mut T) -> Option<Result<R, Error>>,
    ) -> Result<R, Error> {
        let mut policy = self.driver.policy();
        let look = |sharing: &mut Sharing<T>| {
            let found = poll(&mut sharing.nic, &mut sharing.value);
            sharing.after_call();
            // Progress made here may have completed what another thread waits for.
            let wake = found.is_some();
            Turned { result: found, wake }
        };
        self.driver.wait_waking(&mut policy, deadline, look)?
    }

    /// Takes the NIC for a call of this module after which no other thread has to look again.
    fn hold(&self) -> Result<Guard<'_, Sharing<T>>, Error> {
        self.driver.lock()
    }
}

impl<T: Send + 'static> fmt::Debug for SharedNic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not what is behind the turn: printing waits for no thread.
        f.debug_struct("SharedNic").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Clone for SharedNic<T> {
    fn clone(&self) -> SharedNic<T> {
        SharedNic { driver: self.driver.clone(), handlers: self.handlers.clone() }
    }
}

/// A shared NIC held by one thread.
pub struct NicGuard<'a, T: Send + 'static = ()>(Guard<'a, Sharing<T>>);

impl<T: Send + 'static> NicGuard<'_, T> {
    /// The NIC and the value beside it.
    #[inline]
    pub fn both(&mut self) -> (&mut Nic, &mut T) {
        let sharing = &mut *self.0;
        (&mut sharing.nic, &mut sharing.value)
    }
}

impl<T: Send + 'static> fmt::Debug for NicGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NicGuard").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Deref for NicGuard<'_, T> {
    type Target = Nic;

    #[inline]
    fn deref(&self) -> &Nic {
        &self.0.nic
    }
}

impl<T: Send + 'static> DerefMut for NicGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Nic {
        &mut self.0.nic
    }
}

impl<T: Send + 'static> Drop for NicGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.after_call();
    }
}
