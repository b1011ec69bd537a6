//! The client's side of connection set-up: it calls, asks, and makes the connection when the answer is yes.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use viaduct_os::barrier;
use viaduct_os::epoll::Interest;
use viaduct_os::error::OsError;
use viaduct_os::fdpass::{Channel, close_apart};
use viaduct_os::point::point;
use viaduct_os::process;
use viaduct_os::segment::{Access, Segment};
use viaduct_via::provider::Event;
use viaduct_via::{Error, NetAddress, RemoteAttributes, Vi};
use zerocopy::IntoBytes;

use crate::mismatch;
use crate::shm::control::{Call, HANDSHAKE, Handshake, Stage, token};
use crate::shm::lane::LaneId;
use crate::shm::nic::Core;
use crate::shm::pair::{MAX_SEGMENT, Passed, is_hangup, lock};
use crate::shm::vi::{Lane, ShmVi};
use crate::shm::wire::{Hello, hello};

impl Core {
    pub(crate) fn request(
        self: &Arc<Core>,
        vi: Vi,
        local: Option<&NetAddress>,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error> {
        let anonymous = || NetAddress::local(&format!("nic-{:02x}{:02x}", self.uid[0], self.uid[1]));
        let from = local.cloned().map_or_else(anonymous, Ok)?;
        let call = lock(&self.control).ask(vi, &from, remote, ours);
        match self.connect(&call, false) {
            Ok(true) => Ok(()),
            Ok(false) => {
                lock(&self.control).calls.push(call);
                self.wake.signal();
                Ok(())
            }
            Err(error @ Error::NoMatch(_)) => {
                // An answer, not a failure of the call: it is told like every other answer.
                self.refused(&call, error);
                Ok(())
            }
            Err(e) => {
                lock(&self.control).asked.remove(&vi);
                Err(e)
            }
        }
    }

    /// Tries the servers again whose sockets had no room.
    pub(crate) fn retry_calls(self: &Arc<Core>) {
        let calls = lock(&self.control).calls.clone();
        for call in calls {
            if let Err(error) = self.connect(&call, false) {
                lock(&self.control).calls.retain(|c| c.number != call.number);
                self.refused(&call, error);
            }
        }
    }

    pub(crate) fn cancel(self: &Arc<Core>, vi: Vi) {
        point("cancel");
        let mut control = lock(&self.control);
        // From here on the control thread drops an answer that it has in hand.
        control.asked.remove(&vi);
        control.calls.retain(|c| c.vi != vi);
        self.stop_wanting(&mut control, vi);
        let asking = |h: &Handshake| h.stage.call().is_some_and(|call| call.vi == vi);
        let ids: Vec<u64> = control.handshakes.iter().filter(|(_, h)| asking(h)).map(|(i, _)| *i).collect();
        for id in ids {
            if let Some(h) = control.handshakes.remove(&id) {
                let _ = self.epoll.del(&h.channel);
            }
        }
        // An answer that has come but was not fetched is dropped with its endpoint, which tells the peer.
        control.events.retain(
            |e| !matches!(e, Event::Established { vi: v, .. } | Event::Refused { vi: v, .. } if *v == vi),
        );
    }

    /// Tells the owner the answer to a request, unless it was given up meanwhile; then an endpoint is dropped, which
    /// tells the peer.
    pub(super) fn answer_to(&self, call: &Call, answer: Event) {
        {
            let mut control = lock(&self.control);
            if !control.is_asked(call) {
                return;
            }
            control.asked.remove(&call.vi);
            self.stop_wanting(&mut control, call.vi);
            control.events.push_back(answer);
        }
        point("answer.told");
        self.tell();
    }

    pub(super) fn refused(&self, call: &Call, error: Error) {
        self.answer_to(call, Event::Refused { vi: call.vi, error });
    }

    /// Calls and asks. False if the server has no room for one more connection now, or did not hear us out.
    pub(super) fn connect(self: &Arc<Core>, call: &Call, peer: bool) -> Result<bool, Error> {
        let remote = &call.remote;
        point("request.before-connect");
        let channel = match Channel::connect(&self.path(remote)) {
            Ok(channel) => channel,
            Err(e) => match e.kind() {
                io::ErrorKind::WouldBlock => return Ok(false),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => match &self.meeting {
                    Some(meeting) => return self.call_abroad(call, peer, meeting),
                    None => return Err(Error::NoMatch(remote.to_string())),
                },
                _ => return Err(Error::Os(OsError::sys("connect", e))),
            },
        };
        let server = channel.peer()?.uid;
        if server != process::effective_uid() && server != 0 {
            return Err(Error::NotReachable(format!(
                "the listener at {remote} belongs to user {server}, and only our user and root may listen in our folder"
            )));
        }
        point("request.connected");
        let mut control = lock(&self.control);
        if !control.is_asked(call) {
            // Given up meanwhile.
            return Ok(true);
        }
        let id = control.number();
        self.epoll.add(&channel, token(HANDSHAKE, id), Interest::Read)?;
        point("request.before-send");
        let sent = self.say_request(&channel, call, peer);
        point("request.sent");
        if !matches!(sent, Ok(true)) {
            let _ = self.epoll.del(&channel);
            return match sent {
                // It took us for one of the clients that say nothing.
                Err(Error::Os(e)) if is_hangup(&e) => Ok(false),
                sent => sent.and(Err(Error::NoMatch(remote.to_string()))),
            };
        }
        control.calls.retain(|c| c.number != call.number);
        let stage = Stage::Asking { call: call.clone(), peer };
        control.handshakes.insert(id, Handshake { channel, deadline: None, stage });
        Ok(true)
    }

    /// Says what we ask for.
    pub(super) fn say_request(&self, channel: &Channel, call: &Call, peer: bool) -> Result<bool, Error> {
        let foreign = self.is_foreign(channel)?;
        let mut hello = Hello::new(if peer { hello::PEER_REQUEST } else { hello::REQUEST }, self.uid);
        hello.uid_address = self.probe_address(foreign);
        hello.vi_index = call.vi.raw().index;
        hello.parties.set_addresses(&call.remote, &call.from);
        hello.parties.set_attributes(&call.attributes);
        hello.set_direct(self.config.direct && !foreign);
        hello.set_isolated(foreign);
        hello.set_asymmetric(barrier::asymmetric());
        Ok(channel.send(hello.as_bytes(), &self.own_fds(foreign)?)?)
    }

    /// Client: the answer has come.
    pub(super) fn answered(self: &Arc<Core>, id: u64, answer: Hello, fds: Vec<OwnedFd>) {
        let Some(h) = self.take_handshake(id) else { return };
        let Stage::Asking { call, peer } = h.stage else { return };
        point("answer.received");
        let (vi, ours) = (call.vi, &call.attributes);
        let mut fds = fds;
        if answer.kind != hello::ACCEPT {
            close_apart(std::mem::take(&mut fds));
        }
        let error = match answer.kind {
            hello::ACCEPT => match self.established(h.channel, &answer, fds, vi, ours) {
                Ok((endpoint, remote)) => {
                    let endpoint = Box::new(endpoint);
                    self.answer_to(&call, Event::Established { vi, endpoint, remote });
                    return;
                }
                Err(error) => error,
            },
            hello::REJECT => Error::Rejected(answer.parties.private().to_vec()),
            hello::NO_MATCH | hello::EXHAUSTED if peer => {
                self.peer_not_there(&call);
                return;
            }
            hello::NO_MATCH => Error::NoMatch(call.remote.to_string()),
            hello::FULL => Error::backlog_full(&call.remote),
            hello::EXHAUSTED => Error::listener_exhausted(&call.remote),
            hello::MISMATCH => {
                let error = answer.parties.attributes().ok().and_then(|theirs| mismatch(ours, &theirs));
                error.map_or(Error::Protocol("the peer found a mismatch"), |(e, _)| e)
            }
            hello::WRONG_VERSION => Error::Protocol("the peer has another version"),
            _ => Error::Protocol("an answer of no known kind"),
        };
        self.refused(&call, error);
    }

    /// Client: the connection was accepted.
    fn established(
        self: &Arc<Core>,
        channel: Channel,
        answer: &Hello,
        fds: Vec<OwnedFd>,
        vi: Vi,
        ours: &RemoteAttributes,
    ) -> Result<(ShmVi, RemoteAttributes), Error> {
        let mut passed = Passed::sort(fds, answer)?;
        let lane_fd = passed.lane.take().ok_or(Error::Protocol("the lane is missing"))?;
        let theirs = answer.parties.attributes()?;
        let slots = answer.ring_slots as usize;
        point("answer.before-map");
        let sent = Segment::open(lane_fd, Access::ReadWrite, MAX_SEGMENT)?;
        point("answer.mapped");
        let mut ack = Hello::new(hello::ACK, self.uid);
        let mut spare = Some(channel);
        let pair = self.pair_with(&mut spare, answer, passed)?;
        if spare.is_none() && !answer.has_channel() {
            pair.introduced(); // the request was our last word
        }
        let segment = lock(&pair.lanes).take_theirs(answer.lane_slab, sent);
        let id = LaneId { ours: false, slab: answer.lane_slab, offset: answer.lane_offset };
        let lane = Lane { id, segment, slots, client: true };
        let made = ShmVi::new(self, &pair, lane, vi, ours, &theirs, answer.vi_index);
        let Ok(endpoint) = made else {
            // The server learns of it by the hang-up.
            self.drop_unused_pair(&pair);
            return made.map(|endpoint| (endpoint, theirs));
        };
        point("answer.endpoint");
        // A server that has no other channel keeps this one without asking; else it is told whether we keep it.
        match (spare, answer.has_channel()) {
            (None, true) => {
                ack.set_has_channel(true);
                let _ = pair.channel.send(ack.as_bytes(), &[]);
                pair.introduced();
            }
            (Some(channel), true) => drop(channel.send(ack.as_bytes(), &[])),
            (Some(channel), false) => self.keep_extra(channel, &pair)?,
            (None, false) => {}
        }
        point("ack.sent");
        Ok((endpoint, theirs))
    }
}
