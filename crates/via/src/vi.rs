//! One Virtual Interface: its state, its two work queues and the endpoint it is bound to while connected.
//!
//! States are VIA's: Idle, Connect Pending, Connected, Error; `docs/via-decisions.md` says which rules were recalled
//! rather than read and how they were decided.

use std::fmt;

use crate::address::NetAddress;
use crate::attributes::{RemoteAttributes, ViAttributes};
use crate::descriptor::{Descriptor, Op, Status};
use crate::error::Error;
use crate::handle::{Cq, Table};
use crate::provider::{Endpoint, Submit};
use crate::queue::{Outcome, WorkQueue};
use crate::queues::{Fault, Queues};
use crate::raw::WatchWord;
use crate::srq::SrqCore;

/// State of a VI.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ViState {
    /// Not connected; receives may be posted.
    Idle,
    /// A request is under way.
    ConnectPending,
    /// Connected.
    Connected,
    /// The connection broke; everything was flushed; disconnect leads back to Idle.
    Error,
}

impl fmt::Display for ViState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ViState::Idle => "idle",
            ViState::ConnectPending => "waiting for its connection",
            ViState::Connected => "connected",
            ViState::Error => "in the error state",
        })
    }
}

/// Which of a VI's two queues.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Queue {
    /// Sends and RDMA.
    Send,
    /// Receives.
    Receive,
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Queue::Send => "the send queue",
            Queue::Receive => "the receive queue",
        })
    }
}

pub(crate) struct ViCore {
    pub(crate) state: ViState,
    pub(crate) attributes: ViAttributes,
    pub(crate) send: WorkQueue,
    pub(crate) recv: WorkQueue,
    pub(crate) endpoint: Option<Box<dyn Endpoint>>,
    pub(crate) remote: Option<RemoteAttributes>,
    /// Result of a connection request, until the application asks for it.
    pub(crate) outcome: Option<Result<(), Error>>,
    /// When a pending request is given up, in clock nanoseconds.
    pub(crate) deadline: Option<u64>,
    /// Unsignalled descriptors that are done.
    pub(crate) reclaimed: Vec<Descriptor>,
    reads_in_flight: u32,
    /// Polled by its completion queue without being asked (see `cq`).
    pub(crate) hot: bool,
    pub(crate) idle_polls: u32,
    /// Something has arrived that the transport could not take yet.
    pub(crate) stalled: bool,
    /// What shows that something arrived, while nothing else is under way.
    pub(crate) watch: WatchWord,
    /// The protection tag as part of the stamps of descriptors posted here: what one tag allows, another need not. The
    /// stamps of sends and of receives are different.
    pub(crate) send_mix: u64,
    pub(crate) recv_mix: u64,
    /// Most bytes that can be sent by value.
    pub(crate) max_inline: usize,
    /// Whether a queue reports to a completion queue.
    pub(crate) bound: bool,
    /// Whether receives are not drawn from a shared receive queue.
    pub(crate) own_receives: bool,
    /// Whether receives are its own, and one completion queue has both of its queues, or its receives alone.
    pub(crate) one_cq: bool,
    /// Whether neither completion queues nor a shared receive queue have a part in it.
    pub(crate) plain: bool,
    /// The transport wants to be told of receives of this many bytes and more.
    pub(crate) tell_from: u32,
    /// Ledger index of the first receive of this connection.
    first_receive: u32,
    /// A number of the program's.
    pub(crate) context: u64,
    /// Entries fetched from completion queues whose completions were not taken yet, per queue.
    pub(crate) owed: [u32; 2],
    /// The address that was asked for, or that asked: for the log.
    pub(crate) peer: Option<NetAddress>,
    /// Its program is through with it; it goes when its sends are out.
    pub(crate) leaving: bool,
    /// Calls for other VIs look at it (see `others`).
    pub(crate) listed: bool,
}

/// What the fast path to a receive found.
pub(crate) enum FastReceive {
    Taken((Descriptor, Outcome)),
    Nothing,
    /// It is not that simple, and nothing was done.
    No,
}

