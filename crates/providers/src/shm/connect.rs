//! Connection set-up: request, accept, acknowledge over a Unix socket in the user's run-time folder.
//!
//! ```text
//!   client                         server
//!   REQUEST  page directory bell ─▶        its NIC's owner sees the request
//!            ◀─ ACCEPT page directory bell lane      or REJECT, NO_MATCH
//!   ACK      ─▶                            the socket stays as the pair's channel, or is closed
//! ```
//!
//! Of two NICs that ask for each other (peer to peer) the one with the smaller address plays the server.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use viaduct_os::barrier;
use viaduct_os::epoll::Interest;
use viaduct_os::error::OsError;
use viaduct_os::fdpass::{Channel, Listener, Recv};
use viaduct_os::point::point;
use viaduct_os::segment::{Access, Segment};
use viaduct_via::provider::{Event, ListenId, RequestId};
use viaduct_via::{Error, NetAddress, RemoteAttributes, Vi};
use zerocopy::IntoBytes;

use super::control::{
    CHANNEL, HANDSHAKE, Handshake, Listen, PROCESS, PeerWant, SOCKET, Socket, Stage, token,
};
use super::lane::LaneId;
use super::nic::Core;
use super::pair::{MAX_SEGMENT, Pair, Passed, lock};
use super::vi::{Lane, ShmVi};
use super::wire::{Hello, hello};
use crate::mismatch;

impl Core {
    pub(crate) fn listen(&self, address: &NetAddress, backlog: usize) -> Result<ListenId, Error> {
        let mut control = lock(&self.control);
        let id = ListenId(control.number());
        let listen = Some(Listen { id, backlog, waiting: false, queued: 0 });
        if let Some(socket) = control.sockets.values_mut().find(|s| s.address == *address) {
            if socket.listen.is_some() {
                return Err(Error::AddressInUse(address.to_string()));
            }
            socket.listen = listen;
            return Ok(id);
        }
        let socket = Socket { listener: self.bind(address)?, address: address.clone(), listen, peers: 0 };
        let number = control.number();
        point("listen.bound");
        self.epoll.add(&socket.listener, token(SOCKET, number), Interest::Read)?;
        control.sockets.insert(number, socket);
        point("listen.watched");
        Ok(id)
    }

    pub(crate) fn set_waiting(&self, listener: ListenId, waiting: bool) {
        let mut control = lock(&self.control);
        let found = control.sockets.values_mut().filter_map(|s| s.listen.as_mut()).find(|l| l.id == listener);
        if let Some(listen) = found {
            listen.waiting = waiting;
            if waiting {
                // Whoever waits anew takes one request more, however long the answers to the others take.
                listen.queued = 0;
            }
        }
    }

    pub(crate) fn unlisten(self: &Arc<Core>, listener: ListenId) {
        let waiting: Vec<RequestId> = {
            let mut control = lock(&self.control);
            let is_it = |s: &Socket| s.listen.as_ref().is_some_and(|l| l.id == listener);
            if let Some(socket) = control.sockets.values_mut().find(|s| is_it(s)) {
                socket.listen = None;
            }
            self.drop_unused_sockets(&mut control);
            // Those the owner has seen are its own to answer.
            let unseen = |e: &Event| match e {
                Event::Incoming { listener: l, request, .. } if *l == listener => Some(*request),
                _ => None,
            };
            let unseen: Vec<RequestId> = control.events.iter().filter_map(unseen).collect();
            control.events.retain(|e| !matches!(e, Event::Incoming { listener: l, .. } if *l == listener));
            unseen
        };
        point("unlisten");
        for request in waiting {
            self.answer(request, hello::NO_MATCH, &[]);
        }
    }

