//! One connection: an endpoint of libfabric's with its buffers, and what goes over it frame by frame.
//!
//! Everything here runs under the engine's lock, called by the owner of the NIC or by its control thread, whichever
//! looks first. What concerns the queues of the VI is in `progress`, RDMA in `rdma`, set-up in `connect`.

use std::collections::VecDeque;

use viaduct_os::budget::Budget;
use viaduct_via::raw::RawSegment;
use viaduct_via::{Error, Fault, Reliability, RemoteAttributes, Status, Vi};
use zerocopy::IntoBytes;

use super::abi::FI_EAGAIN;
use super::connect::Stage;
use super::endpoint::Active;
use super::fabric::Fabric;
use super::flow::{Flow, Window};
use super::frames::{Frames, GREETING, GREETINGS};
use super::mem::Regions;
use super::outgoing::{Outgoing, Uncopied};
use super::rdma::{Flight, Reply};
use super::wire::{FAILED, HEAD, Head, Hello, Kind};

/// A frame that waits for the owner of the VI, in the buffer it came in.
pub(super) struct WaitingFrame {
    pub(super) buffer: u16,
    pub(super) kind: Kind,
    pub(super) head: Head,
}

pub(super) struct Lane {
    /// First, so that it is closed before the buffers go.
    pub(super) ep: Active,
    pub(super) frames: Frames,
    pub(super) id: u32,
    pub(super) stage: Stage,
    /// What our VI is: the rights of the peer.
    pub(super) ours: RemoteAttributes,
    pub(super) vi: Option<Vi>,
    pub(super) flow: Flow,
    /// Bytes that go into a frame of the peer's behind its header, and into a buffer of ours that is sent.
    pub(super) room: usize,
    pub(super) copied: usize,
    /// Places in memory that an uncopied frame may have; none if memory would have to be registered for it.
    pub(super) most_places: usize,
    /// Frames up to this length are copied by libfabric, which then says no more of them.
    pub(super) inject: usize,
    sequence_out: u32,
    sequence_in: u32,
    free: Vec<u16>,
    /// Sends that libfabric has not finished.
    under_way: usize,
    /// When it was made; and whether its other end came by itself and has not proved to be of this job.
    pub(super) born: u64,
    pub(super) stranger: bool,
    /// The port that was dialled: the peer's if we called, else ours.
    pub(super) port: u16,
    /// When something was last heard and said, in clock nanoseconds.
    pub(super) heard: u64,
    pub(super) said: u64,
    /// Why it is over, once it is; told when everything that arrived before was taken.
    pub(super) end: Option<Fault>,
    pub(super) armed: bool,
    /// Something for the owner came since it was last told.
    pub(super) news: bool,
    pub(super) inbox: VecDeque<WaitingFrame>,
    /// Greetings that wait for a buffer.
    pub(super) greetings: VecDeque<Hello>,

    /// Descriptors of ours that are not done, in order.
    pub(super) flights: VecDeque<Flight>,
    /// Those that are not all out, in order; the first may be partly out. The engine moves them on as credits come back,
    /// whether the owner looks or not.
    pub(super) outgoing: VecDeque<Outgoing>,
    pub(super) uncopied: Uncopied,
    /// Since when sends wait for libfabric alone, with the connection over and messages of the peer's still here.
    pub(super) gave_up: Option<u64>,
    /// The owner was told to come back: it is woken when there is room.
    pub(super) blocked: bool,
    pub(super) next_number: u32,
    /// Messages of ours that the peer has received, and how many of them were told to the queue.
    pub(super) acked: u32,
    pub(super) acks_used: u32,
    /// Messages sent that are to be acknowledged.
    pub(super) acks_awaited: u32,
    /// How the message after them failed.
    pub(super) failed: Option<Status>,

    /// Messages of the peer's that were received here.
    pub(super) received: u32,
    pub(super) ack_due: bool,
    /// The peer is to be woken, once all that was handed over before is out.
    pub(super) nudge_due: bool,
    /// How the one after them failed.
    pub(super) refused: Option<Status>,
    /// Bytes of the message that is being received.
    pub(super) assembled: Option<u32>,
    /// The rest of the current message is dropped.
    pub(super) skipping: bool,

