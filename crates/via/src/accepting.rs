//! The server's side of connecting: listeners, requests that wait, accept and reject.
//!
//! Beyond VIA: listeners with a backlog.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::address::NetAddress;
use crate::attributes::{Reach, RemoteAttributes};
use crate::connect::offer;
use crate::counters::Counter;
use crate::error::{AcceptError, Error};
use crate::handle::{Listener, Vi};
use crate::nic::Nic;
use crate::provider::{ListenId, RequestId, Signal, Sleeper};
use crate::vi::ViState;

/// A connection request that waits for an answer: accept it or reject it. One that is dropped is rejected by the NIC's
/// next call, so that the client does not wait without end.
#[must_use = "a request is answered by Nic::accept or Nic::reject"]
pub struct ConnRequest {
    id: RequestId,
    asked: Box<Asked>,
    nic: Arc<Forgotten>,
    answered: bool,
}

/// Address of the client, what its VI is, and how it is reached.
pub(crate) struct Asked {
    from: NetAddress,
    remote: RemoteAttributes,
    reach: Reach,
    /// Why it could not be accepted, for the client, if the two VIs do not go together.
    mismatch: Option<String>,
}

impl Asked {
    pub(crate) fn new(from: NetAddress, remote: RemoteAttributes, reach: Reach) -> Box<Asked> {
        Box::new(Asked { from, remote, reach, mismatch: None })
    }
}

impl ConnRequest {
    /// Address of the client.
    pub fn from(&self) -> &NetAddress {
        &self.asked.from
    }

    /// What the remote VI is, with the private data of the request.
    pub fn remote(&self) -> &RemoteAttributes {
        &self.asked.remote
    }

    /// How the connection that it asks for would reach the client.
    pub fn reach(&self) -> Reach {
        self.asked.reach
    }
}

impl Drop for ConnRequest {
    fn drop(&mut self) {
        if !self.answered {
            self.nic.add(self.id, self.asked.mismatch.take().unwrap_or_default());
        }
    }
}

impl fmt::Debug for ConnRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnRequest").field("from", self.from()).field("remote", self.remote()).finish()
    }
}

/// Requests of one NIC that were dropped without an answer. Also by what a request knows its NIC.
pub(crate) struct Forgotten {
    /// With what the client is to hear.
    list: Mutex<Vec<(RequestId, String)>>,
    signal: Arc<Signal>,
    sleeper: Arc<dyn Sleeper>,
}

impl Forgotten {
    pub(crate) fn new(signal: Arc<Signal>, sleeper: Arc<dyn Sleeper>) -> Arc<Forgotten> {
        Arc::new(Forgotten { list: Mutex::new(Vec::new()), signal, sleeper })
    }

    fn add(&self, id: RequestId, why: String) {
        self.list.lock().unwrap_or_else(|e| e.into_inner()).push((id, why));
        self.signal.post_events();
        self.sleeper.ring();
    }

