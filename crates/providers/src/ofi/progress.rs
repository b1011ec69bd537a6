//! Moving a connection on towards its VI's queues: frames into receive descriptors, acknowledgements and outcomes into
//! completions. The other direction is in `outgoing`.

use viaduct_via::{Error, Fault, Op, Queues, Reliability, Status};

use super::lane::{Lane, WaitingFrame};
use super::mem::Regions;
use super::rdma::{Flight, Waits, scatter};
use super::wire::{FIRST, HEAD, Head, Kind, LAST};

/// How long sends of a connection that is over wait for libfabric to let go of their memory, before messages that wait
/// for room are given up for them.
const GIVE_UP_NS: u64 = 1_000_000_000;

impl Lane {
    /// A frame came on an open connection. The buffer is free again unless it is kept for the owner.
    pub(super) fn on_frame(
        &mut self,
        buffer: u16,
        kind: Kind,
        head: Head,
        payload: &[u8],
        regions: &Regions,
    ) -> Result<(), Error> {
        match kind {
            Kind::Data | Kind::Written if !self.rejecting => {
                self.inbox.push_back(WaitingFrame { buffer, kind, head });
                self.news = true;
                return Ok(());
            }
            Kind::Write | Kind::Read | Kind::Atomic => self.serve(kind, &head, payload, regions)?,
            Kind::Reply => self.on_reply(&head, payload)?,
            Kind::Close => {
                self.ends(Fault::Disconnected);
                self.closed_due = true;
            }
            // Rings the owner, and gives it nothing.
            Kind::Nudge => self.news = true,
            Kind::Data | Kind::Written | Kind::Ack | Kind::Credit | Kind::Alive => {}
            Kind::Hello | Kind::Closed => return Err(Error::Protocol("a frame out of turn")),
        }
        self.release(buffer, kind);
        Ok(())
    }

    /// Everything that concerns the queues of the VI.
    pub(super) fn poll(&mut self, queues: &mut Queues<'_>) {
        self.news = false;
        if self.complete_outgoing(queues)
            && self.deliver(queues)
            && let Some(fault) = self.end
        {
            queues.broken(fault);
        }
    }

    /// Completes descriptors of the send queue, in order. False if one of them breaks the connection.
    fn complete_outgoing(&mut self, queues: &mut Queues<'_>) -> bool {
        self.give_up_rest();
        while let Some(flight) = self.flights.front() {
            let (index, length) = (flight.index, flight.length);
            if !self.uncopied.is_done(flight.uncopied) {
                return true;
            }
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
                self.give_up_rest();
                continue;
            }
            // Its memory goes back to the program: what is not out yet stays here.
            if half && self.outgoing.front().is_some_and(|out| out.index == index) {
                self.outgoing.pop_front();
            }
            if !self.fail_send(queues, index, status) {
                return false;
            }
        }
        true
    }

    /// The peer has refused the message that is not all out: the rest is not sent, and the descriptor is done when
    /// libfabric has let go of its uncopied frames.
    fn give_up_rest(&mut self) {
        let its_turn = self.flights.is_empty() && self.acks_used == self.acked;
        if self.failed.is_some()
            && its_turn
            && let Some(out) = self.outgoing.pop_front()
        {
            let (index, uncopied) = (out.index, out.uncopied);
            self.flights.push_back(Flight { index, length: 0, waits: Waits::Ack, uncopied });
        }
    }

    /// A descriptor failed. False if that is the end of the connection.
    fn fail_send(&mut self, queues: &mut Queues<'_>, index: u32, status: Status) -> bool {
        queues.complete_send(index, status, 0);
        let over = self.ours.reliability.is_reliable();
        if over {
            queues.broken(Fault::Remote(status));
        }
        !over
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
                if let Some(fault) = self.end {
                    self.give_up_sends(fault, queues);
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
            let status = if kind == Kind::Data { work.judge_message(u64::from(total)) } else { work.verdict };
            if !status.is_success() {
                let op = if kind == Kind::Data { Op::Receive } else { Op::RemoteRdmaWrite };
                queues.complete_recv(op, status, 0, head.immediate());
                self.skipping = kind == Kind::Data && !head.is(LAST);
                self.drop_front();
                if self.ours.reliability.is_reliable() {
                    self.refuse(Status::RemoteDescriptorError);
                    queues.broken(Fault::of_receive(status));
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
                unsafe { scatter(work.segments(), head.offset.get() as usize, payload) };
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

    /// The connection is over, and messages of the peer's still wait for room: sends that will not be acknowledged any
    /// more do not wait for that, and the messages stay.
    #[cold]
    fn give_up_sends(&mut self, fault: Fault, queues: &mut Queues<'_>) {
        self.outgoing.clear();
        if !self.uncopied.is_let_go() {
            // Memory that libfabric may still read is not given back: it hands the frames back once the connection is shut
            // down, or the peer has taken them.
            let now = viaduct_os::clock::now_ns();
            let since = *self.gave_up.get_or_insert_with(|| {
                if fault == Fault::Lost {
                    self.ep.shut_down();
                }
                now
            });
            if now.saturating_sub(since) > GIVE_UP_NS {
                // The thread that waits for the send may be the one that would make room.
                queues.broken(fault);
            }
            queues.stalled();
            return;
        }
        self.flights.clear();
        queues.flush_sends();
    }

    /// The next frame tells the peer which message failed.
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
