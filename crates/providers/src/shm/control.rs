//! The control thread: connection set-up, death notices and segments by request. It sleeps in epoll and costs nothing
//! while no peer connects, asks or dies.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use viaduct_os::clock;
use viaduct_os::epoll::Interest;
use viaduct_os::fdpass::{Channel, Listener, Recv};
use viaduct_os::point::point;
use viaduct_os::process;
use viaduct_via::provider::{Event, ListenId, RequestId};
use viaduct_via::{NetAddress, RemoteAttributes, Vi};

use super::greeting::{Client, Server};
use super::lane::LaneId;
use super::nic::Core;
use super::pair::{Pair, Passed, lock};
use super::wire::{Hello, MAX_MESSAGE};

/// Token of the wake-up descriptor.
pub(crate) const WAKE: u64 = 0;
/// Kind of a token, in its low bits.
pub(crate) const SOCKET: u64 = 1;
pub(crate) const HANDSHAKE: u64 = 2;
pub(crate) const CHANNEL: u64 = 3;
pub(crate) const PROCESS: u64 = 4;
pub(crate) const MEETING: u64 = 5;

/// A connection that says nothing for this long during set-up is dropped.
const HANDSHAKE_DEADLINE_NS: u64 = 5_000_000_000;
/// Connections at once from which nothing has come yet. One more, and the oldest of them goes: an eighth of the
/// descriptors a process usually has, and as many as the kernel lets wait at a socket.
const MOST_SILENT: usize = 128;
/// Accepted connections of one peer whose last word has not come. One more, and the oldest of them is closed: each holds
/// a descriptor.
const MOST_ACCEPTED: usize = 64;
/// Channels that a peer may have beside the first: two NICs that connect to each other at the same moment have one.
pub(crate) const MOST_EXTRA: usize = 4;
/// Connections accepted in one turn, so that a crowd at the door does not keep the others waiting.
const ACCEPTS: usize = 64;
/// Notes taken from a channel whose other end has gone: more than the kernel keeps for a socket.
const MOST_NOTES: usize = 4096;
/// How often a peer that is not there yet, or a server that has no room, is tried again.
const RETRY: Duration = Duration::from_millis(1);

/// State of connection set-up.
#[derive(Default)]
pub(crate) struct Control {
    pub(crate) next: u64,
    pub(crate) events: VecDeque<Event>,
    /// Our requests that have neither been answered nor given up, by VI, with the number of the request.
    pub(crate) asked: HashMap<Vi, u64>,
    pub(crate) sockets: HashMap<u64, Socket>,
    pub(crate) handshakes: HashMap<u64, Handshake>,
    /// By number of the NIC and its process.
    pub(crate) pairs: HashMap<([u8; 16], i32), Arc<Pair>>,
    /// Channels beside the first one that a peer may use too.
    pub(crate) extra: HashMap<u64, (Channel, Arc<Pair>)>,
    pub(crate) wants: Vec<PeerWant>,
    /// Requests of ours that found no room at the server's socket: tried again until they are given up.
    pub(crate) calls: Vec<Call>,
}

/// A listening address.
pub(crate) struct Socket {
    pub(crate) listener: Listener,
    /// The socket for processes of other users.
    pub(crate) meeting: Option<Listener>,
    pub(crate) address: NetAddress,
    /// Client-server listening, if any.
    pub(crate) listen: Option<Listen>,
    /// Peer requests that wait here.
    pub(crate) peers: usize,
}

pub(crate) struct Listen {
    pub(crate) id: ListenId,
    pub(crate) backlog: usize,
    pub(crate) waiting: bool,
    pub(crate) queued: usize,
}

/// A connection being set up.
pub(crate) struct Handshake {
    pub(crate) channel: Channel,
    pub(crate) deadline: Option<u64>,
    pub(crate) stage: Stage,
}

pub(crate) enum Stage {
    /// Server: another user perhaps, which has to greet first.
    Stranger { socket: u64 },
    /// Server: we have greeted, and wait for the proof.
    Greeted { socket: u64, server: Box<Server> },
    /// Server: nothing has come yet.
    Fresh { socket: u64 },
    /// Server: a request waits for its answer.
    Asked { request: RequestId, listener: ListenId, hello: Box<Hello>, passed: Passed },
    /// Server: accepted; the client's last word is to come. The lane is ours.
    Accepted { pair: Arc<Pair>, lane: LaneId },
    /// Client: we have greeted a process of another user.
    Calling { call: Call, peer: bool, client: Box<Client> },
    /// Client: waits for the answer.
    Asking { call: Call, peer: bool },
}