/// What became of a descriptor that was handed over for sending.
pub(crate) enum Handed {
    /// It is done.
    Done,
    /// It waits, or the transport has it: more calls move it on.
    Left,
    /// It failed, and the connection with it.
    Broken(Fault),
}

/// What a step of progress brought about.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) fault: Option<Fault>,
    pub(crate) dropped: u32,
    pub(crate) received: u32,
    pub(crate) received_bytes: u64,
}

/// Tells the stamps of receives from those of sends.
const RECEIVE: u64 = 1 << 63;

/// The tag's two words, far from the small numbers that stamps are.
fn stamp_mix(attributes: &ViAttributes) -> u64 {
    let raw = attributes.ptag.raw();
    (u64::from(raw.generation) << 32 | u64::from(raw.index)) << 20
}

impl Progress {
    /// Whether there is more to do than to take completions.
    #[inline]
    pub(crate) fn is_unusual(&self) -> bool {
        self.fault.is_some() || self.dropped > 0
    }
}

impl ViCore {
    pub(crate) fn new(attributes: ViAttributes, max_inline: usize) -> ViCore {
        let mut core = ViCore {
            state: ViState::Idle,
            send: WorkQueue::new(attributes.send_depth),
            recv: WorkQueue::new(attributes.recv_depth),
            reclaimed: Vec::new(),
            endpoint: None,
            remote: None,
            outcome: None,
            deadline: None,
            reads_in_flight: 0,
            hot: false,
            idle_polls: 0,
            stalled: false,
            watch: WatchWord::NONE,
            send_mix: 0,
            recv_mix: 0,
            max_inline: 0,
            bound: attributes.send_cq.is_some() || attributes.recv_cq.is_some(),
            own_receives: attributes.srq.is_none(),
            one_cq: attributes.srq.is_none()
                && attributes.recv_cq.is_some()
                && attributes.send_cq.is_none_or(|cq| attributes.recv_cq == Some(cq)),
            plain: attributes.send_cq.is_none() && attributes.recv_cq.is_none() && attributes.srq.is_none(),
            tell_from: u32::MAX,
            first_receive: 0,
            context: 0,
            owed: [0; 2],
            peer: None,
            leaving: false,
            listed: false,
            attributes: attributes.clone(),
        };
        core.set_attributes(attributes, max_inline);
        core
    }

    /// The address of its peer, for the log.
    pub(crate) fn peer_name(&self) -> String {
        self.peer.as_ref().map(NetAddress::to_string).unwrap_or_default()
    }

    /// Its queues report to no completion queue any more. Gives those they had, each with the entries that are reserved there.
    pub(crate) fn leave_cqs(&mut self) -> [Option<(Cq, u32)>; 2] {
        let receives = if self.own_receives { self.recv.len() } else { 0 };
        let send = self.attributes.send_cq.take().map(|cq| (cq, self.send.len()));
        let receive = self.attributes.recv_cq.take().map(|cq| (cq, receives));
        (self.bound, self.one_cq, self.plain, self.owed) = (false, false, false, [0; 2]);
        [send, receive]
    }

    /// Polls the endpoint and hands over waiting sends.
    #[inline]
    pub(crate) fn progress(&mut self, srqs: &mut Table<SrqCore>) -> Progress {
        let Some(endpoint) = self.endpoint.as_mut() else { return Progress::default() };
        let srq = match self.attributes.srq {
            None => None,
            Some(srq) => srqs.get_mut(srq.0),
        };
        let mut queues = Queues {
            send: &mut self.send,
            recv: &mut self.recv,
            srq,
            ptag: self.attributes.ptag,
            reads_in_flight: &mut self.reads_in_flight,
            fault: None,
            dropped: 0,
            received: 0,
            received_bytes: 0,
            watch: WatchWord::NONE,
            stalled: false,
        };
        endpoint.poll(&mut queues);
        self.watch = queues.watch;
        self.stalled = queues.stalled;
        let Queues { fault, dropped, received, received_bytes, .. } = queues;
        let mut result = Progress { fault, dropped, received, received_bytes };
        if self.send.waiting() > 0 && result.fault.is_none() {
            self.watch = WatchWord::NONE;
            result.fault = self.pump();
        }
        result
    }

