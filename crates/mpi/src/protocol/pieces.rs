//! Eager messages that are longer than a packet: the first piece has the envelope, the others follow it in order.
//!
//! The sender does not wait for the receiver, so a message of this kind costs no more than its copies, and those overlap: the
//! receiver takes a piece out while the sender writes the next. From one peer one such message comes at a time. A message
//! that no receive waits for is put together in memory of its own, within the room of its sender.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use super::core::{Core, Early, Manner, Payload, Port, Violation};
use super::packet::{self, Kind, Packet};
use super::peer::Stream;
use super::receive::{done_with, envelope_of};
use super::requests::{Done, Matched, Request, Status};
use super::soon::Soon;
use crate::matching::Envelope;
use crate::raw::{self, Span};

/// A message that comes in pieces.
#[derive(Debug)]
pub(super) struct Incoming {
    envelope: Envelope,
    len: usize,
    got: usize,
    into: Target,
}

#[derive(Debug)]
enum Target {
    /// The memory of a receive.
    Receive(Request),
    /// Memory of its own, and the receive that waits until all of it is there.
    Kept(Arc<Kept>, Option<Request>),
}

/// A message that came before its receive, or the first pieces of it.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) bytes: Box<[AtomicU8]>,
    got: AtomicUsize,
}

impl Kept {
    fn is_whole(&self) -> bool {
        self.got.load(Ordering::Relaxed) == self.bytes.len()
    }

    fn add(&self, at: usize, piece: &[AtomicU8]) {
        raw::copy_between(piece, &self.bytes[at..at + piece.len()]);
        self.got.store(at + piece.len(), Ordering::Relaxed);
    }
}

impl Core {
    /// Sends a message in pieces, if there are credits for all of them. It has [room](super::flow::Flow::has_room).
    pub(super) fn send_pieces_now(
        &mut self,
        port: &mut impl Port,
        span: &Span,
        to: usize,
        envelope: &Envelope,
        manner: Manner,
    ) -> bool {
        let private = manner != Manner::Nonblocking;
        let (len, most) = (span.bytes(), self.limits.piece);
        // What lies in memory that the receiver can read is left there.
        if !self.peers[to].flow.may_send_many(len.div_ceil(most)) || port.place(to, span, private).is_some() {
            return false;
        }
        let mut at = self.send_eager(port, span, to, envelope, None);
        while at < len {
            at = self.send_piece(port, span, to, at);
        }
        true
    }

    /// Sends one more piece of a message. Returns where the next one begins.
    fn send_piece(&mut self, port: &mut impl Port, span: &Span, to: usize, at: usize) -> usize {
        let len = self.limits.piece.min(span.bytes() - at);
        let packet = Packet { number: at as u64, ..Packet::new(Kind::More) };
        self.transmit(port, to, packet, Payload::Part { span, from: at, len });
        at + len
    }

    /// Sends the next piece of the message that is being sent in pieces.
    pub(super) fn send_more(&mut self, port: &mut impl Port, to: usize, mut stream: Stream) {
        let Some(sending) = self.requests.sending(stream.request) else { return };
        let span = sending.span.clone();
        stream.at = self.send_piece(port, &span, to, stream.at);
        if stream.at < stream.end {
            self.peers[to].pieces = Some(stream);
        } else {
            self.requests.finish(stream.request, Done::well(Status::EMPTY));
        }
    }

    /// The first piece of a message came.
    pub(super) fn take_first_piece(
        &mut self,
        from: usize,
        packet: &Packet,
        payload: &[AtomicU8],
        soon: Option<&mut Soon<'_>>,
    ) -> Result<(), Violation> {
        let envelope = envelope_of(packet)?;
        let len = usize::try_from(packet.number).unwrap_or(usize::MAX);
        let fits = len <= self.limits.eager && !payload.is_empty() && payload.len() < len;
        if !fits || packet.flags & packet::SYNCHRONOUS != 0 || self.peers[from].incoming.is_some() {
            return Err(Violation("an eager message of another length than it says"));
        }
        let receive = match (self.posted.take(&envelope), soon) {
            (Some(index), _) => self.requests.request_at(index),
            (None, Some(soon)) if soon.takes(&envelope) => Some(self.begin(soon, from)),
            _ => None,
        };
        let into = match receive {
            Some(request) => {
                self.bind_pieces(request, from, &envelope, len);
                Target::Receive(request)
            }
            None => {
                let kept = Arc::new(Kept { bytes: raw::fresh(len), got: AtomicUsize::new(0) });
                self.peers[from].counts.early += 1;
                self.keep_early(envelope, Early::Pieces { peer: from, kept: kept.clone() });
                Target::Kept(kept, None)
            }
        };
        self.peers[from].incoming = Some(Incoming { envelope, len, got: 0, into });
        self.add_piece(from, payload);
        Ok(())
    }