impl Stage {
    /// A request of ours.
    pub(crate) fn call(&self) -> Option<&Call> {
        match self {
            Stage::Calling { call, .. } | Stage::Asking { call, .. } => Some(call),
            _ => None,
        }
    }

    /// Nothing came from there that would say what it wants.
    fn is_silent(&self) -> bool {
        matches!(self, Stage::Stranger { .. } | Stage::Greeted { .. } | Stage::Fresh { .. })
    }
}

/// A request of ours.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) vi: Vi,
    /// Tells it from other requests of the same VI.
    pub(crate) number: u64,
    pub(crate) from: NetAddress,
    pub(crate) remote: NetAddress,
    pub(crate) attributes: RemoteAttributes,
}

/// A peer-to-peer request of ours.
pub(crate) struct PeerWant {
    pub(crate) call: Call,
    /// Whether a connection attempt is under way.
    pub(crate) trying: bool,
}

impl PeerWant {
    /// Of two that ask for each other, the one with the smaller address waits and the other one comes.
    pub(crate) fn waits(&self) -> bool {
        self.call.from < self.call.remote
    }
}

impl Control {
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Begins a request.
    pub(crate) fn ask(
        &mut self,
        vi: Vi,
        from: &NetAddress,
        remote: &NetAddress,
        attributes: &RemoteAttributes,
    ) -> Call {
        let number = self.number();
        self.asked.insert(vi, number);
        Call { vi, number, from: from.clone(), remote: remote.clone(), attributes: attributes.clone() }
    }

    /// Whether a request still waits for its answer.
    pub(crate) fn is_asked(&self, call: &Call) -> bool {
        self.asked.get(&call.vi) == Some(&call.number)
    }

    fn is_silent(&self, handshake: u64) -> bool {
        self.handshakes.get(&handshake).is_some_and(|h| h.stage.is_silent())
    }

    /// The oldest accepted connection of a pair that still waits for its client's last word, if there are too many.
    pub(crate) fn too_many_accepted(&self, pair: u64) -> Option<u64> {
        if self.handshakes.len() <= MOST_ACCEPTED {
            return None;
        }
        let of_pair = |h: &Handshake| matches!(&h.stage, Stage::Accepted { pair: p, .. } if p.id == pair);
        let accepted = || self.handshakes.iter().filter(|(_, h)| of_pair(h)).map(|(id, _)| *id);
        if accepted().count() > MOST_ACCEPTED { accepted().min() } else { None }
    }

    /// The one that has been silent for longest, if there are too many.
    fn one_too_many(&self) -> Option<u64> {
        if self.handshakes.len() <= MOST_SILENT {
            return None;
        }
        let silent = || self.handshakes.keys().copied().filter(|id| self.is_silent(*id));
        if silent().count() > MOST_SILENT { silent().min() } else { None }
    }
}

/// A token for epoll.
pub(crate) fn token(kind: u64, id: u64) -> u64 {
    id << 3 | kind
}

