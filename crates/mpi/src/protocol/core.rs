//! One rank of the protocol: its requests, the messages that came early, and its peers.

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use super::flow::{ENVELOPE, Returned};
use super::packet::{Kind, Packet};
use super::peer::{Item, Peer, PeerState};
use super::pieces::Kept;
use super::requests::{Done, Receiving, Request, Requests, Senders, Status, Work};
use super::soon::Soon;
use crate::error::{Class, Error};
use crate::group::Group;
use crate::matching::{Envelope, Pattern, Posted, Unexpected};
use crate::raw::Span;

/// Bounds of the protocol. All ranks of a job have the same, but for the pieces that each sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest message in bytes that is sent without being asked for.
    pub eager: usize,
    /// Most bytes of a message in one packet.
    pub fragment: usize,
    /// Most bytes that this rank sends in one packet: no more than others have posted receives for.
    pub piece: usize,
    /// Receives that are posted for each peer.
    pub credits: u16,
    /// Bytes of early messages that are kept for each peer.
    pub room: u32,
}

/// Where a peer can read the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull {
    /// The address in the sender.
    pub address: u64,
    /// The number of the memory handle; 0 if the memory is not registered, and the kernel is to copy it.
    pub handle: u32,
}

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Its caller goes on: up to the eager limit it leaves at once, so that sender and receiver copy at the same time.
    Nonblocking,
    /// Its caller waits for it: one copy of the kernel's, if it is long, and nothing else to do meanwhile.
    Blocking,
    /// As a blocking one, and done when it has met its receive.
    Synchronous,
}

/// What became of a read out of a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulling {
    /// It is under way.
    Started,
    /// The kernel has copied the bytes.
    Copied,
    /// It cannot be done: the bytes have to be asked for.
    No,
}

/// What follows the header of a packet.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Nothing.
    None,
    /// Bytes of a message.
    Part {
        /// The message.
        span: &'a Span,
        /// The first byte, in packed form.
        from: usize,
        /// How many.
        len: usize,
    },
    /// Where to read the message.
    Place(Pull),
}

/// The network as a rank sees it.
pub trait Port {
    /// Sends a packet; the peer has posted a receive for it, and the connection stands. The bytes are copied at once.
    fn send(&mut self, to: usize, packet: &Packet, payload: Payload<'_>);
    /// A connection is needed. [`Core::opened`] follows.
    fn connect(&mut self, to: usize);
    /// Where a peer can read this message, if it can: in registered memory, or in `private` memory, too.
    fn place(&mut self, to: usize, span: &Span, private: bool) -> Option<Pull>;
    /// Reads `len` bytes of a message into a span that is in one piece. If that is only started, [`Core::pulled`] follows.
    fn pull(&mut self, from: usize, place: Pull, into: &Span, len: usize, request: u32) -> Pulling;
}

/// The processes that a receive may match.
#[derive(Clone, Debug)]
pub enum Source {
    /// One process.
    Process(usize),
    /// Any of a group.
    Any(Group),
}

/// A message that came before its receive.
#[derive(Debug)]
pub(super) enum Early {
    /// The whole message.
    Whole {
        /// The process that sent it.
        peer: usize,
        /// Its bytes.
        bytes: Box<[AtomicU8]>,
        /// The sender's request, if it waits for the receive.
        waits: Option<u32>,
    },
    /// The pieces of it that have come.
    Pieces { peer: usize, kept: Arc<Kept> },
    /// Its envelope.
    Announced { peer: usize, len: usize, request: u32, place: Option<Pull> },
    /// A message of this process to itself, by its request.
    Own { request: u32, len: usize },
}

/// What the allocator takes for the bytes of a message beside them, and what is noted of one in pieces.
const ALLOCATED: usize = 32 + size_of::<Kept>() + 2 * size_of::<usize>();
const _: () =
    assert!(Unexpected::<Early>::ENTRY + ALLOCATED <= ENVELOPE as usize, "room counts what a message takes");

/// A peer did what the protocol does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation(pub &'static str);

/// One rank.
#[derive(Debug)]
pub struct Core {
    pub(super) me: usize,
    pub(super) limits: Limits,
    pub(super) requests: Requests,
    pub(super) posted: Posted<u32>,
    pub(super) early: Unexpected<Early>,
    /// Messages that a matching probe has taken.
    held: HashMap<u64, (Envelope, Early)>,
    holds: u64,
    pub(super) peers: Vec<Peer>,
    /// Room that early messages of this process to itself take.
    pub(super) own_bytes: usize,
    /// Bytes of early messages that are kept, of all senders.
    pub(super) early_bytes: usize,
    /// Counts messages that came early: what a probe waits for.
    pub(super) arrivals: u64,
    /// Whether some peer is lost.
    pub(super) any_lost: bool,
}

impl Core {
    /// The rank `me` of `size`.
    pub fn new(me: usize, size: usize, limits: Limits) -> Core {
        Core {
            me,
            limits,
            requests: Requests::default(),
            posted: Posted::new(),
            early: Unexpected::new(),
            held: HashMap::new(),
            holds: 0,
            peers: (0..size).map(|_| Peer::new(limits.credits, limits.room)).collect(),
            own_bytes: 0,
            early_bytes: 0,
            arrivals: 0,
            any_lost: false,
        }
    }

