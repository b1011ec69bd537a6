//! Waiting for completions: the policy of `os` over the provider's sleeper, the pollable descriptor, and progress of
//! a whole completion queue.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

use viaduct_os::clock;
use viaduct_os::wait::{Sleep, WaitPolicy};

use crate::completion::{Completion, Ended};
use crate::counters::Counter;
use crate::error::Error;
use crate::handle::{Cq, Vi};
use crate::nic::Nic;
use crate::others::LOOKS;
use crate::provider::{FD_ARMED, PARKING, Signal, Sleeper};
use crate::vi::{Queue, ViState};

impl Nic {
    /// Waits for the next send of a VI to be done, and gives its descriptor back.
    ///
    /// # Errors
    /// [`Error::Unsuccessful`] if it was not carried out, with the completion and so with the descriptor;
    /// [`Error::QueueEmpty`] if nothing is posted; [`Error::Timeout`]; [`Error::BoundToCq`].
    pub fn wait_send(&mut self, vi: Vi, timeout: Option<Duration>) -> Result<Completion, Error> {
        self.wait_send_outcome(vi, timeout)?.ok()
    }

    /// Waits for the next message of a VI. A receive that ended in another way is an error and never an empty message.
    ///
    /// ```
    /// use std::time::Duration;
    /// use viaduct_via::{Error, Nic, Status, Vi};
    ///
    /// fn next_line(nic: &mut Nic, vi: Vi) -> Result<Option<Vec<u8>>, Error> {
    ///     match nic.wait_recv(vi, Some(Duration::from_secs(5))) {
    ///         Ok(message) => Ok(Some(message.data())),
    ///         // The peer has disconnected.
    ///         Err(Error::Unsuccessful(end)) if end.status == Status::Flushed => Ok(None),
    ///         Err(error) => Err(error),
    ///     }
    /// }
    /// # let _ = next_line;
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsuccessful`] if the receive was flushed, because the connection is over, or failed;
    /// [`Error::QueueEmpty`] if nothing is posted; [`Error::Timeout`]; [`Error::BoundToCq`].
    pub fn wait_recv(&mut self, vi: Vi, timeout: Option<Duration>) -> Result<Completion, Error> {
        self.wait_recv_outcome(vi, timeout)?.ok()
    }

    /// Waits for the next completion of the send queue, however it ended; not if the queue is empty.
    ///
    /// # Errors
    /// As of [`wait_send`](Self::wait_send), but for [`Error::Unsuccessful`]: the caller looks at
    /// [`status`](Ended::status).
    pub fn wait_send_outcome(&mut self, vi: Vi, timeout: Option<Duration>) -> Result<Ended, Error> {
        self.check_unbound(vi, Queue::Send)?;
        self.wait_until(timeout, |nic| match nic.poll_send(vi) {
            Ok(None) if nic.nothing_to_wait_for(vi, Queue::Send) => Some(Err(Error::QueueEmpty)),
            other => other.transpose(),
        })?
        .map(Ended)
    }

    /// Waits for the next completion of the receive queue, however it ended; not if the queue is empty, because no other
    /// thread can post.
    ///
    /// # Errors
    /// As of [`wait_recv`](Self::wait_recv), but for [`Error::Unsuccessful`]: the caller looks at
    /// [`status`](Ended::status).
    pub fn wait_recv_outcome(&mut self, vi: Vi, timeout: Option<Duration>) -> Result<Ended, Error> {
        self.check_unbound(vi, Queue::Receive)?;
        self.wait_until(timeout, |nic| match nic.poll_recv(vi) {
            Ok(None) if nic.nothing_to_wait_for(vi, Queue::Receive) => Some(Err(Error::QueueEmpty)),
            other => other.transpose(),
        })?
        .map(Ended)
    }

    /// Waits for the next completion of a completion queue, however it ended: [`Ended::ok`] makes an error of one
    /// that was not successful.
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::InvalidHandle`]; [`Error::Forked`].
    pub fn wait_cq(&mut self, cq: Cq, timeout: Option<Duration>) -> Result<Ended, Error> {
        self.wait_until(timeout, |nic| nic.poll_cq(cq).transpose())?.map(Ended)
    }

    /// A descriptor that becomes readable when something happened after [`arm`](Self::arm).
    ///
    /// # Errors
    /// [`Error::Os`] if there can be no more descriptors; [`Error::Forked`].
    pub fn fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.check_fork()?;
        self.sleeper.fd()
    }

    /// Arms the pollable descriptor. Poll once more before going to sleep on it: what came before is not announced.
    ///
    /// # Errors
    /// As of [`fd`](Self::fd).
    pub fn arm(&mut self) -> Result<(), Error> {
        self.check_fork()?;
        self.sleeper.drain_fd();
        self.arm_again()
    }

    /// Arms the pollable descriptor and leaves it readable if it is.
    pub(crate) fn arm_again(&mut self) -> Result<(), Error> {
        let armed = self.signal.announce(FD_ARMED, || self.sleeper.arm_fd());
        armed.inspect_err(|_| self.signal.take_back(FD_ARMED))
    }

    /// After a poll that followed [`arm`](Self::arm) found something, or the descriptor was readable.
    pub fn disarm(&mut self) {
        self.signal.take_back(FD_ARMED);
        self.sleeper.drain_fd();
    }

    /// What other threads wake a sleeping NIC with.
    pub(crate) fn sleep(&self) -> NicSleep {
        NicSleep { signal: self.signal.clone(), sleeper: self.sleeper.clone() }
    }

    pub(crate) fn wait_until<T>(
        &mut self,
        timeout: Option<Duration>,
        mut poll: impl FnMut(&mut Nic) -> Option<T>,
    ) -> Result<T, Error> {
        // What is there already costs no look at the clock.
        if let Some(found) = poll(self) {
            return Ok(found);
        }
        let deadline = timeout.map(|t| clock::now_ns().saturating_add(t.as_nanos() as u64));
        self.wait_deadline(deadline, poll).ok_or(Error::Timeout)
    }

    pub(crate) fn wait_deadline<T>(
        &mut self,
        deadline: Option<u64>,
        mut poll: impl FnMut(&mut Nic) -> Option<T>,
    ) -> Option<T> {
        let sleep = self.sleep();
        let mut policy = self.wait.take().unwrap_or_else(|| WaitPolicy::new(Default::default()));
        let before = (policy.spins, policy.yields, policy.sleeps);
        let mut looks = 0u32;
        let found = loop {
            // A retired VI has its time, too.
            let leaving = self.leaving.iter().map(|leaving| leaving.until).min();
            let until = leaving.into_iter().chain(deadline).min();
            let look = || {
                // A look before a sleep moves all VIs by itself.
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(LOOKS) && !self.others.is_empty() {
                    self.move_others();
                }
                poll(self)
            };
            let found = policy.wait(until, look, &sleep);
            if found.is_some() || until == deadline {
                break found;
            }
            self.process_events();
        };
        self.counters.add(Counter::Spins, policy.spins - before.0);
        self.counters.add(Counter::Yields, policy.yields - before.1);
        self.counters.add(Counter::Sleeps, policy.sleeps - before.2);
        self.wait = Some(policy);
        found
    }

    /// Moves on everything that may bring a completion to `cq`.
    pub(crate) fn progress_cq(&mut self, cq: Cq) {
        let (calm, announced) = (self.signal.is_undisturbed(), self.signal.is_announced());
        self.process_events();
        let (mut at, mut taken) = (0, 0);
        while let Some(vi) = self.cqs.get(cq.0).and_then(|c| c.hot.get(at).copied()) {
            // News may be of an end, which what is watched does not show.
            let quiet = calm && self.vis.get_mut(vi.0).is_some_and(|v| v.watch.is_quiet());
            let here = if quiet { 0 } else { self.progress_vi(vi) };
            taken += here;
            let core = self.cqs.get_mut(cq.0).expect("looked up above");
            if here > 0 {
                if let Some(v) = self.vis.get_mut(vi.0) {
                    v.idle_polls = 0;
                }
                core.heat(vi, &mut self.vis, &self.signal);
                at += 1;
            } else if core.hot.get(at) == Some(&vi) && !core.note_idle(at, &mut self.vis, &self.signal) {
                at += 1;
            }
        }
        let core = self.cqs.get_mut(cq.0).expect("looked up by the caller");
        if let Some(vi) = core.scrub() {
            taken += self.progress_and_heat(vi);
        }
        if announced {
            let passed = self.signal.barriers_passed();
            while let Some(vi) = self.cqs.get_mut(cq.0).and_then(|c| c.next_cooling(passed)) {
                taken += self.progress_and_heat(vi);
            }
        }
        taken += self.progress_ready();
        self.unrest.note_cooled(self.cqs.get_mut(cq.0).is_some_and(|c| c.take_cooled()));
        if taken > 0 && self.cqs.get(cq.0).is_some_and(|c| c.is_empty()) {
            self.look_again();
        }
    }

    /// Moves on the VIs whose peers rang.
    fn progress_ready(&mut self) -> u32 {
        let mut ready = std::mem::take(&mut self.ready);
        self.provider.ready(&mut ready);
        let mut taken = 0;
        for vi in ready.drain(..) {
            self.heat(vi);
            taken += self.progress_vi(vi);
        }
        self.ready = ready;
        taken
    }

    /// Moves a cold VI on. Where something was, more may be.
    fn progress_and_heat(&mut self, vi: Vi) -> u32 {
        let taken = self.progress_vi(vi);
        if taken > 0 || self.vis.get(vi.0).is_some_and(|core| core.stalled) {
            self.heat(vi);
        }
        taken
    }

    pub(crate) fn heat(&mut self, vi: Vi) {
        let Some(core) = self.vis.get(vi.0) else { return };
        let (a, b) = (core.attributes.recv_cq, core.attributes.send_cq);
        for cq in [a, b.filter(|b| a != Some(*b))].into_iter().flatten() {
            if let Some(cq) = self.cqs.get_mut(cq.0) {
                cq.heat(vi, &mut self.vis, &self.signal);
                self.unrest.note_cooled(cq.take_cooled());
            }
        }
    }

    /// A VI connected: decide whether its completion queue polls it or waits to be told.
    pub(crate) fn adopt_into_cqs(&mut self, vi: Vi) {
        let Some(core) = self.vis.get_mut(vi.0) else { return };
        let bound = [core.attributes.recv_cq, core.attributes.send_cq];
        let few = bound.iter().flatten().all(|cq| self.cqs.get(cq.0).is_some_and(|c| c.few()));
        if bound.iter().all(Option::is_none) {
            return;
        }
        if few {
            self.heat(vi);
        } else if let Some(endpoint) = core.endpoint.as_mut() {
            endpoint.set_armed(true);
            for cq in bound.into_iter().flatten() {
                if let Some(cq) = self.cqs.get_mut(cq.0) {
                    cq.list_cooling(vi, &self.signal);
                    self.unrest.note_cooled(cq.take_cooled());
                }
            }
            // What arrived before the flag was up is looked for once.
            self.progress_and_heat(vi);
        }
    }

    /// Whether a queue is empty and its VI in the error state, so that nothing can complete before a disconnect.
    pub(crate) fn is_finished(&self, vi: Vi, queue: Queue) -> bool {
        let broken = self.vis.get(vi.0).is_some_and(|core| core.state == ViState::Error);
        broken && self.nothing_to_wait_for(vi, queue)
    }

    /// Whether nothing that is posted now can ever complete in this queue.
    fn nothing_to_wait_for(&self, vi: Vi, queue: Queue) -> bool {
        let Some(core) = self.vis.get(vi.0) else { return false };
        match queue {
            Queue::Send => core.send.len() == 0,
            // A shared receive queue may still bring something.
            Queue::Receive => {
                core.recv.len() == 0 && (core.attributes.srq.is_none() || core.state != ViState::Connected)
            }
        }
    }

    pub(crate) fn check_unbound(&self, vi: Vi, queue: Queue) -> Result<(), Error> {
        let core = self.vis.get(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        if core.cq_of(queue).is_some() { Err(Error::BoundToCq) } else { Ok(()) }
    }
}

/// A NIC's place to sleep, usable by a thread that does not hold the NIC.
#[derive(Clone)]
pub(crate) struct NicSleep {
    signal: Arc<Signal>,
    sleeper: Arc<dyn Sleeper>,
}

impl NicSleep {
    pub(crate) fn ring(&self) {
        self.sleeper.ring();
    }

    pub(crate) fn unpark_at_news(&self, thread: Option<Thread>) {
        self.signal.set_watcher(thread);
    }
}

impl Sleep for NicSleep {
    fn announce(&self) -> u32 {
        self.signal.announce(PARKING, || self.sleeper.announce())
    }

    fn cancel(&self) {
        self.signal.take_back(PARKING);
        self.sleeper.cancel();
    }

    fn park(&self, ticket: u32, timeout: Option<Duration>) {
        self.sleeper.park(ticket, timeout);
    }
}
