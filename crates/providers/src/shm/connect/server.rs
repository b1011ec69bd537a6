//! The server's side of connection set-up: a request comes, its owner answers, and the client has the last word.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use viaduct_os::barrier;
use viaduct_os::epoll::Interest;
use viaduct_os::error::OsError;
use viaduct_os::fdpass::Channel;
use viaduct_os::point::point;
use viaduct_via::provider::{Event, RequestId};
use viaduct_via::{Error, RemoteAttributes, Vi};
use zerocopy::IntoBytes;

use crate::backlog::{Room, room};
use crate::shm::control::{HANDSHAKE, Handshake, Stage, token};
use crate::shm::lane::LaneId;
use crate::shm::nic::Core;
use crate::shm::pair::{Pair, Passed, lock};
use crate::shm::vi::{Lane, ShmVi};
use crate::shm::wire::{Hello, hello};

impl Core {
    pub(crate) fn accept(
        self: &Arc<Core>,
        request: RequestId,
        vi: Vi,
        ours: &RemoteAttributes,
    ) -> Result<ShmVi, Error> {
        let gone = || Error::NotReachable("the client gave up".into());
        point("accept.begin");
        let (id, handshake) = self.take_asked(request).ok_or_else(gone)?;
        let Stage::Asked { hello, passed, .. } = handshake.stage else { return Err(gone()) };
        self.accept_on(id, handshake.channel, &hello, passed, vi, ours)
    }

    pub(crate) fn reject(self: &Arc<Core>, request: RequestId, private_data: &[u8]) -> Result<(), Error> {
        self.answer(request, hello::REJECT, private_data);
        Ok(())
    }

    /// Server: a request has come.
    pub(super) fn requested(self: &Arc<Core>, id: u64, hello: Hello, fds: Vec<OwnedFd>) {
        let (Ok(passed), Ok(to), Ok(from), Ok(remote)) =
            (Passed::sort(fds, &hello), hello.parties.to(), hello.parties.from(), hello.parties.attributes())
        else {
            self.drop_handshake(id);
            return;
        };
        point("asked.received");
        if hello.kind == hello::PEER_REQUEST {
            self.peer_requested(id, hello, passed, &to, &from, &remote);
            return;
        }
        let mut control = lock(&self.control);
        let request = RequestId(control.number());
        let Some(Stage::Fresh { socket }) = control.handshakes.get(&id).map(|h| &h.stage) else { return };
        let socket = *socket;
        let listen =
            control.sockets.get_mut(&socket).filter(|s| s.address == to).and_then(|s| s.listen.as_mut());
        let there = listen.as_ref().map_or(Room::NoListener, |l| room(l.queued, l.backlog, l.waiting));
        let (Some(listen), Room::ForOneMore) = (listen, there) else {
            drop(control);
            let kind = if there == Room::Full { hello::FULL } else { hello::NO_MATCH };
            self.finish_with(id, kind, &[]);
            return;
        };
        listen.queued += 1;
        let listener = listen.id;
        let h = control.handshakes.get_mut(&id).expect("looked up above");
        let reach = self.reach_of(&hello, &h.channel);
        h.stage = Stage::Asked { request, listener, hello: Box::new(hello), passed };
        // The owner answers when it likes; the client has its own deadline.
        h.deadline = None;
        control.events.push_back(Event::Incoming { listener, request, from, remote, reach });
        drop(control);
        point("asked.queued");
        self.tell();
    }

