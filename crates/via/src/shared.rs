//! A NIC shared by threads: calls that take turns on it, and waits that do not hold it.
//!
//! The lock ([`Turn`]) costs next to nothing while one thread makes nearly all calls, as is usual. Notify handlers, error
//! handlers and futures are in [`service`].

mod service;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use viaduct_os::clock;
use viaduct_os::turn::{Turn, TurnGuard};
use viaduct_os::wait::WaitPolicy;

use crate::address::NetAddress;
use crate::attributes::RemoteAttributes;
use crate::connect::ConnRequest;
use crate::error::Error;
use crate::handle::{Cq, Vi};
use crate::nic::Nic;
use crate::poll::Completion;
use crate::sleepers::Sleepers;
use crate::vi::Queue;
use service::Watch;
pub use service::{EntryHandler, Next, NotifyHandler, SharedErrorHandler};

/// A NIC that threads share.
#[derive(Clone)]
pub struct SharedNic(Arc<Inner>);

struct Inner {
    /// There until it is closed.
    nic: Turn<Option<Nic>>,
    sleep: Sleepers,
    watch: Mutex<Watch>,
    /// Signalled when a handler has returned.
    returned: Condvar,
    /// Sends are under way that the service thread moves while no call does. Cleared by the service thread, in its turn.
    sends_left: AtomicBool,
    /// Calls were made since the service thread looked last.
    called: AtomicBool,
    closing: AtomicBool,
    service: Mutex<Option<JoinHandle<()>>>,
}

impl SharedNic {
    /// Makes a NIC shareable.
    pub fn new(nic: Nic) -> SharedNic {
        SharedNic(Arc::new(Inner {
            sleep: nic.sleepers(),
            nic: Turn::new(Some(nic)),
            watch: Mutex::default(),
            returned: Condvar::new(),
            sends_left: AtomicBool::new(false),
            called: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            service: Mutex::new(None),
        }))
    }

    /// The NIC, held until the guard is dropped. Other threads that wait are woken then, because what was done may
    /// concern them.
    ///
    /// # Panics
    /// If the NIC was closed.
    pub fn lock(&self) -> NicGuard<'_> {
        self.try_lock().expect("a NIC that was not closed")
    }

    /// What [`lock`](Self::lock) does, where the NIC may have been closed.
    #[inline]
    pub fn try_lock(&self) -> Result<NicGuard<'_>, Error> {
        let nic = self.hold()?;
        Ok(NicGuard { nic: Some(nic), shared: self })
    }

    /// Does something with the NIC: what [`lock`](Self::lock) does, in fewer instructions. None if it was closed.
    #[inline(always)]
    pub fn with<R>(&self, act: impl FnOnce(&mut Nic) -> R) -> Option<R> {
        let inner = &*self.0;
        // Beside the result, not with it: the compiler would pack both into one register.
        let mut after = None;
        let result = inner.nic.with(|nic| {
            let nic = nic.as_mut()?;
            let result = act(nic);
            after = After::of(nic, inner);
            Some(result)
        })?;
        if let Some(after) = after {
            self.attend_to(after);
        }
        Some(result)
    }

    /// Wakes the threads that a call concerns, after it has given the NIC back.
    #[inline(never)]
    fn attend_to(&self, after: After) {
        if after.sleepers {
            self.0.sleep.ring();
        }
        if after.errors {
            self.tell_errors();
        }
        if after.sends_left {
            self.leave_sends_to_service();
        }
    }

    /// Ends a connection as [`Nic::disconnect`] does, without holding the NIC while sends under way are waited for.
    pub fn disconnect(&self, vi: Vi) -> Result<(), Error> {
        let limit = self.hold()?.drain_limit();
        if !limit.is_zero() {
            // Whether it was enough shows in what is flushed.
            let _ = self.wait_until(Some(limit), |nic| nic.has_sent(vi).then_some(Ok(())));
        }
        self.with(|nic| nic.disconnect_now(vi)).unwrap_or(Err(Error::Closed))
    }

    /// Takes the NIC for a call of this module, which wakes other threads by itself.
    #[inline]
    fn hold(&self) -> Result<Held<'_>, Error> {
        let nic = self.0.nic.enter();
        if nic.is_some() { Ok(Held(nic)) } else { Err(Error::Closed) }
    }

    /// Closes the NIC for all threads that share it: connections end, waits return, and every later call is refused.
    pub fn close(&self) -> Result<(), Error> {
        let nic = self.hold()?.0.take();
        self.0.closing.store(true, Ordering::Release);
        drop(nic);
        self.0.sleep.ring();
        self.end_service();
        Ok(())
    }

    /// Waits for the next completion of a queue without holding the NIC.
    pub fn wait(&self, vi: Vi, queue: Queue, timeout: Option<Duration>) -> Result<Completion, Error> {
        self.hold()?.check_unbound(vi, queue)?;
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
    }

    /// Waits for the next completion of a completion queue without holding the NIC.
    pub fn wait_cq(&self, cq: Cq, timeout: Option<Duration>) -> Result<Completion, Error> {
        self.wait_until(timeout, |nic| nic.poll_cq(cq).transpose())
    }

    /// Waits for a request at an address, as [`Nic::connect_wait`] does, without holding the NIC.
    pub fn connect_wait(
        &self,
        address: &NetAddress,
        timeout: Option<Duration>,
    ) -> Result<ConnRequest, Error> {
        let listener = self.hold()?.begin_waiting(address)?;
        let request = self.wait_until(timeout, |nic| nic.poll_listener(listener).transpose());
        self.hold()?.end_waiting(listener, request.is_ok());
        request
    }

    /// Waits for the outcome of a request, as [`Nic::connect_finish`] does, without holding the NIC.
    pub fn connect_finish(&self, vi: Vi) -> Result<RemoteAttributes, Error> {
        let deadline = self.hold()?.connect_deadline(vi)?;
        self.wait_deadline(deadline, |nic| nic.connect_poll(vi).transpose())
    }

    /// Waits until `poll` finds something. It has the NIC while it looks, and only then.
    pub fn wait_until<T>(
        &self,
        timeout: Option<Duration>,
        poll: impl FnMut(&mut Nic) -> Option<Result<T, Error>>,
    ) -> Result<T, Error> {
        let deadline = timeout.map(|t| clock::now_ns().saturating_add(t.as_nanos() as u64));
        self.wait_deadline(deadline, poll)
    }

    fn wait_deadline<T>(
        &self,
        deadline: Option<u64>,
        mut poll: impl FnMut(&mut Nic) -> Option<Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut policy = WaitPolicy::new(Default::default());
        let look = || {
            let mut nic = match self.hold() {
                Ok(nic) => nic,
                Err(closed) => return Some(Err(closed)),
            };
            let found = poll(&mut nic);
            let after = After::of(&mut nic, &self.0);
            drop(nic);
            if let Some(mut after) = after {
                // Progress made here may have completed what another thread waits for.
                after.sleepers &= found.is_some();
                self.attend_to(after);
            }
            found
        };
        policy.wait(deadline, look, &self.0.sleep).unwrap_or(Err(Error::Timeout))
    }
}