    pub(crate) fn request(
        self: &Arc<Core>,
        vi: Vi,
        local: Option<&NetAddress>,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error> {
        let anonymous = || NetAddress::local(&format!("nic-{:02x}{:02x}", self.uid[0], self.uid[1]));
        let from = local.cloned().map_or_else(anonymous, Ok)?;
        match self.connect(vi, &from, remote, ours, false) {
            Ok(()) => Ok(()),
            Err(error @ Error::NoMatch(_)) => {
                // An answer, not a failure of the call: it is told like every other answer.
                lock(&self.control).events.push_back(Event::Refused { vi, error });
                self.tell();
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    pub(crate) fn request_peer(
        self: &Arc<Core>,
        vi: Vi,
        local: &NetAddress,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error> {
        let want = PeerWant {
            vi,
            local: local.clone(),
            remote: remote.clone(),
            attributes: ours.clone(),
            trying: false,
        };
        if want.waits() {
            let mut control = lock(&self.control);
            if let Some(socket) = control.sockets.values_mut().find(|s| s.address == *local) {
                socket.peers += 1;
            } else {
                let listener = self.bind(local)?;
                let number = control.number();
                self.epoll.add(&listener, token(SOCKET, number), Interest::Read)?;
                let socket = Socket { listener, address: local.clone(), listen: None, peers: 1 };
                control.sockets.insert(number, socket);
            }
        }
        point("peer.wants");
        lock(&self.control).wants.push(want);
        self.wake.signal();
        Ok(())
    }

    /// Tries the peers that were not there yet.
    pub(crate) fn retry_peers(self: &Arc<Core>) {
        let missing: Vec<(Vi, NetAddress, NetAddress, RemoteAttributes)> = {
            let mut control = lock(&self.control);
            let idle = control.wants.iter_mut().filter(|w| !w.waits() && !w.trying);
            idle.map(|w| {
                w.trying = true;
                (w.vi, w.local.clone(), w.remote.clone(), w.attributes.clone())
            })
            .collect()
        };
        for (vi, local, remote, attributes) in missing {
            if self.connect(vi, &local, &remote, &attributes, true).is_err() {
                self.peer_not_there(vi);
            }
        }
    }

    pub(crate) fn cancel(self: &Arc<Core>, vi: Vi) {
        point("cancel");
        let mut control = lock(&self.control);
        let waiting: Vec<NetAddress> =
            control.wants.iter().filter(|w| w.vi == vi && w.waits()).map(|w| w.local.clone()).collect();
        control.wants.retain(|w| w.vi != vi);
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

    /// Something came from a connection being set up.
    pub(crate) fn handshake(self: &Arc<Core>, id: u64, buffer: &mut [u8]) {
        let mut fds = Vec::new();
        let received = {
            let control = lock(&self.control);
            let Some(h) = control.handshakes.get(&id) else { return };
            h.channel.recv(buffer, &mut fds, 4)
        };
        let hello = match received {
            Ok(Recv::WouldBlock) => return,
            Ok(Recv::Message(n)) => Hello::parse(&buffer[..n]),
            Ok(Recv::Closed) => {
                self.drop_handshake(id);
                return;
            }
            Err(e) => {
                self.fail_handshake(id, e);
                return;
            }
        };
        let hello = match hello {
            Ok(hello) => hello,
            Err(error @ Error::VersionMismatch { .. }) => {
                self.other_version(id, error);
                return;
            }
            Err(_) => {
                self.drop_handshake(id);
                return;
            }
        };
        let (asks, ends) =
            (matches!(hello.kind, hello::REQUEST | hello::PEER_REQUEST), hello.kind == hello::ACK);
        let in_turn = match lock(&self.control).handshakes.get(&id).map(|h| &h.stage) {
            Some(Stage::Fresh { .. }) => asks,
            Some(Stage::Accepted { .. }) => ends,
            Some(Stage::Asking { .. }) => !asks && !ends,
            Some(Stage::Asked { .. }) | None => false,
        };
        match in_turn {
            // Who is out of step is turned away.
            false => self.drop_handshake(id),
            true if asks => self.requested(id, hello, fds),
            true if ends => self.acknowledged(id, &hello),
            true => self.answered(id, hello, fds),
        }
    }

    /// The other side speaks another version: a client is told by us, a client of ours is told why.
    fn other_version(self: &Arc<Core>, id: u64, error: Error) {
        let Some(h) = self.take_handshake(id) else { return };
        let Stage::Asking { vi, .. } = h.stage else {
            let _ = h.channel.send(Hello::new(hello::WRONG_VERSION, self.uid).as_bytes(), &[]);
            return;
        };
        let mut control = lock(&self.control);
        control.wants.retain(|w| w.vi != vi);
        control.events.push_back(Event::Refused { vi, error });
        drop(control);
        self.tell();
    }

    /// Server: a request has come.
    fn requested(self: &Arc<Core>, id: u64, hello: Hello, fds: Vec<OwnedFd>) {
        let (Ok(passed), Ok(to), Ok(from), Ok(remote)) =
            (Passed::sort(fds), hello.to(), hello.from(), hello.attributes())
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
        let open = listen.filter(|l| l.queued < l.backlog.max(usize::from(l.waiting)));
        let Some(listen) = open else {
            drop(control);
            self.finish_with(id, hello::NO_MATCH, &[]);
            return;
        };
        listen.queued += 1;
        let listener = listen.id;
        let h = control.handshakes.get_mut(&id).expect("looked up above");
        h.stage = Stage::Asked { request, listener, hello: Box::new(hello), passed };
        // The owner answers when it likes; the client has its own deadline.
        h.deadline = None;
        control.events.push_back(Event::Incoming { listener, request, from, remote });
        drop(control);
        point("asked.queued");
        self.tell();
    }

    /// Server side of a peer-to-peer request.
    fn peer_requested(
        self: &Arc<Core>,
        id: u64,
        hello: Hello,
        passed: Passed,
        to: &NetAddress,
        from: &NetAddress,
        theirs: &RemoteAttributes,
    ) {
        let want = {
            let mut control = lock(&self.control);
            let at = control.wants.iter().position(|w| w.local == *to && w.remote == *from);
            at.map(|at| {
                let want = control.wants.swap_remove(at);
                if let Some(socket) = control.sockets.values_mut().find(|s| s.address == want.local) {
                    socket.peers -= 1;
                }
                self.drop_unused_sockets(&mut control);
                want
            })
        };
        let Some(want) = want else {
            self.finish_with(id, hello::NO_MATCH, &[]);
            return;
        };
        point("peer.met");
        let event = match mismatch(&want.attributes, theirs) {
            Some((error, _)) => {
                let mut answer = Hello::new(hello::MISMATCH, self.uid);
                answer.set_attributes(&want.attributes);
                self.finish(id, &answer);
                Event::Refused { vi: want.vi, error }
            }
            None => {
                let Some(h) = self.take_handshake(id) else { return };
                match self.accept_on(id, h.channel, &hello, passed, want.vi, &want.attributes) {
                    Ok(endpoint) => Event::Established {
                        vi: want.vi,
                        endpoint: Box::new(endpoint),
                        remote: theirs.clone(),
                    },
                    Err(error) => Event::Refused { vi: want.vi, error },
                }
            }
        };
        lock(&self.control).events.push_back(event);
        self.tell();
    }

    /// Server: makes pair and lane, answers, and waits for the last word.
    fn accept_on(
        self: &Arc<Core>,
        id: u64,
        channel: Channel,
        hello: &Hello,
        passed: Passed,
        vi: Vi,
        ours: &RemoteAttributes,
    ) -> Result<ShmVi, Error> {
        let theirs = hello.attributes()?;
        let (pair, channel) = self.pair_with(channel, hello, passed)?;
        point("accept.paired");
        let accepted = self.accept_with(&channel, &pair, hello, &theirs, vi, ours);
        let Ok((endpoint, lane)) = accepted else {
            // The client has its answer, and a pair that nothing uses is not kept.
            let refusal = Hello::new(hello::REJECT, self.uid);
            let _ = channel.as_ref().unwrap_or(&pair.channel).send(refusal.as_bytes(), &[]);
            self.drop_unused_pair(&pair);
            return accepted.map(|(endpoint, _)| endpoint);
        };
        // The channel is needed until the client's last word; a kept one is watched as the pair's already.
        if let Some(channel) = channel {
            let stage = Stage::Accepted { pair, lane };
            self.epoll.add(&channel, token(HANDSHAKE, id), Interest::Read)?;
            lock(&self.control).handshakes.insert(id, Handshake { channel, deadline: None, stage });
        }
        Ok(endpoint)
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
        answer.uid_address = self.uid_copy.as_ptr() as u64;
        answer.vi_index = vi.raw().index;
        answer.lane_slab = lane.slab;
        answer.lane_offset = lane.offset;
        answer.ring_slots = slots as u32;
        answer.set_attributes(ours);
        answer.set_direct(self.config.direct);
        answer.set_asymmetric(barrier::asymmetric());
        answer.set_has_channel(!kept);
        let undo = |error: Error| {
            let mut lanes = lock(&pair.lanes);
            lanes.let_go(lane);
            lanes.peer_let_go(lane.slab, lane.offset);
            error
        };
        let sent = {
            let own = self.own_fds().map_err(undo)?;
            let lane_fd = segment.fd().ok_or_else(|| undo(Error::Protocol("the lane has no descriptor")))?;
            let fds = [own[0], own[1], own[2], lane_fd];
            point("accept.before-send");
            channel.as_ref().unwrap_or(&pair.channel).send(answer.as_bytes(), &fds)
        };
        point("accept.sent");
        if !matches!(sent, Ok(true)) {
            return Err(undo(Error::NotReachable("the client gave up".into())));
        }
        let lane_at = Lane { id: lane, segment, slots, client: false };
        let endpoint = ShmVi::new(self, pair, lane_at, vi, ours, theirs, hello.vi_index)?;
        point("accept.endpoint");
        Ok((endpoint, lane))
    }

    /// The pair with the sender of a hello. The channel is given back if the pair had one already.
    fn pair_with(
        self: &Arc<Core>,
        channel: Channel,
        hello: &Hello,
        passed: Passed,
    ) -> Result<(Arc<Pair>, Option<Channel>), Error> {
        // One side without membarrier, and both must fence for themselves.
        if !hello.asymmetric() {
            barrier::force_symmetric();
        }
        let mut control = lock(&self.control);
        if let Some(pair) = control.pairs.get(&hello.uid) {
            // The number is no secret among a NIC's peers: who uses it must be the process we know.
            if channel.peer()?.pid != pair.pid {
                return Err(Error::Protocol("the number of another process' NIC"));
            }
            return Ok((pair.clone(), Some(channel)));
        }
        let id = control.number();
        let modes = (self.config.direct, self.config.process_vm);
        point("pair.before-open");
        let wake = self.wake.clone();
        let pair = Arc::new(Pair::open(id, channel, hello, passed, self.config.ring_slots, modes, wake)?);
        point("pair.opened");
        self.epoll.add(&pair.channel, token(CHANNEL, id), Interest::Read)?;
        self.epoll.add(pair.pidfd.as_fd(), token(PROCESS, id), Interest::Read)?;
        control.pairs.insert(hello.uid, pair.clone());
        point("pair.watched");
        Ok((pair, None))
    }

    /// Server: the client's last word on a channel the pair does not need, or needs as a second one.
    fn acknowledged(self: &Arc<Core>, id: u64, ack: &Hello) {
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

    /// Client: the answer has come.
    fn answered(self: &Arc<Core>, id: u64, answer: Hello, fds: Vec<OwnedFd>) {
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

    /// A connection was not to be: its pair goes too, unless there are others.
    fn drop_unused_pair(self: &Arc<Core>, pair: &Arc<Pair>) {
        let used = lock(&self.lanes).values().any(|lane| Arc::ptr_eq(&lane.pair, pair));
        if !used {
            self.peer_gone(pair);
        }
    }

    /// The server speaks to us over this channel, although we have another one.
    fn keep_extra(self: &Arc<Core>, channel: Channel, pair: &Arc<Pair>) -> Result<(), Error> {
        let mut control = lock(&self.control);
        let id = control.number();
        self.epoll.add(&channel, token(CHANNEL, id), Interest::Read)?;
        control.extra.insert(id, (channel, pair.clone()));
        Ok(())
    }

    /// Client: calls and asks.
    fn connect(
        self: &Arc<Core>,
        vi: Vi,
        from: &NetAddress,
        remote: &NetAddress,
        ours: &RemoteAttributes,
        peer: bool,
    ) -> Result<(), Error> {
        point("request.before-connect");
        let channel = Channel::connect(&self.path(remote)).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock => {
                Error::NoMatch(remote.to_string())
            }
            _ => Error::Os(OsError::sys("connect", e)),
        })?;
        point("request.connected");
        let mut hello = Hello::new(if peer { hello::PEER_REQUEST } else { hello::REQUEST }, self.uid);
        hello.uid_address = self.uid_copy.as_ptr() as u64;
        hello.vi_index = vi.raw().index;
        hello.set_addresses(remote, from);
        hello.set_attributes(ours);
        hello.set_direct(self.config.direct);
        hello.set_asymmetric(barrier::asymmetric());
        let mut control = lock(&self.control);
        let id = control.number();
        self.epoll.add(&channel, token(HANDSHAKE, id), Interest::Read)?;
        point("request.before-send");
        let sent = self.own_fds().and_then(|fds| Ok(channel.send(hello.as_bytes(), &fds)?));
        point("request.sent");
        if !matches!(sent, Ok(true)) {
            let _ = self.epoll.del(&channel);
            return sent.and(Err(Error::NoMatch(remote.to_string())));
        }
        let stage = Stage::Asking { vi, remote: remote.clone(), attributes: ours.clone(), peer };
        control.handshakes.insert(id, Handshake { channel, deadline: None, stage });
        Ok(())
    }

    /// Our page, directory and bell, as every peer gets them.
    fn own_fds(&self) -> Result<[std::os::fd::BorrowedFd<'_>; 3], Error> {
        let none = || Error::Protocol("a segment without descriptor");
        // The first part of the directory lives as long as the NIC, so its descriptor does too.
        let directory = self.directory_fd.as_fd();
        Ok([self.page_segment.fd().ok_or_else(none)?, directory, self.bell_fd.as_fd()])
    }

    fn peer_not_there(&self, vi: Vi) {
        if let Some(want) = lock(&self.control).wants.iter_mut().find(|w| w.vi == vi) {
            want.trying = false;
        }
    }

    fn take_handshake(&self, id: u64) -> Option<Handshake> {
        let h = lock(&self.control).handshakes.remove(&id)?;
        let _ = self.epoll.del(&h.channel);
        Some(h)
    }

    fn take_asked(&self, request: RequestId) -> Option<(u64, Handshake)> {
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
    fn answer(&self, request: RequestId, kind: u32, private_data: &[u8]) {
        if let Some((_, h)) = self.take_asked(request) {
            let mut answer = Hello::new(kind, self.uid);
            answer.set_private(private_data);
            point("reject.before-send");
            let _ = h.channel.send(answer.as_bytes(), &[]);
            point("reject.sent");
        }
    }

    fn finish_with(&self, id: u64, kind: u32, private_data: &[u8]) {
        let mut answer = Hello::new(kind, self.uid);
        answer.set_private(private_data);
        self.finish(id, &answer);
    }

    fn finish(&self, id: u64, answer: &Hello) {
        if let Some(h) = self.take_handshake(id) {
            let _ = h.channel.send(answer.as_bytes(), &[]);
        }
    }

    /// The answer has come and could not be taken, for want of descriptors perhaps: not the peer's fault.
    fn fail_handshake(self: &Arc<Core>, id: u64, error: OsError) {
        let asking = lock(&self.control).handshakes.get(&id).and_then(|h| match &h.stage {
            Stage::Asking { vi, .. } => Some(*vi),
            _ => None,
        });
        let Some(vi) = asking else { return self.drop_handshake(id) };
        drop(self.take_handshake(id));
        let mut control = lock(&self.control);
        control.wants.retain(|w| w.vi != vi);
        control.events.push_back(Event::Refused { vi, error: Error::Os(error) });
        drop(control);
        self.tell();
    }

    /// A connection being set up ended before its time.
    pub(crate) fn drop_handshake(self: &Arc<Core>, id: u64) {
        let asked = {
            let control = lock(&self.control);
            match control.handshakes.get(&id).map(|h| &h.stage) {
                Some(Stage::Asked { request, .. }) => Some(*request),
                _ => None,
            }
        };
        if let Some(request) = asked {
            // The owner may have been told of it already; its accept will fail.
            self.take_asked(request);
            lock(&self.control)
                .events
                .retain(|e| !matches!(e, Event::Incoming { request: r, .. } if *r == request));
            return;
        }
        let Some(h) = self.take_handshake(id) else { return };
        match h.stage {
            Stage::Asking { vi, remote, peer, .. } => {
                if peer {
                    self.peer_not_there(vi);
                    return;
                }
                let error = Error::NoMatch(remote.to_string());
                lock(&self.control).events.push_back(Event::Refused { vi, error });
                self.tell();
            }
            Stage::Accepted { pair, lane, .. } => self.abandoned(&pair, lane),
            Stage::Fresh { .. } | Stage::Asked { .. } => {}
        }
    }

    /// The client hung up before its last word: our end of the lane is told that the other one is closed.
    fn abandoned(self: &Arc<Core>, pair: &Arc<Pair>, lane: LaneId) {
        if let Some(record) = lock(&self.lanes).get(&(pair.id, lane)) {
            record.inbound.tx.closed.store(1, std::sync::atomic::Ordering::Release);
            self.page.doorbells.ring(record.vi);
        }
        self.tell();
    }

    fn drop_unused_sockets(&self, control: &mut super::control::Control) {
        control.sockets.retain(|_, s| {
            let used = s.listen.is_some() || s.peers > 0;
            if !used {
                let _ = self.epoll.del(&s.listener);
            }
            used
        });
    }

    fn bind(&self, address: &NetAddress) -> Result<Listener, Error> {
        Listener::bind(&self.path(address)).map_err(|e| match e {
            OsError::InUse { .. } => Error::AddressInUse(address.to_string()),
            e => Error::Os(e),
        })
    }

    /// The socket of an address: readable if the address is short and plain, else a hash of it.
    fn path(&self, address: &NetAddress) -> PathBuf {
        let text = address.to_string();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name = text.replace('/', "@");
        if text.len() <= 40 && name.chars().all(|c| plain(c) || c == '@') && !name.starts_with('.') {
            return self.folder.join(format!("{name}.sock"));
        }
        self.folder.join(format!("x{:032x}.sock", fnv128(text.as_bytes())))
    }
}

/// The FNV-1a hash, 128 bits. A collision only makes two addresses share a socket: requests name their address.
fn fnv128(bytes: &[u8]) -> u128 {
    let offset = 0x6c62272e07bb014262b821756295c58d_u128;
    let prime = 0x0000000001000000000000000000013b_u128;
    bytes.iter().fold(offset, |h, b| (h ^ u128::from(*b)).wrapping_mul(prime))
}
