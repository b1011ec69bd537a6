//! Moving a connection on between its VI's queues and the wire: sends into frames, frames into receive descriptors,
//! acknowledgements and outcomes into completions.

use viaduct_via::{Error, Fault, Op, Queues, Reliability, Status, Work};

use super::lane::{Held, Lane, Partial};
use super::mem::Regions;
use super::rdma::{Flight, Into, Waits, gather, scatter};
use super::wire::{FIRST, HEAD, Head, Kind, LAST, SWAP};

/// How far handing over a descriptor came.
pub(super) enum Handed {
    /// All of it is out; nobody has to say anything to it.
    Done,
    /// All of it is out; a completion will follow.
    Pending,
    /// There is no room for the rest now.
    Busy,
    /// The peer has no use for the rest.
    Failed(Status),
}

impl Lane {
    /// Hands a send-queue descriptor over, or goes on with it.
    pub(super) fn hand_over(&mut self, work: &Work, index: u32) -> Handed {
        if let Some(status) = self.failed_halfway() {
            return Handed::Failed(status);
        }
        if self.end.is_some() {
            return Handed::Busy; // poll reports the break and everything is flushed
        }
        let all_out = match work.op {
            Op::Send => self.pieces(Kind::Data, work),
            Op::RdmaWrite => self.pieces(Kind::Write, work) && self.immediate_after_write(work),
            _ => self.fetch(work),
        };
        if !all_out {
            self.blocked = true;
            return Handed::Busy;
        }
        let number = self.partial.take().unwrap_or_default().number;
        let reception = self.ours.reliability == Reliability::ReliableReception;
        let message = work.op == Op::Send || work.immediate.is_some();
        let (rdma, acknowledged) = (work.op.is_rdma(), reception && message);
        if acknowledged {
            self.acks_awaited = self.acks_awaited.wrapping_add(1);
        }
        if rdma {
            // With both to wait for, the descriptor is done with the second; the first only tells of a refusal.
            let waits = Waits::Reply { number, into: Into::of(work), done: None, half: acknowledged };
            self.flights.push_back(Flight { index, length: work.total, waits });
            if acknowledged {
                self.flights.push_back(Flight { index, length: work.total, waits: Waits::Ack });
            }
            return Handed::Pending;
        }
        if !acknowledged && self.flights.is_empty() {
            return Handed::Done;
        }
        let waits = if acknowledged { Waits::Ack } else { Waits::Turn };
        self.flights.push_back(Flight { index, length: work.total, waits });
        Handed::Pending
    }