    /// What the peer is owed.
    pub(super) replies: VecDeque<Reply>,
    /// An RDMA write that is refused, until its last piece has come.
    pub(super) refusing: Option<u32>,
    /// An operation of the peer's was refused: what it sent after it is not carried out.
    pub(super) rejecting: bool,
    /// The peer's close is to be answered, or ours to be sent.
    pub(super) closed_due: bool,
    pub(super) close_due: bool,
}

/// The context of an operation of libfabric's: which lane, which way, which buffer.
pub(super) fn context(lane: u32, sends: bool, buffer: u16) -> u64 {
    u64::from(lane) << 17 | u64::from(sends) << 16 | u64::from(buffer)
}

/// An operation of libfabric's, as its [`context`] tells it.
pub(super) struct Operation {
    pub(super) lane: u32,
    pub(super) sends: bool,
    pub(super) buffer: u16,
}

impl Operation {
    pub(super) fn of(context: u64) -> Operation {
        Operation { lane: (context >> 17) as u32, sends: context >> 16 & 1 != 0, buffer: context as u16 }
    }
}

impl Lane {
    pub(super) fn new(
        id: u32,
        ep: Active,
        frames: Frames,
        stage: Stage,
        ours: RemoteAttributes,
        now: u64,
    ) -> Lane {
        let (grown, sending) = (frames.is_grown(), frames.sending as u16);
        Lane {
            free: if grown {
                (0..sending).collect()
            } else {
                (sending..sending + GREETINGS as u16).collect()
            },
            under_way: 0,
            born: now,
            stranger: !grown,
            port: 0,
            room: frames.size - HEAD,
            copied: if grown { frames.send_size } else { GREETING } - HEAD,
            most_places: 0,
            inject: 0,
            flow: Flow::new(Window::default(), Window::default()),
            ep,
            frames,
            id,
            stage,
            ours,
            vi: None,
            sequence_out: 0,
            sequence_in: 0,
            heard: now,
            said: now,
            end: None,
            armed: false,
            news: false,
            inbox: VecDeque::new(),
            greetings: VecDeque::new(),
            flights: VecDeque::new(),
            outgoing: VecDeque::new(),
            uncopied: Uncopied::default(),
            gave_up: None,
            blocked: false,
            next_number: 0,
            acked: 0,
            acks_used: 0,
            acks_awaited: 0,
            failed: None,
            received: 0,
            ack_due: false,
            nudge_due: false,
            refused: None,
            assembled: None,
            skipping: false,
            replies: VecDeque::new(),
            refusing: None,
            rejecting: false,
            closed_due: false,
            close_due: false,
        }
    }

    /// Posts every buffer that receives.
    pub(super) fn post_all(&mut self) -> Result<(), Error> {
        let receiving = self.frames.receiving as u16;
        let there = match self.frames.is_grown() {
            true => 0..receiving,
            false => receiving..receiving + GREETINGS as u16,
        };
        for buffer in there {
            self.post(buffer);
        }
        match self.end {
            None => Ok(()),
            Some(_) => Err(Error::Transport {
                provider: "ofi",
                call: "fi_recv",
                why: "a fresh endpoint takes no receives".into(),
            }),
        }
    }

    /// The other end has proved to be of this job: it gets the buffers that a connection has.
    pub(super) fn grow(&mut self, fabric: &Fabric, budget: &Budget) -> Result<(), Error> {
        self.frames.grow(fabric, budget)?;
        self.free = (0..self.frames.sending as u16).collect();
        self.copied = self.frames.send_size - HEAD;
        self.post_all()
    }

    fn post(&mut self, buffer: u16) {
        let (to, len) = self.frames.receive(usize::from(buffer));
        let desc = self.frames.receive_desc(usize::from(buffer));
        let context = context(self.id, false, buffer);
        // SAFETY: the buffer has no user: it was never posted, or what came in it was dealt with.
        let code = unsafe { self.ep.recv(to, len, desc, context) };
        if code != 0 {
            // There are never more receives than the queue holds, so this is no shortage.
            self.lost();
        }
    }

    /// The buffer of a frame is free again: it is posted, and its credit goes back.
    pub(super) fn release(&mut self, buffer: u16, kind: Kind) {
        self.flow.freed(kind.class());
        // Those for greetings are used once.
        if self.end != Some(Fault::Lost) && usize::from(buffer) < self.frames.receiving {
            self.post(buffer);
        }
    }