/// The thread.
pub(crate) fn run(core: &Arc<Core>) {
    let mut events = Vec::new();
    let mut buffer = vec![0u8; MAX_MESSAGE];
    while !core.stop.load(Ordering::Acquire) {
        let timeout = core.next_timeout();
        if core.epoll.wait(&mut events, timeout).is_err() {
            // Only a broken descriptor set makes it fail; do not burn the CPU over it.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        }
        for event in events.drain(..) {
            let (kind, id) = (event.token & 7, event.token >> 3);
            match kind {
                WAKE => {
                    core.wake.drain();
                    if core.crowd.take_wish() {
                        core.ask_for_fences();
                    }
                }
                SOCKET => core.incoming(id, false, &mut buffer),
                MEETING => core.incoming(id, true, &mut buffer),
                HANDSHAKE => core.handshake(id, &mut buffer),
                CHANNEL => core.channel(id, &mut buffer),
                PROCESS => core.process_died(id),
                _ => {}
            }
        }
        core.serve_all();
        core.overdue();
        core.retry_peers();
        core.retry_calls();
    }
}

impl Core {
    /// How long the thread may sleep.
    fn next_timeout(&self) -> Option<Duration> {
        let control = lock(&self.control);
        if !control.calls.is_empty() || control.wants.iter().any(|w| !w.waits() && !w.trying) {
            return Some(RETRY);
        }
        let first = control.handshakes.values().filter_map(|h| h.deadline).min()?;
        Some(Duration::from_nanos(first.saturating_sub(clock::now_ns()).max(1_000_000)))
    }

    /// Accepts what has come to a listening socket; what is left is told of again.
    fn incoming(self: &Arc<Core>, socket: u64, meeting: bool, buffer: &mut [u8]) {
        for _ in 0..ACCEPTS {
            let mut control = lock(&self.control);
            let Some(s) = control.sockets.get(&socket) else { return };
            let door = if meeting { s.meeting.as_ref() } else { Some(&s.listener) };
            let Some(door) = door else { return };
            let channel = match door.accept() {
                Ok(Some(channel)) => channel,
                Ok(None) => return,
                Err(e) => {
                    // Out of descriptors: clients that wait stay in the kernel's backlog until there are some again.
                    drop(control);
                    tracing::warn!("accept: {e}");
                    std::thread::sleep(Duration::from_millis(1));
                    return;
                }
            };
            point("control.accepted");
            // Strangers are turned away before a byte of theirs is read.
            let lets_in = |user| match &self.meeting {
                Some(ours) if meeting => ours.lets_in(user),
                _ => user == process::effective_uid() || user == 0,
            };
            if !channel.peer().is_ok_and(|c| lets_in(c.uid)) {
                continue;
            }
            let id = control.number();
            if self.epoll.add(&channel, token(HANDSHAKE, id), Interest::Read).is_err() {
                continue;
            }
            point("control.watched");
            let deadline = Some(clock::now_ns() + HANDSHAKE_DEADLINE_NS);
            let stage = if meeting { Stage::Stranger { socket } } else { Stage::Fresh { socket } };
            control.handshakes.insert(id, Handshake { channel, deadline, stage });
            let one_too_many = control.one_too_many();
            drop(control);
            if let Some(oldest) = one_too_many {
                // It may have spoken, and not been heard yet.
                self.handshake(oldest, buffer);
                if lock(&self.control).is_silent(oldest) {
                    self.drop_handshake(oldest);
                }
            }
        }
    }

    /// Sends what the channels had no room for before, and ends pairs that cannot go on.
    fn serve_all(self: &Arc<Core>) {
        let pairs: Vec<Arc<Pair>> =
            lock(&self.control).pairs.values().filter(|p| p.has_work()).cloned().collect();
        for pair in pairs {
            self.flush(&pair);
            if pair.is_broken() {
                self.peer_gone(&pair);
            }
        }
    }

    /// Sends what waited, and has the thread woken when there is room for the rest.
    fn flush(&self, pair: &Pair) {
        let flushed = pair.flush();
        if flushed.announced {
            self.ring();
        }
        if !flushed.more && self.send_pieces(pair) {
            // The others have their turn first.
            self.wake.signal();
        }
        if pair.is_crowded() {
            // Nothing tells when this is over; do not burn the CPU over it.
            std::thread::sleep(Duration::from_millis(1));
        }
        let more = pair.is_backed_up();
        if pair.wants_room.swap(more, Ordering::Relaxed) != more {
            let interest = if more { Interest::Both } else { Interest::Read };
            let _ = self.epoll.modify(&pair.channel, token(CHANNEL, pair.id), interest);
        }
    }

    /// Something came over a channel between NICs that know each other, or one has room again.
    fn channel(self: &Arc<Core>, id: u64, buffer: &mut [u8]) {
        let pair = {
            let control = lock(&self.control);
            let extra = control.extra.get(&id).map(|(_, p)| p.clone());
            extra.or_else(|| control.pairs.values().find(|p| p.id == id).cloned())
        };
        let Some(pair) = pair else { return };
        self.flush(&pair);
        // A bounded number of messages, so that one busy peer does not keep the others waiting.
        for _ in 0..64 {
            let mut fds = Vec::new();
            let received = {
                let control = lock(&self.control);
                let channel = control.extra.get(&id).map_or(&pair.channel, |(c, _)| c);
                channel.recv(buffer, &mut fds, 1)
            };
            match received {
                Ok(Recv::Message(n)) => {
                    point("control.note");
                    if !self.serve(&pair, &buffer[..n], fds) {
                        self.peer_gone(&pair);
                        return;
                    }
                }
                Ok(Recv::WouldBlock) => return,
                Ok(Recv::Closed) => {
                    self.peer_ended(&pair);
                    return;
                }
                Err(e) => {
                    // The note is lost, and perhaps an answer that a VI waits for: better an end than half a pair.
                    tracing::warn!("process {}: a note could not be taken, cut off: {e}", pair.pid);
                    self.peer_gone(&pair);
                    return;
                }
            }
        }
    }

    fn process_died(self: &Arc<Core>, id: u64) {
        let pair = lock(&self.control).pairs.values().find(|p| p.id == id).cloned();
        if let Some(pair) = pair {
            self.peer_ended(&pair);
        }
    }

    /// The other NIC, or its process, has ended. What it sent before its end still counts: the kernel keeps that.
    fn peer_ended(self: &Arc<Core>, pair: &Arc<Pair>) {
        let extra: Vec<u64> = {
            let control = lock(&self.control);
            control.extra.iter().filter(|(_, (_, p))| Arc::ptr_eq(p, pair)).map(|(id, _)| *id).collect()
        };
        for channel in std::iter::once(None).chain(extra.into_iter().map(Some)) {
            self.last_notes(pair, channel);
        }
        self.peer_gone(pair);
    }

    /// Takes the notes that are left in a channel of an ended peer: the pair's own, or an extra one.
    fn last_notes(self: &Arc<Core>, pair: &Arc<Pair>, extra: Option<u64>) {
        let mut buffer = vec![0u8; MAX_MESSAGE];
        let mut closed = 0;
        for _ in 0..MOST_NOTES {
            let mut fds = Vec::new();
            let received = {
                let control = lock(&self.control);
                let channel = extra.and_then(|id| control.extra.get(&id)).map_or(&pair.channel, |(c, _)| c);
                channel.recv(&mut buffer, &mut fds, 1)
            };
            match received {
                Ok(Recv::Message(n)) if self.serve(pair, &buffer[..n], fds) => closed = 0,
                // A hang-up with notes of ours unread is told before what came ahead of it, and once.
                Ok(Recv::Closed) if closed == 0 => closed = 1,
                _ => return,
            }
        }
    }

    /// The other NIC, or its process, is gone: everybody concerned is woken.
    pub(crate) fn peer_gone(self: &Arc<Core>, pair: &Arc<Pair>) {
        point("control.gone");
        pair.set_dead();
        {
            let mut control = lock(&self.control);
            control.pairs.retain(|_, p| !Arc::ptr_eq(p, pair));
            control.extra.retain(|_, (channel, p)| {
                let keep = !Arc::ptr_eq(p, pair);
                if !keep {
                    let _ = self.epoll.del(&*channel);
                }
                keep
            });
            let _ = self.epoll.del(&pair.channel);
            let _ = self.epoll.del(pair.pidfd.as_fd());
        }
        point("control.forgotten");
        lock(&self.maps).forget(pair.id);
        lock(&self.bounce).lost(pair.id);
        // Cold VIs are looked at only when their doorbell rings.
        for lane in lock(&self.lanes).values().filter(|l| Arc::ptr_eq(&l.pair, pair)) {
            self.page.doorbells.ring(lane.vi);
        }
        self.tell();
    }

    /// Drops connections that stopped talking during set-up.
    fn overdue(self: &Arc<Core>) {
        let now = clock::now_ns();
        let late: Vec<u64> = {
            let control = lock(&self.control);
            control
                .handshakes
                .iter()
                .filter(|(_, h)| h.deadline.is_some_and(|d| d <= now))
                .map(|(i, _)| *i)
                .collect()
        };
        for id in late {
            self.drop_handshake(id);
        }
    }

    /// Lets go of everything, when the NIC closes and the thread has ended.
    pub(crate) fn shut_down(&self) {
        let mut control = lock(&self.control);
        for (_, h) in control.handshakes.drain() {
            let _ = self.epoll.del(&h.channel);
        }
        control.sockets.clear();
        control.extra.clear();
        for (_, pair) in control.pairs.drain() {
            pair.flush();
            let _ = self.epoll.del(&pair.channel);
            let _ = self.epoll.del(pair.pidfd.as_fd());
        }
        control.events.clear();
        control.wants.clear();
        control.calls.clear();
        control.asked.clear();
        lock(&self.lanes).clear();
    }
}