    /// Sends a few bytes by value.
    pub(super) fn hand_over_inline(&mut self, bytes: &[u8], immediate: Option<u32>) -> bool {
        let mut head = Head::new(Kind::Data);
        head.flags = FIRST | LAST;
        head.total = (bytes.len() as u32).into();
        head.set_immediate(immediate);
        let sent = self.transmit(Kind::Data, head, bytes.len(), |to| {
            // SAFETY: there is room for a frame's payload, which is more than can be sent inline.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        });
        self.blocked |= !sent;
        if sent && self.ours.reliability == Reliability::ReliableReception {
            self.acks_awaited = self.acks_awaited.wrapping_add(1);
            self.flights.push_back(Flight { index: u32::MAX, length: 0, waits: Waits::Ack });
        }
        sent
    }

    /// Sends the pieces of a message or of an RDMA write. True when the last one is out.
    fn pieces(&mut self, kind: Kind, work: &Work) -> bool {
        let mut partial = match self.partial {
            Some(partial) => partial,
            None => Partial { number: self.number(work), ..Partial::default() },
        };
        while !partial.written {
            let len = (work.total - partial.offset).min(self.room as u32);
            let last = partial.offset + len == work.total;
            let mut head = Head::new(kind);
            head.flags = if partial.offset == 0 { FIRST } else { 0 } | if last { LAST } else { 0 };
            head.total = work.total.into();
            head.offset = partial.offset.into();
            if kind == Kind::Data {
                head.set_immediate(work.immediate);
            } else {
                head.number = partial.number.into();
                head.handle = work.remote.handle.number().into();
                head.address = work.remote.addr.into();
            }
            let sent = self.transmit(kind, head, len as usize, |to| {
                // SAFETY: posted segments are valid until the descriptor is back; the piece lies inside them and fits.
                unsafe { gather(&work.segments, partial.offset as usize, to, len as usize) };
            });
            if sent {
                partial.offset += len;
                partial.written = last;
            }
            self.partial = Some(partial);
            if !sent {
                return false;
            }
        }
        true
    }

    /// Says that an RDMA write with immediate data is out.
    fn immediate_after_write(&mut self, work: &Work) -> bool {
        if work.immediate.is_none() {
            return true;
        }
        let mut head = Head::new(Kind::Written);
        head.total = work.total.into();
        head.set_immediate(work.immediate);
        self.transmit(Kind::Written, head, 0, |_| {})
    }

    /// Asks for a read or an atomic operation.
    fn fetch(&mut self, work: &Work) -> bool {
        let number = self.partial.map_or_else(|| self.number(work), |p| p.number);
        self.partial = Some(Partial { number, ..Partial::default() });
        let (kind, len) = if work.op.is_atomic() { (Kind::Atomic, 16) } else { (Kind::Read, 0) };
        let mut head = Head::new(kind);
        head.flags = if work.op == Op::CompareSwap { SWAP } else { 0 };
        head.number = number.into();
        head.total = work.total.into();
        head.handle = work.remote.handle.number().into();
        head.address = work.remote.addr.into();
        let [a, b] = work.operands.map(u64::to_le_bytes);
        let operands: [u8; 16] = [a, b].concat().try_into().expect("twice eight bytes");
        self.transmit(kind, head, len, |to| {
            // SAFETY: there is room for a frame's payload.
            unsafe { std::ptr::copy_nonoverlapping(operands.as_ptr(), to, len) };
        })
    }

    fn number(&mut self, work: &Work) -> u32 {
        if work.op.is_rdma() {
            self.next_number = self.next_number.wrapping_add(1);
        }
        self.next_number
    }

    /// A frame came on an open connection. The buffer is free again unless it is kept for the owner.
    pub(super) fn took(
        &mut self,
        buffer: u16,
        kind: Kind,
        head: Head,
        payload: &[u8],
        regions: &Regions,
    ) -> Result<(), Error> {
        match kind {
            Kind::Data | Kind::Written if !self.deaf => {
                self.inbox.push_back(Held { buffer, kind, head });
                self.news = true;
                return Ok(());
            }
            Kind::Write | Kind::Read | Kind::Atomic => self.serve(kind, &head, payload, regions)?,
            Kind::Reply => self.replied(&head, payload)?,
            Kind::Close => {
                self.ends(Fault::Disconnected);
                self.closed_due = true;
            }
            Kind::Data | Kind::Written | Kind::Ack | Kind::Credit | Kind::Alive => {}
            Kind::Hello | Kind::Closed => return Err(Error::Protocol("a frame out of turn")),
        }
        self.release(buffer, kind);
        Ok(())
    }

    /// Everything that concerns the queues of the VI.
    pub(super) fn poll(&mut self, queues: &mut Queues<'_>) {
        self.news = false;
        if self.settle(queues)
            && self.deliver(queues)
            && self.failed_halfway().is_none()
            && let Some(fault) = self.end
        {
            queues.broken(fault);
        }
    }

    /// How the message failed that is only partly out: whoever goes on with it is told.
    fn failed_halfway(&self) -> Option<Status> {
        self.failed
            .filter(|_| self.partial.is_some() && self.flights.is_empty() && self.acks_used == self.acked)
    }

    /// Completes descriptors of the send queue, in order. False if one of them breaks the connection.
    fn settle(&mut self, queues: &mut Queues<'_>) -> bool {
        while let Some(flight) = self.flights.front() {
            let (index, length) = (flight.index, flight.length);
            let status = match &flight.waits {
                Waits::Turn => Status::Success,
                Waits::Ack if self.acks_used != self.acked => {
                    self.acks_used = self.acks_used.wrapping_add(1);
                    Status::Success
                }
                Waits::Ack => match self.failed {
                    Some(status) => status,
                    None => return true,
                },
                Waits::Reply { done: Some(status), .. } => *status,
                Waits::Reply { .. } => return true,
            };
            let half = matches!(flight.waits, Waits::Reply { half: true, .. });
            self.flights.pop_front();
            if status.is_success() {
                if !half {
                    queues.complete_send(index, status, length);
                }
                continue;
            }
            queues.complete_send(index, status, 0);
            if self.ours.reliability.is_reliable() {
                queues.broken(Fault::Remote(status));
                return false;
            }
        }
        true
    }

    /// Puts what arrived into receive descriptors. False if something stays where it is, or the connection is over.
    fn deliver(&mut self, queues: &mut Queues<'_>) -> bool {
        while let Some(held) = self.inbox.front() {
            let (kind, head, buffer) = (held.kind, held.head, held.buffer);
            if self.skipping {
                self.skipping = !head.is(LAST);
                self.drop_front();
                continue;
            }
            if queues.must_hold() {
                // Sends that nobody will acknowledge any more do not wait until there is room.
                if let Some(fault) = self.end.filter(|_| !self.flights.is_empty()) {
                    queues.broken(fault);
                }
                return false;
            }
            let first = self.assembled.is_none();
            if first != (kind == Kind::Written || head.is(FIRST)) {
                queues.broken(Fault::Protocol);
                return false;
            }
            let Some(work) = queues.next_recv() else {
                // A receive completed in this very poll may be posted again before the next message is judged.
                if queues.received() > 0 {
                    return false;
                }
                if self.ours.reliability.is_reliable() {
                    self.refuse(Status::RemoteDescriptorError);
                    queues.broken(Fault::ReceiveQueueEmpty);
                    return false;
                }
                queues.dropped();
                self.skipping = kind == Kind::Data && !head.is(LAST);
                self.drop_front();
                continue;
            };
            let total = head.total.get();
            let status = match work.verdict {
                Status::Success if kind == Kind::Data && total > work.total => Status::LengthError,
                verdict => verdict,
            };
            if !status.is_success() {
                let op = if kind == Kind::Data { Op::Receive } else { Op::RemoteRdmaWrite };
                queues.complete_recv(op, status, 0, head.immediate());
                self.skipping = kind == Kind::Data && !head.is(LAST);
                self.drop_front();
                if self.ours.reliability.is_reliable() {
                    self.refuse(Status::RemoteDescriptorError);
                    queues.broken(Fault::TooLong);
                    return false;
                }
                continue;
            }
            if kind == Kind::Data {
                if head.offset.get() != self.assembled.unwrap_or(0) {
                    queues.broken(Fault::Protocol);
                    return false;
                }
                // SAFETY: the frame has arrived and its buffer was not posted again.
                let payload =
                    unsafe { self.frames.arrived(usize::from(buffer), HEAD, head.length.get() as usize) };
                // SAFETY: a posted descriptor is valid until it is back; the message fits into it.
                unsafe { scatter(&work.segments, head.offset.get() as usize, payload) };
                self.assembled = Some(head.offset.get() + head.length.get());
            }
            self.drop_front();
            if kind == Kind::Written || head.is(LAST) {
                self.assembled = None;
                let op = if kind == Kind::Data { Op::Receive } else { Op::RemoteRdmaWrite };
                queues.complete_recv(op, Status::Success, total, head.immediate());
                if self.ours.reliability == Reliability::ReliableReception {
                    self.received = self.received.wrapping_add(1);
                    self.ack_due = true;
                }
            }
        }
        true
    }

    /// The peer is told which message failed.
    fn refuse(&mut self, status: Status) {
        if self.ours.reliability == Reliability::ReliableReception {
            self.refused = Some(status);
            self.ack_due = true;
        }
    }

    fn drop_front(&mut self) {
        if let Some(held) = self.inbox.pop_front() {
            self.release(held.buffer, held.kind);
        }
    }
}
