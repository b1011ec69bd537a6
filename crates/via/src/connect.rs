//! Connecting: wait, accept, reject and request (client and server), crossed requests (peer to peer), disconnect.
//!
//! Beyond VIA: listeners with a backlog, and private data with requests and answers.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use viaduct_os::clock;

use crate::address::NetAddress;
use crate::attributes::{Reach, RemoteAttributes, ViAttributes};
use crate::counters::Counter;
use crate::error::{AcceptError, Error};
use crate::handle::{Listener, Vi};
use crate::nic::Nic;
use crate::provider::{Event, ListenId, RequestId, Signal, Sleeper};
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
struct Asked {
    from: NetAddress,
    remote: RemoteAttributes,
    reach: Reach,
    /// Why it could not be accepted, for the client, if the two VIs do not go together.
    mismatch: Option<String>,
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

/// What a step of [`Nic::move_sends`] brought about.
#[derive(Default)]
pub(crate) struct Moved {
    /// Sends are still under way.
    pub(crate) left: bool,
    /// Something was completed that another thread may wait for.
    pub(crate) something: bool,
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
}

impl Nic {
    /// Listens on an address; up to `backlog` requests wait there until they are fetched.
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

    /// How a connection with a peer at this address would reach it, as far as can be known before the peer has answered.
    /// [`ConnRequest::reach`] says it to the other end, [`ViInfo::reach`](crate::ViInfo::reach) of a connection that stands.
    pub fn reach(&self, peer: &NetAddress) -> Reach {
        self.provider.reach(peer)
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

    /// Whether a request waits at a listener.
    pub(crate) fn listener_ready(&mut self, listener: Listener) -> Result<bool, Error> {
        self.check_fork()?;
        self.process_events();
        let l = self.listening.get(listener.0).ok_or(Error::InvalidHandle("listener"))?;
        Ok(!l.arrived.is_empty())
    }

    /// Whether the outcome of a request can be fetched: it is there, or its time is over.
    pub(crate) fn connect_ready(&mut self, vi: Vi) -> Result<bool, Error> {
        self.check_fork()?;
        self.process_events();
        let core = self.vis.get(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        let late = core.deadline.is_some_and(|at| clock::now_ns() >= at);
        Ok(late || core.outcome.is_some() || core.state != ViState::ConnectPending)
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

    /// Asks for a connection and waits for the answer.
    ///
    /// # Errors
    /// As of [`Connect::wait`](crate::Connect::wait), which this is in one call.
    pub fn connect_request(
        &mut self,
        vi: Vi,
        remote: &NetAddress,
        timeout: Option<Duration>,
    ) -> Result<RemoteAttributes, Error> {
        self.connect_start(vi, None, remote, &[], timeout)?;
        self.connect_finish(vi)
    }

    /// Asks for a connection without waiting; [`connect_poll`](Self::connect_poll) tells the outcome.
    ///
    /// # Errors
    /// As of [`Connect::start`](crate::Connect::start).
    pub fn connect_start(
        &mut self,
        vi: Vi,
        local: Option<&NetAddress>,
        remote: &NetAddress,
        private_data: &[u8],
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        let ours = self.check_request(vi, private_data, timeout)?;
        self.provider.request(vi, local, remote, &ours)?;
        self.pending(vi, timeout);
        Ok(())
    }

    /// Asks for a connection with a peer that asks for one with us (addresses crossed); does not wait.
    ///
    /// # Errors
    /// As of [`connect_start`](Self::connect_start), and [`Error::InvalidParameter`] if both addresses are one.
    pub fn connect_peer_request(
        &mut self,
        vi: Vi,
        local: &NetAddress,
        remote: &NetAddress,
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        if local == remote {
            return Err(Error::InvalidParameter("the two addresses of a peer connection must differ"));
        }
        let ours = self.check_request(vi, &[], timeout)?;
        self.provider.request_peer(vi, local, remote, &ours)?;
        self.pending(vi, timeout);
        Ok(())
    }

    /// The outcome of a request: `None` while it is under way.
    ///
    /// # Errors
    /// What became of the request: [`Error::NoMatch`], [`Error::Rejected`], [`Error::Timeout`] and so on;
    /// [`Error::InvalidState`] if there is none.
    pub fn connect_poll(&mut self, vi: Vi) -> Result<Option<RemoteAttributes>, Error> {
        self.check_fork()?;
        self.process_events();
        let core = self.vis.get_mut(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        match core.outcome.take() {
            Some(Ok(())) => Ok(core.remote.clone()),
            Some(Err(e)) => Err(e),
            None if core.state != ViState::ConnectPending => Err(Error::InvalidState {
                call: "connect_poll",
                wanted: "waiting for its connection",
                found: core.state,
            }),
            None if core.deadline.is_some_and(|d| clock::now_ns() >= d) => {
                self.give_up(vi);
                Err(Error::Timeout)
            }
            None => Ok(None),
        }
    }

    /// When a request that is under way is given up.
    pub(crate) fn connect_deadline(&self, vi: Vi) -> Result<Option<u64>, Error> {
        Ok(self.vis.get(vi.0).ok_or(Error::InvalidHandle("VI"))?.deadline)
    }

    /// Waits for the outcome of a request; the request's own time limit holds.
    ///
    /// # Errors
    /// As of [`connect_poll`](Self::connect_poll).
    pub fn connect_finish(&mut self, vi: Vi) -> Result<RemoteAttributes, Error> {
        let deadline = self.connect_deadline(vi)?;
        let outcome = self.wait_deadline(deadline, |nic| nic.connect_poll(vi).transpose());
        outcome.unwrap_or_else(|| {
            self.give_up(vi);
            Err(Error::Timeout)
        })
    }

    /// Ends a connection, or a request, and flushes both queues. The VI is idle afterwards. On an idle VI it gives
    /// back the receives posted so far, and is refused if there are none.
    ///
    /// Sends that are under way are waited for first, as long as [`set_drain`](Self::set_drain) says and the peer is there.
    ///
    /// # Errors
    /// [`Error::InvalidState`] for an idle VI without receives; [`Error::InvalidHandle`]; [`Error::Forked`].
    pub fn disconnect(&mut self, vi: Vi) -> Result<(), Error> {
        self.check_fork()?;
        self.drain(&[vi]);
        self.disconnect_now(vi)
    }

    /// Moves the sends of these VIs until all are done, their connections are over, or the time for it is.
    pub(crate) fn drain(&mut self, vis: &[Vi]) {
        let limit = self.drain_limit();
        if limit.is_zero() || vis.iter().all(|vi| !self.is_sending(*vi)) {
            return;
        }
        // Whether it was enough shows in what is flushed.
        let _ = self.wait_until(Some(limit), |nic| {
            let left = vis.iter().filter(|vi| !nic.has_sent(**vi)).count();
            (left == 0).then_some(())
        });
    }

    /// Moves the sends of a VI. Returns true if all are done, or their connection is over.
    pub(crate) fn has_sent(&mut self, vi: Vi) -> bool {
        self.process_events();
        if self.is_sending(vi) && self.progress_vi(vi) > 0 {
            self.look_again();
        }
        !self.is_sending(vi)
    }

    fn is_sending(&self, vi: Vi) -> bool {
        let core = self.vis.get(vi.0);
        core.is_some_and(|core| core.state == ViState::Connected && core.sends_outstanding())
    }

    /// Moves all sends that are under way.
    pub(crate) fn move_sends(&mut self) -> Moved {
        self.process_events();
        let vis: Vec<Vi> = self.vis.handles().map(Vi).filter(|vi| self.is_sending(*vi)).collect();
        let mut moved = Moved::default();
        for vi in vis {
            let before = self.vis.get(vi.0).map_or(0, |core| core.send.not_done());
            let taken = self.progress_vi(vi);
            if taken > 0 {
                self.look_again();
            }
            let after = self.vis.get(vi.0).map_or(0, |core| core.send.not_done());
            moved.something |= taken > 0 || after != before;
            moved.left |= self.is_sending(vi);
        }
        moved
    }

    /// Ends a connection without waiting for what is under way.
    pub(crate) fn disconnect_now(&mut self, vi: Vi) -> Result<(), Error> {
        self.check_fork()?;
        let core = self.vis.get_mut(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        match core.state {
            // Receives posted for a connection that never came are given back all the same.
            ViState::Idle if core.recv.not_done() > 0 => {}
            ViState::Idle => {
                return Err(Error::InvalidState {
                    call: "disconnect",
                    wanted: "connected",
                    found: ViState::Idle,
                });
            }
            ViState::ConnectPending => self.provider.cancel(vi),
            ViState::Connected => {
                tracing::debug!(vi = vi.0.index, "disconnected");
                self.counters.add(Counter::Disconnects, 1);
            }
            ViState::Error => {}
        }
        self.end_connection(vi, ViState::Idle);
        Ok(())
    }

    /// Fetches news from the provider.
    pub(crate) fn process_events(&mut self) {
        if !self.signal.take_events() {
            return;
        }
        for (id, why) in self.forgotten.take() {
            self.counters.add(Counter::Rejects, 1);
            let most = self.attributes.max_private_data.min(why.len());
            let _ = self.provider.reject(id, &why.as_bytes()[..most]);
        }
        while let Some(event) = self.provider.next_event() {
            match event {
                Event::Incoming { listener, request, from, remote, reach } => {
                    let at = self
                        .listening
                        .handles()
                        .find(|h| self.listening.get(*h).is_some_and(|l| l.id == listener));
                    match at.and_then(|h| self.listening.get_mut(h)) {
                        Some(l) => {
                            let nic = self.forgotten.clone();
                            let asked = Box::new(Asked { from, remote, reach, mismatch: None });
                            l.arrived.push_back(ConnRequest { id: request, asked, nic, answered: false });
                        }
                        None => drop(self.provider.reject(request, &[])),
                    }
                }
                Event::Established { vi, mut endpoint, remote } => {
                    let pending = self.vis.get(vi.0).is_some_and(|c| c.state == ViState::ConnectPending);
                    if pending {
                        self.established(vi, endpoint, remote);
                        self.vis.get_mut(vi.0).expect("just bound").outcome = Some(Ok(()));
                    } else {
                        endpoint.close();
                    }
                }
                Event::Refused { vi, error } => {
                    if let Some(core) = self.vis.get_mut(vi.0)
                        && core.state == ViState::ConnectPending
                    {
                        tracing::debug!(vi = vi.0.index, %error, "connection refused");
                        core.state = ViState::Idle;
                        core.outcome = Some(Err(error));
                    }
                }
            }
        }
    }

    fn established(
        &mut self,
        vi: Vi,
        endpoint: Box<dyn crate::provider::Endpoint>,
        remote: RemoteAttributes,
    ) {
        self.counters.add(Counter::Connects, 1);
        tracing::debug!(vi = vi.0.index, provider = endpoint.provider(), reach = ?endpoint.reach(), "connected");
        let core = self.vis.get_mut(vi.0).expect("the caller has the VI");
        core.bind(endpoint, remote);
        (core.outcome, core.deadline) = (None, None);
        self.adopt_into_cqs(vi);
    }

    fn start_listening(
        &mut self,
        address: &NetAddress,
        backlog: usize,
        implicit: bool,
    ) -> Result<Listener, Error> {
        let id = self.provider.listen(address, backlog)?;
        let l = Listening { id, address: address.clone(), implicit, waiters: 0, arrived: VecDeque::new() };
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

    fn check_request(
        &self,
        vi: Vi,
        private: &[u8],
        timeout: Option<Duration>,
    ) -> Result<RemoteAttributes, Error> {
        self.check_fork()?;
        self.check_private(private)?;
        if timeout == Some(Duration::ZERO) {
            return Err(Error::InvalidParameter("a connection request needs some time"));
        }
        let core = self.vis.get(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        if core.state != ViState::Idle {
            return Err(Error::InvalidState { call: "connect", wanted: "idle", found: core.state });
        }
        Ok(offer(&core.attributes, private))
    }

    fn check_own(&self, request: &ConnRequest) -> Result<(), Error> {
        let own = Arc::ptr_eq(&request.nic, &self.forgotten);
        if own { Ok(()) } else { Err(Error::InvalidHandle("connection request")) }
    }

    fn check_private(&self, data: &[u8]) -> Result<(), Error> {
        let limit = self.attributes().max_private_data;
        if data.len() > limit {
            return Err(Error::Limit { what: "bytes of private data", limit: limit as u64 });
        }
        Ok(())
    }

    fn pending(&mut self, vi: Vi, timeout: Option<Duration>) {
        let core = self.vis.get_mut(vi.0).expect("checked by the caller");
        core.state = ViState::ConnectPending;
        core.outcome = None;
        core.deadline = timeout.map(|t| clock::now_ns().saturating_add(t.as_nanos() as u64));
    }

    fn give_up(&mut self, vi: Vi) {
        self.provider.cancel(vi);
        if let Some(core) = self.vis.get_mut(vi.0)
            && core.state == ViState::ConnectPending
        {
            core.state = ViState::Idle;
            core.deadline = None;
        }
    }
}

fn offer(a: &ViAttributes, private_data: &[u8]) -> RemoteAttributes {
    RemoteAttributes {
        reliability: a.reliability,
        max_transfer_size: a.max_transfer_size,
        qos: a.qos,
        rdma_write: a.rdma_write,
        rdma_read: a.rdma_read,
        ptag: a.ptag,
        private_data: private_data.to_vec(),
    }
}