    /// Changes whenever a request is done or an early message has come: what other threads may wait for.
    pub fn changes(&self) -> u64 {
        self.requests.finished + self.arrivals
    }

    /// Whether a request is done.
    pub fn is_done(&self, request: Request) -> bool {
        self.requests.is_done(request)
    }

    /// The status of a request that is done.
    pub fn status(&self, request: Request) -> Option<Status> {
        self.requests.status(request)
    }

    /// The end of a request that is done; the request is gone.
    pub fn take(&mut self, request: Request) -> Option<Done> {
        self.requests.take(request)
    }

    /// The end of a request that is done, with its label; the request is gone. None: it is not done. Some of none: there is no
    /// such request.
    #[inline]
    pub fn end(&mut self, request: Request) -> Option<Option<(Done, u32)>> {
        self.requests.end(request)
    }

    /// What was noted of a request; 0 at first. None: there is no such request.
    pub fn label(&self, request: Request) -> Option<u32> {
        self.requests.label(request)
    }

    /// Notes something of a request.
    pub fn set_label(&mut self, request: Request, label: u32) {
        self.requests.set_label(request, label);
    }

    /// The caller is not interested in the end of a request.
    pub fn detach(&mut self, request: Request) {
        self.requests.detach(request);
    }

    /// A request that is done already.
    pub fn finished(&mut self, status: Status) -> Request {
        self.requests.finished(Done::well(status))
    }

    /// A request that has failed already.
    pub fn failed(&mut self, error: Error) -> Request {
        self.requests.finished(Done { status: Status::EMPTY, error: Some(error) })
    }

