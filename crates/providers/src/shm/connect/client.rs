//! The client's side of connection set-up: it calls, asks, and makes the connection when the answer is yes.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use viaduct_os::barrier;
use viaduct_os::epoll::Interest;
use viaduct_os::error::OsError;
use viaduct_os::fdpass::Channel;
use viaduct_os::point::point;
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

/// Which try it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    First,
    /// Of a call that found no room before.
    Again,
    /// Of a peer that may not be there yet.
    Peer,
}

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
        let call = Call { vi, from, remote: remote.clone(), attributes: ours.clone() };
        match self.connect(&call, How::First) {
            Ok(true) => Ok(()),
            Ok(false) => {
                lock(&self.control).calls.push(call);
                self.wake.signal();
                Ok(())
            }
            Err(error @ Error::NoMatch(_)) => {
                // An answer, not a failure of the call: it is told like every other answer.
                lock(&self.control).events.push_back(Event::Refused { vi, error });
                self.tell();
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Tries the servers again whose sockets had no room.
    pub(crate) fn retry_calls(self: &Arc<Core>) {
        let calls = lock(&self.control).calls.clone();
        for call in calls {
            let Err(error) = self.connect(&call, How::Again) else { continue };
            let mut control = lock(&self.control);
            let before = control.calls.len();
            control.calls.retain(|c| c.vi != call.vi);
            if control.calls.len() < before {
                control.events.push_back(Event::Refused { vi: call.vi, error });
                drop(control);
                self.tell();
            }
        }
    }

    pub(crate) fn cancel(self: &Arc<Core>, vi: Vi) {
        point("cancel");
        let mut control = lock(&self.control);
        let waiting: Vec<NetAddress> =
            control.wants.iter().filter(|w| w.vi == vi && w.waits()).map(|w| w.local.clone()).collect();
        control.wants.retain(|w| w.vi != vi);
        control.calls.retain(|c| c.vi != vi);
        for address in waiting {
            if let Some(socket) = control.sockets.values_mut().find(|s| s.address == address) {
                socket.peers -= 1;
            }
        }
        self.drop_unused_sockets(&mut control);
        let asking = |h: &Handshake| matches!(&h.stage, Stage::Asking { vi: v, .. } if *v == vi);
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

    /// Calls and asks. False if the server has no room for one more connection now, or did not hear us out.
    pub(super) fn connect(self: &Arc<Core>, call: &Call, how: How) -> Result<bool, Error> {
        let Call { vi, from, remote, attributes } = call;
        point("request.before-connect");
        let channel = match Channel::connect(&self.path(remote)) {
            Ok(channel) => channel,
            Err(e) => match e.kind() {
                io::ErrorKind::WouldBlock => return Ok(false),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    return Err(Error::NoMatch(remote.to_string()));
                }
                _ => return Err(Error::Os(OsError::sys("connect", e))),
            },
        };
        point("request.connected");
        let peer = how == How::Peer;
        let mut hello = Hello::new(if peer { hello::PEER_REQUEST } else { hello::REQUEST }, self.uid);
        hello.uid_address = self.uid_copy.as_ptr() as u64;
        hello.vi_index = vi.raw().index;
        hello.set_addresses(remote, from);
        hello.set_attributes(attributes);
        hello.set_direct(self.config.direct);
        hello.set_asymmetric(barrier::asymmetric());
        let mut control = lock(&self.control);
        let wanted = match how {
            How::First => true,
            How::Again => control.calls.iter().any(|c| c.vi == *vi && c.remote == *remote),
            How::Peer => control.wants.iter().any(|w| w.vi == *vi && w.remote == *remote),
        };
        if !wanted {
            // Given up meanwhile.
            return Ok(true);
        }
        let id = control.number();
        self.epoll.add(&channel, token(HANDSHAKE, id), Interest::Read)?;
        point("request.before-send");
        let sent = self.own_fds().and_then(|fds| Ok(channel.send(hello.as_bytes(), &fds)?));
        point("request.sent");
        if !matches!(sent, Ok(true)) {
            let _ = self.epoll.del(&channel);
            return match sent {
                // It took us for one of those who say nothing.
                Err(Error::Os(e)) if is_hangup(&e) => Ok(false),
                sent => sent.and(Err(Error::NoMatch(remote.to_string()))),
            };
        }
        control.calls.retain(|c| c.vi != *vi);
        let stage = Stage::Asking { vi: *vi, remote: remote.clone(), attributes: attributes.clone(), peer };
        control.handshakes.insert(id, Handshake { channel, deadline: None, stage });
        Ok(true)
    }

    /// Client: the answer has come.
    pub(super) fn answered(self: &Arc<Core>, id: u64, answer: Hello, fds: Vec<OwnedFd>) {
        let Some(h) = self.take_handshake(id) else { return };
        let Stage::Asking { vi, remote, attributes, peer } = h.stage else { return };
        point("answer.received");
        let event = match answer.kind {
            hello::ACCEPT => match self.established(h.channel, &answer, fds, vi, &attributes) {
                Ok((endpoint, theirs)) => {
                    Event::Established { vi, endpoint: Box::new(endpoint), remote: theirs }
                }
                Err(error) => Event::Refused { vi, error },
            },
            hello::REJECT => Event::Refused { vi, error: Error::Rejected(answer.private().to_vec()) },
            hello::NO_MATCH if peer => {
                self.peer_not_there(vi);
                return;
            }
            hello::NO_MATCH => Event::Refused { vi, error: Error::NoMatch(remote.to_string()) },
            hello::MISMATCH => {
                let error = answer.attributes().ok().and_then(|theirs| mismatch(&attributes, &theirs));
                let error = error.map_or(Error::Protocol("the peer found a mismatch"), |(e, _)| e);
                Event::Refused { vi, error }
            }
            hello::WRONG_VERSION => {
                Event::Refused { vi, error: Error::Protocol("the peer has another version") }
            }
            _ => Event::Refused { vi, error: Error::Protocol("an answer of no known kind") },
        };
        let mut control = lock(&self.control);
        control.wants.retain(|w| w.vi != vi);
        control.events.push_back(event);
        drop(control);
        point("answer.told");
        self.tell();
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
        let mut passed = Passed::sort(fds)?;
        let lane_fd = passed.lane.take().ok_or(Error::Protocol("the lane is missing"))?;
        let theirs = answer.attributes()?;
        let slots = answer.ring_slots as usize;
        point("answer.before-map");
        let sent = Segment::open(lane_fd, Access::ReadWrite, MAX_SEGMENT)?;
        point("answer.mapped");
        let mut ack = Hello::new(hello::ACK, self.uid);
        let (pair, spare) = self.pair_with(channel, answer, passed)?;
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
            }
            (Some(channel), true) => drop(channel.send(ack.as_bytes(), &[])),
            (Some(channel), false) => self.keep_extra(channel, &pair)?,
            (None, false) => {}
        }
        point("ack.sent");
        Ok((endpoint, theirs))
    }
}