    /// Hands over a descriptor at once if nothing waits before it, and puts it into the ledger either way.
    #[inline(always)]
    pub(crate) fn submit(&mut self, mut descriptor: Descriptor) -> Handed {
        let ready = self.send.waiting() == 0 && self.reads_in_flight == 0;
        let index = self.send.next_index();
        let work = descriptor.work_mut();
        if let (true, Status::Success, Some(endpoint)) = (ready, work.verdict, self.endpoint.as_mut()) {
            match endpoint.submit(work, index) {
                Submit::Done => {
                    self.send.push_done(descriptor);
                    return Handed::Done;
                }
                Submit::Pending => {
                    self.watch = WatchWord::NONE;
                    self.reads_in_flight += u32::from(work.op.reads_remote());
                    self.send.push(descriptor);
                    self.send.advance();
                    return Handed::Left;
                }
                Submit::Busy => {
                    self.watch = WatchWord::NONE;
                    self.send.push(descriptor);
                    return Handed::Left;
                }
                Submit::Failed(status) => work.verdict = status,
            }
        }
        let first = self.send.waiting() == 0;
        self.watch = WatchWord::NONE;
        self.send.push(descriptor);
        match if first { self.pump() } else { None } {
            Some(fault) => Handed::Broken(fault),
            None => Handed::Left,
        }
    }

    /// Hands waiting sends to the endpoint until it is busy. Tells of a break.
    #[inline]
    pub(crate) fn pump(&mut self) -> Option<Fault> {
        let endpoint = self.endpoint.as_mut()?;
        loop {
            let index = self.send.cursor();
            let work = self.send.at_cursor()?;
            if work.fence && self.reads_in_flight > 0 {
                return None;
            }
            let total = work.total;
            let submitted = match work.verdict {
                Status::Success => endpoint.submit(work, index),
                wrong => Submit::Failed(wrong),
            };
            match submitted {
                Submit::Done => {
                    self.send.advance();
                    self.send.finish(index, Status::Success, total);
                }
                Submit::Pending => {
                    self.reads_in_flight += u32::from(work.op.reads_remote());
                    self.send.advance();
                }
                Submit::Busy => return None,
                Submit::Failed(status) => {
                    self.send.advance();
                    self.send.finish(index, status, 0);
                    if self.attributes.reliability.is_reliable() {
                        return Some(Fault::Remote(status));
                    }
                }
            }
        }
    }

    /// Binds the transport; receives posted so far are told to it.
    pub(crate) fn bind(&mut self, mut endpoint: Box<dyn Endpoint>, remote: RemoteAttributes) {
        self.first_receive = self.recv.cursor();
        self.tell_from = endpoint.tell_receives_from();
        let mut number = 0;
        self.recv.for_each_waiting(|work| {
            if work.total >= self.tell_from {
                endpoint.recv_posted(work, number);
            }
            number += 1;
        });
        self.endpoint = Some(endpoint);
        self.remote = Some(remote);
        self.state = ViState::Connected;
    }

    /// Lets go of the transport and flushes both queues.
    pub(crate) fn unbind(&mut self, state: ViState) {
        self.watch = WatchWord::NONE;
        self.stalled = false;
        self.tell_from = u32::MAX;
        if let Some(mut endpoint) = self.endpoint.take() {
            endpoint.close();
        }
        self.send.flush();
        self.recv.flush();
        self.reads_in_flight = 0;
        self.remote = None;
        self.state = state;
    }

    /// An unsignalled descriptor was carried out: it is kept for the program, if it is the program's.
    #[inline]
    pub(crate) fn put_aside(&mut self, descriptor: Descriptor) {
        if !descriptor.work().is_copy {
            self.reclaimed.push(descriptor);
        }
    }