    /// Another piece came.
    pub(super) fn take_more(
        &mut self,
        port: &mut impl Port,
        from: usize,
        packet: &Packet,
        payload: &[AtomicU8],
    ) -> Result<(), Violation> {
        let wrong = Violation("a piece of a message that is not under way");
        let incoming = self.peers[from].incoming.as_ref().ok_or(wrong)?;
        let in_order = packet.number == incoming.got as u64 && payload.len() <= incoming.len - incoming.got;
        if !in_order || payload.is_empty() {
            return Err(wrong);
        }
        if self.add_piece(from, payload)
            && let Some(whole) = self.peers[from].incoming.take()
        {
            self.end_pieces(port, from, whole);
        }
        Ok(())
    }

    /// Puts a piece to the others. Whether it was the last.
    fn add_piece(&mut self, from: usize, piece: &[AtomicU8]) -> bool {
        let Some(incoming) = &mut self.peers[from].incoming else { return false };
        let at = incoming.got;
        incoming.got += piece.len();
        match &incoming.into {
            // A receive that has failed meanwhile takes nothing.
            Target::Receive(request) => {
                if let Some(receiving) = self.requests.receive_of(*request) {
                    let wanted = receiving.span.bytes().saturating_sub(at).min(piece.len());
                    receiving.span.unpack(at.min(receiving.span.bytes()), &piece[..wanted]);
                }
            }
            Target::Kept(kept, _) => kept.add(at, piece),
        }
        incoming.got == incoming.len
    }

    /// All pieces are there.
    fn end_pieces(&mut self, port: &mut impl Port, from: usize, whole: Incoming) {
        match whole.into {
            Target::Receive(request) => {
                if let Some(receiving) = self.requests.receive_of(request) {
                    let want = whole.len.min(receiving.span.bytes());
                    self.requests.finish(request.index, done_with(&whole.envelope, whole.len, want));
                }
                self.consumed(port, from, whole.len, None);
            }
            Target::Kept(kept, Some(request)) => match self.requests.receive_of(request) {
                Some(_) => self.deliver(port, request.index, from, &whole.envelope, &kept.bytes, None),
                None => self.consumed(port, from, whole.len, None),
            },
            Target::Kept(_, None) => {}
        }
    }

    /// A receive meets a message of which some pieces may be missing.
    pub(super) fn accept_pieces(
        &mut self,
        port: &mut impl Port,
        index: u32,
        envelope: &Envelope,
        (peer, kept): (usize, Arc<Kept>),
    ) {
        self.early_bytes -= kept.bytes.len();
        if kept.is_whole() {
            return self.deliver(port, index, peer, envelope, &kept.bytes, None);
        }
        let Some(request) = self.requests.request_at(index) else { return };
        if let Some(Incoming { into: Target::Kept(own, waiter), .. }) = &mut self.peers[peer].incoming
            && Arc::ptr_eq(own, &kept)
        {
            *waiter = Some(request);
            return self.bind_pieces(request, peer, envelope, kept.bytes.len());
        }
        // Its sender is gone, and the rest will not come.
        let error = Some(self.gone(peer));
        self.requests.finish(index, Done { status: Status::EMPTY, error });
    }

    /// Notes which message a receive gets. No packet of data belongs to it, whatever a peer says.
    fn bind_pieces(&mut self, request: Request, peer: usize, envelope: &Envelope, len: usize) {
        if let Some(receiving) = self.requests.receive_of(request) {
            let want = len.min(receiving.span.bytes());
            let matched = Matched { peer, envelope: *envelope, len, want, got: want, request: u32::MAX };
            (receiving.entry, receiving.matched) = (None, Some(matched));
        }
    }
}