/// What is to be done after a call has given the NIC back.
#[derive(Clone, Copy)]
struct After {
    /// Errors were met for which a handler may be set.
    errors: bool,
    /// Threads sleep that may wait for what the call did.
    sleepers: bool,
    /// Sends are under way.
    sends_left: bool,
}

impl After {
    /// Notes a call. None, as a rule, if nothing is to be done after it.
    #[inline(always)]
    fn of(nic: &mut Nic, inner: &Inner) -> Option<After> {
        inner.called.store(true, Ordering::Relaxed);
        if nic.sends_left || nic.errors.is_waiting() || inner.sleep.any() {
            return Some(After::found(nic, inner));
        }
        None
    }

    #[cold]
    fn found(nic: &mut Nic, inner: &Inner) -> After {
        let sends_left = std::mem::take(&mut nic.sends_left);
        After { errors: nic.errors.is_waiting(), sleepers: inner.sleep.any(), sends_left }
    }
}

/// The NIC, known to be open.
struct Held<'a>(TurnGuard<'a, Option<Nic>>);

impl Deref for Held<'_> {
    type Target = Nic;

    #[inline]
    fn deref(&self) -> &Nic {
        self.0.as_ref().expect("open, as was seen when it was taken")
    }
}

impl DerefMut for Held<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Nic {
        self.0.as_mut().expect("open, as was seen when it was taken")
    }
}

/// A shared NIC held by one thread.
pub struct NicGuard<'a> {
    /// There until dropped.
    nic: Option<Held<'a>>,
    shared: &'a SharedNic,
}

impl Deref for NicGuard<'_> {
    type Target = Nic;

    #[inline]
    fn deref(&self) -> &Nic {
        self.nic.as_ref().expect("there until dropped")
    }
}

impl DerefMut for NicGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Nic {
        self.nic.as_mut().expect("there until dropped")
    }
}

impl Drop for NicGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let shared = self.shared;
        let after = After::of(&mut *self, &shared.0);
        if let Some(after) = after {
            self.nic = None;
            shared.attend_to(after);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        let service = self.service.get_mut().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(handle) = service {
            handle.thread().unpark();
            self.sleep.ring();
            // The last reference may be dropped by a handler, on the service thread itself.
            if handle.thread().id() != std::thread::current().id() {
                let _ = handle.join();
            }
        }
    }
}