    /// The completion queue that one of the queues reports to.
    #[inline]
    pub(crate) fn cq_of(&self, which: Queue) -> Option<Cq> {
        match which {
            Queue::Send => self.attributes.send_cq,
            Queue::Receive => self.attributes.recv_cq,
        }
    }

    #[inline]
    pub(crate) fn queue_mut(&mut self, which: Queue) -> &mut WorkQueue {
        match which {
            Queue::Send => &mut self.send,
            Queue::Receive => &mut self.recv,
        }
    }

    /// Whether a send can go to the transport at once, past the checks of whatever is unusual.
    #[inline]
    pub(crate) fn can_send_fast(&self) -> bool {
        self.endpoint.is_some() && self.send.waiting() == 0 && !self.send.is_full()
    }

    /// Whether a receive only has to join the queue.
    #[inline]
    pub(crate) fn can_post_recv_fast(&self) -> bool {
        self.own_receives && self.state != ViState::Error && !self.recv.is_full()
    }

    /// Takes over attributes that were changed while the VI was idle.
    pub(crate) fn set_attributes(&mut self, attributes: ViAttributes, max_inline: usize) {
        self.max_inline = max_inline.min(attributes.max_transfer_size as usize);
        self.send_mix = stamp_mix(&attributes);
        self.recv_mix = self.send_mix ^ RECEIVE;
        self.attributes = attributes;
    }

    /// Tells the transport of a receive that was posted as number `index` of the ledger.
    pub(crate) fn tell_receive(&mut self, index: u32) {
        let number = index.wrapping_sub(self.first_receive);
        if let (Some(endpoint), Some(work)) = (self.endpoint.as_mut(), self.recv.peek(index)) {
            endpoint.recv_posted(work, number);
        }
    }

    /// Whether one of its completion queues has its receives, which are its own.
    #[inline(always)]
    pub(crate) fn receives_into(&self, cq: Cq) -> bool {
        // Mostly there is but one, which need not be asked for by name.
        self.one_cq || self.own_receives && self.attributes.recv_cq == Some(cq)
    }

    /// The fast path to the next receive, for a VI whose receives are its own, while nothing but arrivals is to be
    /// seen.
    #[inline(always)]
    pub(crate) fn poll_recv_fast(&mut self) -> FastReceive {
        if !self.recv.nothing_done() {
            return FastReceive::No;
        }
        if self.watch.is_quiet() {
            return FastReceive::Nothing;
        }
        match self.take_into_next() {
            Some(taken) => FastReceive::Taken(taken),
            // One was taken before: if the one after it is all there is to wait for, a full poll would cost more.
            None if self.watch.has_moved() && self.watch_next() => FastReceive::Nothing,
            None => FastReceive::No,
        }
    }

    #[inline(never)]
    fn watch_next(&mut self) -> bool {
        self.watch = self.endpoint.as_ref().map_or(WatchWord::NONE, |endpoint| endpoint.watch());
        self.watch.is_quiet()
    }

    /// The shortest way for a message: from the transport into the descriptor that is next, and out to the caller.
    #[inline(always)]
    fn take_into_next(&mut self) -> Option<(Descriptor, Outcome)> {
        if self.send.waiting() > 0 {
            return None;
        }
        let (Some(endpoint), Some(work)) = (self.endpoint.as_mut(), self.recv.at_cursor()) else {
            return None;
        };
        let small = endpoint.take_small(work)?;
        self.watch.moved();
        let (length, immediate) = (small.length(), small.immediate());
        let outcome = Outcome { op: Op::Receive, status: Status::Success, length, immediate };
        Some((self.recv.pop_fresh()?, outcome))
    }

    /// Whether it has to be polled again without an announcement: a message is held back, or sends are under way.
    #[inline]
    pub(crate) fn stays_hot(&self) -> bool {
        self.stalled || self.sends_outstanding()
    }

    /// Whether the send queue has something that progress may complete.
    #[inline]
    pub(crate) fn sends_outstanding(&self) -> bool {
        self.send.unfinished()
    }
}