    fn take(&self) -> Vec<(RequestId, String)> {
        std::mem::take(&mut *self.list.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

/// An address that a NIC listens on.
pub(crate) struct Listening {
    id: ListenId,
    address: NetAddress,
    /// Made by `connect_wait`, which has no backlog.
    implicit: bool,
    /// How many calls of `connect_wait` wait for a request.
    waiters: usize,
    arrived: VecDeque<ConnRequest>,
    /// Calls for completions and requests alike that have looked for completions first since one looked here first.
    passed_over: u32,
}

impl Nic {
    /// Listens on an address; up to `backlog` requests wait there until they are answered.
    ///
    /// A client that asks while as many wait has [`Error::NoRoom`] at once, and may ask again; it does not wait by itself,
    /// as one of TCP does (streams do). A backlog of as many clients as may come at once spares them that.
    ///
    /// # Errors
    /// [`Error::AddressInUse`]; [`Error::NotReachable`] for an address that is not of this host; [`Error::InvalidParameter`]
    /// without a backlog; [`Error::Os`].
    pub fn listen(&mut self, address: &NetAddress, backlog: usize) -> Result<Listener, Error> {
        self.check_fork()?;
        if backlog == 0 {
            return Err(Error::InvalidParameter("a listener has a backlog of at least 1"));
        }
        self.start_listening(address, backlog, false)
    }

    /// Stops listening. Requests not fetched are rejected; one that was fetched can still be answered.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`]; [`Error::Forked`].
    pub fn unlisten(&mut self, listener: Listener) -> Result<(), Error> {
        self.check_fork()?;
        self.process_events();
        let l = self.listening.remove(listener.0).ok_or(Error::InvalidHandle("listener"))?;
        for request in l.arrived {
            let _ = self.reject(request);
        }
        self.provider.unlisten(l.id);
        // Requests that came in between are rejected.
        self.process_events();
        Ok(())
    }

    /// The next request at a listener, if one is there.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`]; [`Error::Forked`].
    pub fn poll_listener(&mut self, listener: Listener) -> Result<Option<ConnRequest>, Error> {
        self.check_fork()?;
        self.process_events();
        let l = self.listening.get_mut(listener.0).ok_or(Error::InvalidHandle("listener"))?;
        Ok(l.arrived.pop_front())
    }

    /// Waits for a request at a listener.
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::InvalidHandle`]; [`Error::Forked`].
    pub fn wait_listener(
        &mut self,
        listener: Listener,
        timeout: Option<Duration>,
    ) -> Result<ConnRequest, Error> {
        if self.listening.get(listener.0).is_none() {
            return Err(Error::InvalidHandle("listener"));
        }
        self.wait_until(timeout, |nic| nic.poll_listener(listener).transpose())?
    }

    /// Waits for a request at an address, as VIA does: a request that comes while no call waits is answered with
    /// [`Error::NoMatch`].
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::InvalidParameter`], [`Error::Forked`]; and as of [`listen`](Self::listen).
    pub fn connect_wait(
        &mut self,
        address: &NetAddress,
        timeout: Option<Duration>,
    ) -> Result<ConnRequest, Error> {
        let listener = self.begin_waiting(address)?;
        let request = self.wait_listener(listener, timeout);
        self.end_waiting(listener, request.is_ok());
        request
    }

    /// Whether requests come before completions in this call: after `most` calls in which they did not.
    #[inline]
    pub(crate) fn listener_has_its_turn(&mut self, listener: Listener, most: u32) -> Result<bool, Error> {
        self.check_fork()?;
        let l = self.listening.get_mut(listener.0).ok_or(Error::InvalidHandle("listener"))?;
        let turn = l.passed_over >= most;
        l.passed_over = if turn { 0 } else { l.passed_over + 1 };
        Ok(turn)
    }

    /// Whether a request waits at a listener.
    pub(crate) fn listener_ready(&mut self, listener: Listener) -> Result<bool, Error> {
        self.check_fork()?;
        self.process_events();
        let l = self.listening.get(listener.0).ok_or(Error::InvalidHandle("listener"))?;
        Ok(!l.arrived.is_empty())
    }

    /// From now on a request that comes to the address is kept.
    pub(crate) fn begin_waiting(&mut self, address: &NetAddress) -> Result<Listener, Error> {
        self.check_fork()?;
        let known = self
            .listening
            .handles()
            .find(|h| self.listening.get(*h).is_some_and(|l| l.implicit && l.address == *address));
        let listener = match known {
            Some(h) => Listener(h),
            None => self.start_listening(address, 0, true)?,
        };
        let l = self.listening.get_mut(listener.0).expect("just found");
        l.waiters += 1;
        self.provider.set_waiting(l.id, true);
        Ok(listener)
    }

    /// A call that waited has its request, or gave up.
    pub(crate) fn end_waiting(&mut self, listener: Listener, found: bool) {
        let Some(l) = self.listening.get_mut(listener.0) else { return };
        l.waiters -= 1;
        // Calls that still wait take the next one.
        self.provider.set_waiting(l.id, l.waiters > 0);
        if !found && l.waiters == 0 {
            // A request that slipped in as we gave up is not kept.
            while let Ok(Some(late)) = self.poll_listener(listener) {
                let _ = self.reject(late);
            }
        }
    }

    /// Connects an idle VI to the one that asks.
    ///
    /// # Errors
    /// On a mismatch of the two VIs, or if the client is gone, the request comes back with the reason, so that another VI
    /// can be tried, or a rejection. `?` makes an [`Error`] of it and so rejects the request.
    pub fn accept(&mut self, request: ConnRequest, vi: Vi) -> Result<(), AcceptError> {
        self.accept_with(request, vi, &[])
    }

    /// Connects an idle VI to the one that asks, as [`accept`](Self::accept) does, with private data in the answer.
    ///
    /// # Errors
    /// As of [`accept`](Self::accept), and [`Error::Limit`] for too much private data.
    pub fn accept_with(
        &mut self,
        mut request: ConnRequest,
        vi: Vi,
        private_data: &[u8],
    ) -> Result<(), AcceptError> {
        let ours = match self.check_accept(&request, vi, private_data) {
            Ok(ours) => ours,
            Err(error) => {
                request.asked.mismatch = error.is_mismatch().then(|| error.to_string());
                return Err(AcceptError { error, request });
            }
        };
        match self.provider.accept(request.id, vi, &ours) {
            Ok(endpoint) => {
                request.answered = true;
                self.vis.get_mut(vi.0).expect("checked above").peer = Some(request.from().clone());
                self.established(vi, endpoint, request.remote().clone());
                Ok(())
            }
            Err(error) => Err(AcceptError { error, request }),
        }
    }

    /// Says no.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`] for a request of another NIC.
    pub fn reject(&mut self, request: ConnRequest) -> Result<(), Error> {
        self.reject_with(request, &[])
    }

    /// Says no, with private data.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`] for a request of another NIC; [`Error::Limit`] for too much private data.
    pub fn reject_with(&mut self, mut request: ConnRequest, private_data: &[u8]) -> Result<(), Error> {
        self.check_fork()?;
        self.check_own(&request)?;
        self.check_private(private_data)?;
        request.answered = true;
        tracing::debug!(from = %request.from(), "connection request rejected");
        self.counters.add(Counter::Rejects, 1);
        self.provider.reject(request.id, private_data)
    }

    /// A request that came to a listener waits there until it is fetched; one to a listener that is gone is rejected.
    pub(crate) fn take_in(&mut self, listener: ListenId, id: RequestId, asked: Box<Asked>) {
        let is_it = |h: &_| self.listening.get(*h).is_some_and(|l| l.id == listener);
        let at = self.listening.handles().find(is_it);
        match at.and_then(|h| self.listening.get_mut(h)) {
            Some(l) => {
                let nic = self.forgotten.clone();
                l.arrived.push_back(ConnRequest { id, asked, nic, answered: false });
            }
            None => drop(self.provider.reject(id, &[])),
        }
    }

    /// Rejects requests that the program dropped without an answer, with the reason if there is one.
    pub(crate) fn reject_forgotten(&mut self) {
        for (id, why) in self.forgotten.take() {
            self.counters.add(Counter::Rejects, 1);
            let most = self.attributes.max_private_data.min(why.len());
            let _ = self.provider.reject(id, &why.as_bytes()[..most]);
        }
    }

    fn start_listening(
        &mut self,
        address: &NetAddress,
        backlog: usize,
        implicit: bool,
    ) -> Result<Listener, Error> {
        let id = self.provider.listen(address, backlog)?;
        let address = address.clone();
        let l = Listening { id, address, implicit, waiters: 0, arrived: VecDeque::new(), passed_over: 0 };
        Ok(Listener(self.listening.insert(l)))
    }

    fn check_accept(
        &mut self,
        request: &ConnRequest,
        vi: Vi,
        private: &[u8],
    ) -> Result<RemoteAttributes, Error> {
        self.check_fork()?;
        self.check_own(request)?;
        self.check_private(private)?;
        let core = self.vis.get(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        if core.state != ViState::Idle {
            return Err(Error::InvalidState { call: "accept", wanted: "idle", found: core.state });
        }
        let (a, theirs) = (&core.attributes, request.remote());
        if a.reliability != theirs.reliability {
            return Err(Error::ReliabilityMismatch { ours: a.reliability, theirs: theirs.reliability });
        }
        if a.max_transfer_size != theirs.max_transfer_size {
            let (ours, theirs) = (a.max_transfer_size, theirs.max_transfer_size);
            return Err(Error::TransferSizeMismatch { ours, theirs });
        }
        if a.qos != theirs.qos {
            return Err(Error::QosMismatch { ours: a.qos, theirs: theirs.qos });
        }
        Ok(offer(a, private))
    }

    fn check_own(&self, request: &ConnRequest) -> Result<(), Error> {
        let own = Arc::ptr_eq(&request.nic, &self.forgotten);
        if own { Ok(()) } else { Err(Error::InvalidHandle("connection request")) }
    }
}