    /// Posts a receive.
    #[inline]
    pub fn irecv(
        &mut self,
        port: &mut impl Port,
        span: &Span,
        pattern: Pattern,
        source: Source,
        keep: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Request {
        let from = match source {
            Source::Process(peer) => Senders::One(peer),
            Source::Any(group) => Senders::Any(group),
        };
        let early = self.early.take(&pattern);
        if early.is_none()
            && self.any_lost
            && let Some(lost) = (0..self.peers.len()).find(|peer| self.is_lost(*peer) && from.has(*peer))
        {
            return self.failed(self.gone(lost));
        }
        let receiving = Receiving { span: span.clone(), from, entry: None, matched: None };
        let request = self.requests.insert(Work::Recv(receiving), keep);
        match early {
            Some((envelope, early)) => self.accept(port, request.index, envelope, early),
            None => {
                let entry = self.posted.post(pattern, request.index);
                self.requests.receiving(request.index).expect("inserted just now").entry = Some(entry);
            }
        }
        request
    }

    /// Why no message can come from these processes: one of them is gone.
    pub fn why_none(&self, source: &Source) -> Option<Error> {
        let lost = |peer: &usize| self.is_lost(*peer);
        let peer = match source {
            _ if !self.any_lost => None,
            Source::Process(peer) => Some(*peer).filter(lost),
            Source::Any(group) => group.members().iter().map(|peer| *peer as usize).find(lost),
        };
        peer.map(|peer| self.gone(peer))
    }

    /// The first message that a receive would take.
    pub fn probe(&self, pattern: &Pattern) -> Option<Status> {
        let (envelope, early) = self.early.get(self.early.find(pattern)?)?;
        Some(Status::of(envelope, self.len_of(early)))
    }

    /// Takes the first message that a receive would take, for [`receive_held`](Self::receive_held).
    pub fn hold(&mut self, pattern: &Pattern) -> Option<(u64, Status)> {
        let (envelope, early) = self.early.take(pattern)?;
        let status = Status::of(&envelope, self.len_of(&early));
        self.holds += 1;
        self.held.insert(self.holds, (envelope, early));
        Some((self.holds, status))
    }

    /// Receives a message that was held. None: there is none of this number.
    pub fn receive_held(
        &mut self,
        port: &mut impl Port,
        number: u64,
        span: &Span,
        keep: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Option<Request> {
        let (envelope, early) = self.held.remove(&number)?;
        let from = Senders::One(self.peer_of(&early));
        let receiving = Receiving { span: span.clone(), from, entry: None, matched: None };
        let request = self.requests.insert(Work::Recv(receiving), keep);
        self.accept(port, request.index, envelope, early);
        Some(request)
    }

    /// Cancels a receive that has not met a message. Other requests go on, as the standard allows.
    pub fn cancel(&mut self, request: Request) {
        let Some(index) = self.requests.place(request) else { return };
        let entry = self.requests.receiving(index).and_then(|receiving| receiving.entry);
        if let Some(entry) = entry
            && self.posted.cancel(entry).is_some()
        {
            let status = Status { cancelled: true, ..Status::EMPTY };
            self.requests.finish(index, Done::well(status));
        }
    }

    /// The connection with a peer stands.
    pub fn opened(&mut self, port: &mut impl Port, peer: usize) {
        if self.peers[peer].state != PeerState::Lost {
            self.peers[peer].state = PeerState::Open;
            self.pump(port, peer);
        }
    }

    /// The connection with a peer is over, for this cause: what needs it fails.
    pub fn lost(&mut self, peer: usize, cause: impl Into<Cow<'static, str>>) {
        if self.is_lost(peer) {
            return;
        }
        self.peers[peer].lose(cause.into());
        self.any_lost = true;
        for index in self.requests.open() {
            let concerned = match self.requests.work(index) {
                Some(Work::Send(sending)) => sending.to == peer,
                Some(Work::Recv(receiving)) => match &receiving.matched {
                    Some(matched) => matched.peer == peer,
                    None => receiving.from.has(peer),
                },
                _ => false,
            };
            if concerned {
                let entry = self.requests.receiving(index).and_then(|receiving| receiving.entry);
                let _ = entry.and_then(|entry| self.posted.cancel(entry));
                let error = Some(self.gone(peer));
                self.requests.finish(index, Done { status: Status::EMPTY, error });
            }
        }
    }

    /// Whether a peer is gone.
    pub fn is_lost(&self, peer: usize) -> bool {
        self.peers[peer].state == PeerState::Lost
    }

    /// Whether a peer has said that it finishes.
    pub fn has_finished(&self, peer: usize) -> bool {
        self.peers[peer].finished
    }

    /// Bytes of early messages that are kept.
    pub fn early_bytes(&self) -> usize {
        self.early_bytes
    }

    /// Whether everything that was to be sent to anybody has left.
    pub fn is_idle(&self) -> bool {
        self.peers.iter().all(Peer::is_idle)
    }

    /// What was sent to and received from a peer, by protocol.
    pub fn counts(&self, peer: usize) -> &super::peer::Counts {
        &self.peers[peer].counts
    }

    /// Tells every connected peer that nothing follows.
    pub fn say_bye(&mut self, port: &mut impl Port) {
        for peer in 0..self.peers.len() {
            if self.peers[peer].state == PeerState::Open {
                self.control(port, peer, Packet::new(Kind::Bye));
            }
        }
    }

    /// A packet came from a peer. `soon` may take its message. The caller posts its receive again, then calls
    /// [`reposted`](Self::reposted).
    ///
    /// # Errors
    /// If the packet breaks the protocol; the connection is to be cut.
    #[inline]
    pub fn arrived(
        &mut self,
        port: &mut impl Port,
        from: usize,
        packet: &Packet,
        payload: &[AtomicU8],
        soon: Option<&mut Soon<'_>>,
    ) -> Result<(), Violation> {
        let returned = Returned { credits: packet.credits, freed: packet.freed };
        self.peers[from].flow.got(returned).map_err(|_| Violation("more credits than there are"))?;
        match packet.kind {
            Kind::Eager => self.take_eager(port, from, packet, payload, soon),
            Kind::Start => self.take_start(port, from, packet, payload, soon),
            Kind::Reply => self.take_reply(from, packet),
            Kind::Data => self.take_data(from, packet, payload),
            Kind::Ack => self.take_ack(from, packet),
            Kind::Credit => Ok(()),
            Kind::More => self.take_more(port, from, packet, payload),
            Kind::Bye => {
                self.peers[from].finished = true;
                Ok(())
            }
        }
    }

    /// The receive of a packet was posted again.
    #[inline]
    pub fn reposted(&mut self, port: &mut impl Port, from: usize) {
        self.peers[from].flow.posted();
        self.pump(port, from);
    }

    /// Whether a rank has all its credits back, but for what is still to be posted again.
    #[inline]
    pub fn owes_nothing(&self, to: usize) -> bool {
        self.peers[to].flow.owes_nothing()
    }

    /// Sends a packet of the protocol's own, now or when there is a credit.
    pub(super) fn control(&mut self, port: &mut impl Port, to: usize, packet: Packet) {
        if self.peers[to].is_clear() {
            self.transmit(port, to, packet, Payload::None);
        } else if self.peers[to].state != PeerState::Lost {
            self.peers[to].queue.push_back(Item::Control(packet));
        }
    }

    #[inline]
    pub(super) fn transmit(
        &mut self,
        port: &mut impl Port,
        to: usize,
        mut packet: Packet,
        payload: Payload<'_>,
    ) {
        let returned = self.peers[to].flow.sent();
        (packet.credits, packet.freed) = (returned.credits, returned.freed);
        port.send(to, &packet, payload);
    }

    /// What requests end with whose peer is gone.
    pub(super) fn gone(&self, peer: usize) -> Error {
        let cause = &self.peers[peer].cause;
        Error::new(Class::ProcAborted, format!("rank {peer} of MPI_COMM_WORLD: {cause}"))
    }

    /// Keeps a message that no receive takes yet.
    pub(super) fn keep_early(&mut self, envelope: Envelope, early: Early) {
        self.early_bytes += match &early {
            Early::Whole { bytes, .. } => bytes.len(),
            Early::Pieces { kept, .. } => kept.bytes.len(),
            Early::Announced { .. } | Early::Own { .. } => 0,
        };
        self.early.push(envelope, early);
        self.arrivals += 1;
    }

    fn len_of(&self, early: &Early) -> usize {
        match early {
            Early::Whole { bytes, .. } => bytes.len(),
            Early::Pieces { kept, .. } => kept.bytes.len(),
            Early::Announced { len, .. } | Early::Own { len, .. } => *len,
        }
    }

    fn peer_of(&self, early: &Early) -> usize {
        match early {
            Early::Whole { peer, .. } | Early::Pieces { peer, .. } | Early::Announced { peer, .. } => *peer,
            Early::Own { .. } => self.me,
        }
    }
}