    /// Server: makes pair and lane, answers, and waits for the last word.
    pub(super) fn accept_on(
        self: &Arc<Core>,
        id: u64,
        channel: Channel,
        hello: &Hello,
        passed: Passed,
        vi: Vi,
        ours: &RemoteAttributes,
    ) -> Result<ShmVi, Error> {
        let theirs = hello.parties.attributes()?;
        let mut channel = Some(channel);
        let paired = self.pair_with(&mut channel, hello, passed);
        if let (Err(error), Some(channel)) = (&paired, &channel) {
            self.say_no(channel, error);
        }
        let pair = paired?;
        point("accept.paired");
        let accepted = self.accept_with(&channel, &pair, hello, &theirs, vi, ours);
        let (endpoint, lane) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // The client has its answer, and a pair that nothing uses is not kept.
                self.say_no(channel.as_ref().unwrap_or(&pair.channel), &error);
                self.drop_unused_pair(&pair);
                return Err(error);
            }
        };
        // The channel is needed until the client's last word; a kept one is watched as the pair's already.
        if let Some(channel) = channel {
            let pair_id = pair.id;
            let stage = Stage::Accepted { pair, lane };
            self.epoll.add(&channel, token(HANDSHAKE, id), Interest::Read)?;
            let oldest = {
                let mut control = lock(&self.control);
                control.handshakes.insert(id, Handshake { channel, deadline: None, stage });
                control.too_many_accepted(pair_id)
            };
            if let Some(oldest) = oldest {
                self.drop_handshake(oldest);
            }
        }
        Ok(endpoint)
    }

    /// Tells a client that its connection could not be made. Descriptors may be free again later, so it may ask again.
    fn say_no(&self, channel: &Channel, error: &Error) {
        let out_of_descriptors = matches!(error, Error::Os(OsError::Fds { .. }));
        let kind = if out_of_descriptors { hello::EXHAUSTED } else { hello::REJECT };
        let _ = channel.send(Hello::new(kind, self.uid).as_bytes(), &[]);
    }

    fn accept_with(
        self: &Arc<Core>,
        channel: &Option<Channel>,
        pair: &Arc<Pair>,
        hello: &Hello,
        theirs: &RemoteAttributes,
        vi: Vi,
        ours: &RemoteAttributes,
    ) -> Result<(ShmVi, LaneId), Error> {
        let kept = channel.is_none();
        let (lane, segment) = {
            let mut lanes = lock(&pair.lanes);
            if lanes.in_use() >= self.config.max_connections_per_peer {
                let limit = self.config.max_connections_per_peer as u64;
                return Err(Error::Limit { what: "connections with one peer", limit });
            }
            lanes.make(&self.budget)?
        };
        point("accept.lane");
        let slots = self.config.ring_slots;
        let mut answer = Hello::new(hello::ACCEPT, self.uid);
        answer.uid_address = self.probe_address(pair.foreign);
        answer.vi_index = vi.raw().index;
        answer.lane_slab = lane.slab;
        answer.lane_offset = lane.offset;
        answer.ring_slots = slots as u32;
        answer.parties.set_attributes(ours);
        answer.set_direct(self.config.direct && !pair.foreign);
        answer.set_isolated(pair.foreign);
        answer.set_asymmetric(barrier::asymmetric());
        answer.set_has_channel(!kept);
        let undo = |error: Error| {
            let mut lanes = lock(&pair.lanes);
            lanes.let_go(lane);
            lanes.peer_let_go(lane.slab, lane.offset);
            error
        };
        let sent = {
            let mut fds = self.own_fds(pair.foreign).map_err(undo)?;
            fds.push(segment.fd().ok_or_else(|| undo(Error::Protocol("the lane has no descriptor")))?);
            point("accept.before-send");
            channel.as_ref().unwrap_or(&pair.channel).send(answer.as_bytes(), &fds)
        };
        point("accept.sent");
        if !matches!(sent, Ok(true)) {
            return Err(undo(Error::NotReachable("the client gave up".into())));
        }
        if kept {
            pair.introduced();
        }
        let lane_at = Lane { id: lane, segment, slots, client: false };
        let endpoint = ShmVi::new(self, pair, lane_at, vi, ours, theirs, hello.vi_index)?;
        point("accept.endpoint");
        Ok((endpoint, lane))
    }

    /// Server: the client's last word on a channel the pair does not need, or needs as a second one.
    pub(super) fn acknowledged(self: &Arc<Core>, id: u64, ack: &Hello) {
        point("accept.acknowledged");
        let Some(h) = self.take_handshake(id) else { return };
        if let Stage::Accepted { pair, .. } = h.stage
            && ack.has_channel()
            && self.keep_extra(h.channel, &pair).is_err()
        {
            // Without it the client cannot be heard; better an end than half a connection.
            self.peer_gone(&pair);
        }
    }

    pub(super) fn take_asked(&self, request: RequestId) -> Option<(u64, Handshake)> {
        let mut control = lock(&self.control);
        let is_it = |h: &Handshake| matches!(&h.stage, Stage::Asked { request: r, .. } if *r == request);
        let id = control.handshakes.iter().find(|(_, h)| is_it(h)).map(|(id, _)| *id)?;
        let h = control.handshakes.remove(&id)?;
        let _ = self.epoll.del(&h.channel);
        if let Stage::Asked { listener, .. } = &h.stage {
            let found =
                control.sockets.values_mut().filter_map(|s| s.listen.as_mut()).find(|l| l.id == *listener);
            if let Some(listen) = found {
                listen.queued = listen.queued.saturating_sub(1);
            }
        }
        Some((id, h))
    }

    /// Answers a waiting request and hangs up.
    pub(super) fn answer(&self, request: RequestId, kind: u32, private_data: &[u8]) {
        if let Some((_, h)) = self.take_asked(request) {
            let mut answer = Hello::new(kind, self.uid);
            answer.parties.set_private(private_data);
            point("reject.before-send");
            let _ = h.channel.send(answer.as_bytes(), &[]);
            point("reject.sent");
        }
    }

    pub(super) fn finish_with(&self, id: u64, kind: u32, private_data: &[u8]) {
        let mut answer = Hello::new(kind, self.uid);
        answer.parties.set_private(private_data);
        self.finish(id, &answer);
    }

    pub(super) fn finish(&self, id: u64, answer: &Hello) {
        if let Some(h) = self.take_handshake(id) {
            let _ = h.channel.send(answer.as_bytes(), &[]);
        }
    }

    /// The client hung up before its last word: our end of the lane is told that the other one is closed.
    pub(super) fn abandoned(self: &Arc<Core>, pair: &Arc<Pair>, lane: LaneId) {
        if let Some(record) = lock(&self.lanes).get(&(pair.id, lane)) {
            record.inbound.tx.closed.store(1, std::sync::atomic::Ordering::Release);
            self.page.doorbells.ring(record.vi);
        }
        self.tell();
    }
}
