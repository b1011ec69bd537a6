//! Connecting: requests of clients, crossed requests (peer to peer), disconnect, and what the provider reports of them.
//!
//! The server's side is in `accepting.rs`. Beyond VIA: private data with requests and answers.

use std::time::Duration;

use viaduct_os::clock;

use crate::accepting::Asked;
use crate::address::NetAddress;
use crate::attributes::{Reach, RemoteAttributes, ViAttributes};
use crate::counters::Counter;
use crate::error::Error;
use crate::handle::Vi;
use crate::nic::Nic;
use crate::others::Moved;
use crate::provider::Event;
use crate::vi::ViState;

impl Nic {
    /// How a connection with a peer at this address would reach it, as far as can be known before the peer has answered.
    /// [`ConnRequest::reach`](crate::ConnRequest::reach) says it to the other end, [`ViInfo::reach`](crate::ViInfo::reach) of a connection that stands.
    pub fn reach(&self, peer: &NetAddress) -> Reach {
        self.provider.reach(peer)
    }

    /// Whether the outcome of a request can be fetched: it is there, or its time is over.
    pub(crate) fn connect_ready(&mut self, vi: Vi) -> Result<bool, Error> {
        self.check_fork()?;
        self.process_events();
        let core = self.vis.get(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        let late = core.deadline.is_some_and(|at| clock::now_ns() >= at);
        Ok(late || core.outcome.is_some() || core.state != ViState::ConnectPending)
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
    #[doc(hidden)]
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
        self.pending(vi, remote, timeout);
        Ok(())
    }

    /// Asks for a connection with a peer that asks for one with us (addresses crossed); does not wait.
    ///
    /// # Errors
    /// As of [`Connect::start`](crate::Connect::start), and [`Error::InvalidParameter`] if both addresses are one.
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
        self.pending(vi, remote, timeout);
        Ok(())
    }

    /// The outcome of a request: `None` while it is under way.
    ///
    /// # Errors
    /// What became of the request: [`Error::NoMatch`], [`Error::NoRoom`], [`Error::Rejected`], [`Error::Timeout`] and so on;
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

    pub(crate) fn is_sending(&self, vi: Vi) -> bool {
        let core = self.vis.get(vi.0);
        core.is_some_and(|core| core.state == ViState::Connected && core.sends_outstanding())
    }

    /// Moves all sends that are under way.
    pub(crate) fn move_sends(&mut self) -> Moved {
        self.process_events();
        self.move_others()
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
                tracing::debug!(vi = vi.0.index, peer = core.peer_name(), "disconnected");
                self.counters.add(Counter::Disconnects, 1);
            }
            ViState::Error => {}
        }
        self.end_connection(vi, ViState::Idle);
        Ok(())
    }

    /// Fetches news from the provider.
    pub(crate) fn process_events(&mut self) {
        if !self.leaving.is_empty() {
            self.move_leaving();
        }
        if self.signal.is_announced() && !self.others.is_empty() {
            self.move_others();
        }
        if !self.signal.take_events() {
            return;
        }
        self.reject_forgotten();
        while let Some(event) = self.provider.next_event() {
            match event {
                Event::Incoming { listener, request, from, remote, reach } => {
                    self.take_in(listener, request, Asked::new(from, remote, reach));
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
                        tracing::debug!(vi = vi.0.index, peer = core.peer_name(), %error, "connection refused");
                        core.state = ViState::Idle;
                        core.outcome = Some(Err(error));
                    }
                }
            }
        }
    }

    /// Binds a VI to its connection.
    pub(crate) fn established(
        &mut self,
        vi: Vi,
        endpoint: Box<dyn crate::provider::Endpoint>,
        remote: RemoteAttributes,
    ) {
        self.counters.add(Counter::Connects, 1);
        let core = self.vis.get_mut(vi.0).expect("the caller has the VI");
        let (peer, provider, reach) = (core.peer_name(), endpoint.provider(), endpoint.reach());
        tracing::debug!(vi = vi.0.index, peer, provider, ?reach, "connected");
        core.bind(endpoint, remote);
        (core.outcome, core.deadline) = (None, None);
        self.adopt_into_cqs(vi);
        self.list_for_others(vi);
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

    pub(crate) fn check_private(&self, data: &[u8]) -> Result<(), Error> {
        let limit = self.attributes().max_private_data;
        if data.len() > limit {
            return Err(Error::Limit { what: "bytes of private data", limit: limit as u64 });
        }
        Ok(())
    }

    fn pending(&mut self, vi: Vi, remote: &NetAddress, timeout: Option<Duration>) {
        let core = self.vis.get_mut(vi.0).expect("checked by the caller");
        core.peer = Some(remote.clone());
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

/// What a peer hears of a VI.
pub(crate) fn offer(a: &ViAttributes, private_data: &[u8]) -> RemoteAttributes {
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