    /// Sends a frame with `len` bytes that `fill` writes. False if it has to wait.
    pub(super) fn transmit(
        &mut self,
        kind: Kind,
        head: Head,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> bool {
        debug_assert!(len <= self.copied);
        let Some((buffer, credits)) = self.begin(kind, head, len) else { return false };
        let memory = self.frames.send(usize::from(buffer));
        // SAFETY: inside the buffer.
        fill(unsafe { memory.add(HEAD) });
        // The end that closes has to see when its last words are out.
        if HEAD + len <= self.inject && !matches!(kind, Kind::Close | Kind::Closed | Kind::Hello) {
            // SAFETY: the bytes are read before the call returns.
            let code = unsafe { self.ep.inject(memory, HEAD + len) };
            let went = self.account(kind, credits, code);
            if went {
                self.free.push(buffer);
            }
            return went;
        }
        // SAFETY: the buffer is not touched until its completion is read.
        let code = unsafe {
            let desc = self.frames.send_desc(usize::from(buffer));
            self.ep.send(memory, HEAD + len, desc, context(self.id, true, buffer))
        };
        let went = self.account(kind, credits, code);
        self.under_way += usize::from(went);
        went
    }

    /// Sends a frame with `len` bytes from these places, which stay as they are until its completion was read. The buffer
    /// that the frame is known by, or `None` if it has to wait.
    pub(super) fn transmit_uncopied(
        &mut self,
        kind: Kind,
        head: Head,
        len: usize,
        places: &[RawSegment],
    ) -> Option<u16> {
        debug_assert!(len <= self.room && places.len() <= self.most_places);
        let (buffer, credits) = self.begin(kind, head, len)?;
        let start = RawSegment {
            addr: self.frames.send(usize::from(buffer)),
            len: HEAD as u32,
            handle: viaduct_via::MemHandle::NONE,
        };
        // SAFETY: as above; memory of a posted descriptor stays until it is back, and it is not given back before.
        let code = unsafe { self.ep.send_gathered(&start, places, context(self.id, true, buffer)) };
        let went = self.account(kind, credits, code);
        self.under_way += usize::from(went);
        went.then_some(buffer)
    }

    /// A buffer with the header of a frame in it, and the credits that it gives back. `None` if the frame has to wait.
    fn begin(&mut self, kind: Kind, mut head: Head, len: usize) -> Option<(u16, Window)> {
        let class = kind.class();
        if !self.flow.may_send(class) {
            return None;
        }
        let buffer = self.free.last().copied()?;
        let credits = self.flow.sent(class);
        head.data_credits = credits.data.into();
        head.service_credits = credits.service.into();
        head.sequence = self.sequence_out.into();
        head.length = (len as u32).into();
        head.acked = self.received.into();
        if let Some(status) = self.refused {
            head.flags |= FAILED;
            head.status = status as u8;
        }
        let memory = self.frames.send(usize::from(buffer));
        // SAFETY: the buffer is not under way, and has room for a header.
        unsafe { std::ptr::copy_nonoverlapping(head.as_bytes().as_ptr(), memory, HEAD) };
        Some((buffer, credits))
    }

    /// What libfabric said to the frame begun last. False if it did not go.
    fn account(&mut self, kind: Kind, credits: Window, code: isize) -> bool {
        if code != 0 {
            self.flow.unsent(kind.class(), credits);
            if code != -(FI_EAGAIN as isize) {
                self.lost();
            }
            return false;
        }
        self.free.pop();
        self.sequence_out = self.sequence_out.wrapping_add(1);
        self.said = viaduct_os::clock::now_ns();
        self.ack_due = false;
        true
    }

    /// A frame without content.
    pub(super) fn signal(&mut self, kind: Kind) -> bool {
        self.transmit(kind, Head::new(kind), 0, |_| {})
    }

    /// The buffer of a frame that went is free again.
    pub(super) fn on_sent(&mut self, buffer: u16) {
        self.under_way -= 1;
        // Those for greetings are too small for anything else.
        if usize::from(buffer) < self.frames.sending || !self.frames.is_grown() {
            self.free.push(buffer);
        }
        self.news |= self.uncopied.on_sent(buffer);
        self.room_again();
    }

    /// libfabric could not send a frame, and has let go of it.
    pub(super) fn on_unsent(&mut self, buffer: u16) {
        self.uncopied.on_unsent(buffer);
        self.news = true;
    }

    /// There is room that was not there before.
    fn room_again(&mut self) {
        if self.outgoing.is_empty() {
            self.news |= std::mem::take(&mut self.blocked);
        }
    }

    /// Nothing that we sent is under way any more.
    pub(super) fn all_sent(&self) -> bool {
        self.under_way == 0
    }

    /// Checks the header of a frame that came, and takes what every header carries.
    pub(super) fn check(&mut self, kind: Kind, head: &Head) -> Result<(), Error> {
        if head.sequence.get() != self.sequence_in {
            return Err(Error::Protocol("a frame is missing"));
        }
        self.sequence_in = self.sequence_in.wrapping_add(1);
        let credits = Window { data: head.data_credits.get(), service: head.service_credits.get() };
        self.flow.received(kind.class(), credits)?;
        if credits != Window::default() {
            self.room_again();
        }
        // Only a receiver of this level says anything of single messages, and not before the connection stands.
        let stands = matches!(self.stage, Stage::Open | Stage::Closing { .. });
        let reports = self.ours.reliability == Reliability::ReliableReception && stands;
        if !reports && (head.is(FAILED) || head.acked.get() != 0) {
            return Err(Error::Protocol("a report on a message that no report is due for"));
        }
        let more = head.acked.get().wrapping_sub(self.acked);
        if more > self.acks_awaited.wrapping_sub(self.acked) {
            return Err(Error::Protocol("more messages acknowledged than were sent"));
        }
        if more > 0 {
            self.acked = head.acked.get();
            self.news = true;
        }
        if head.is(FAILED) && self.failed.is_none() {
            let status = Status::from_number(head.status).filter(|s| !s.is_success());
            self.failed = Some(status.ok_or(Error::Protocol("no such status"))?);
            self.news = true;
        }
        Ok(())
    }

    /// The connection is gone; whatever the transport says later is of no interest.
    pub(super) fn lost(&mut self) {
        self.ends(Fault::Lost);
    }

    /// The connection is over for this reason, unless it was before.
    pub(super) fn ends(&mut self, fault: Fault) {
        if self.end.is_none() {
            self.end = Some(fault);
            self.news = true;
        }
    }

    /// Sends whatever is due, as far as there is room. Whether libfabric will say that something of it is done.
    pub(super) fn flush(&mut self, regions: &Regions) -> bool {
        let before = self.under_way;
        self.flush_all(regions);
        self.under_way > before
    }

    fn flush_all(&mut self, regions: &Regions) {
        if self.end == Some(Fault::Lost) || !self.flush_greetings() {
            return;
        }
        if self.closed_due && self.signal(Kind::Closed) {
            self.closed_due = false;
        }
        if !self.stage.is_open() {
            if self.close_due && self.signal(Kind::Close) {
                self.close_due = false;
            }
            return;
        }
        if !self.replies.is_empty() {
            self.send_replies(regions);
        }
        self.send_on();
        if self.nudge_due && self.outgoing.is_empty() && self.signal(Kind::Nudge) {
            self.nudge_due = false;
        }
        if self.ack_due {
            self.signal(Kind::Ack);
        }
        if self.flow.owes_much() {
            self.signal(Kind::Credit);
        }
    }

    /// Sends a greeting, now or later.
    pub(super) fn say(&mut self, hello: &Hello) {
        self.greetings.push_back(*hello);
        self.flush_greetings();
    }

    /// Whether all are out.
    fn flush_greetings(&mut self) -> bool {
        while let Some(hello) = self.greetings.front().copied() {
            if !self.greet(&hello) {
                return false;
            }
            self.greetings.pop_front();
        }
        true
    }

    fn greet(&mut self, hello: &Hello) -> bool {
        let bytes = hello.as_bytes();
        self.transmit(Kind::Hello, Head::new(Kind::Hello), bytes.len(), |to| {
            // SAFETY: a greeting fits into the smallest frame.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        })
    }
}
