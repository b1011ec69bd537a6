//! The sending half of the protocol: first packets, streams of data, answers of receivers.

use std::any::Any;
use std::sync::Arc;

use super::core::{Core, Early, Manner, Payload, Port, Violation};
use super::flow::cost;
use super::packet::{self, Kind, Packet};
use super::peer::{Item, PeerState, Stream};
use super::requests::{Done, Request, Sending, Stage, Status, Work};
use crate::matching::Envelope;
use crate::raw::{self, Span};

impl Core {
    /// Sends a short message without a request, if that can be done now. False: use [`isend`](Self::isend).
    #[inline]
    pub fn send_now(
        &mut self,
        port: &mut impl Port,
        span: &Span,
        to: usize,
        envelope: &Envelope,
        manner: Manner,
    ) -> bool {
        let len = span.bytes();
        let peer = &mut self.peers[to];
        if len > self.limits.eager || !peer.is_clear() || !peer.flow.has_room(len) {
            return false;
        }
        if len > self.limits.piece {
            return self.send_pieces_now(port, span, to, envelope, manner);
        }
        self.send_eager(port, span, to, envelope, None);
        true
    }

    /// Sends a message.
    pub fn isend(
        &mut self,
        port: &mut impl Port,
        span: &Span,
        to: usize,
        envelope: Envelope,
        manner: Manner,
        keep: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Request {
        if to == self.me {
            return self.send_to_self(port, span, envelope, manner, keep);
        }
        if manner != Manner::Synchronous && self.send_now(port, span, to, &envelope, manner) {
            return Request::SENT;
        }
        if self.is_lost(to) {
            return self.failed(self.gone(to));
        }
        let sending = Sending { span: span.clone(), to, envelope, manner, stage: Stage::Queued };
        let request = self.requests.insert(Work::Send(sending), keep);
        let peer = &mut self.peers[to];
        peer.queue.push_back(Item::First(request.index));
        if peer.state == PeerState::Closed {
            peer.state = PeerState::Opening;
            port.connect(to);
        }
        self.pump(port, to);
        if !self.requests.is_done(request) {
            self.peers[to].counts.waited += u64::from(!self.peers[to].queue.is_empty());
        }
        request
    }

    /// Sends what waits for a peer, as far as there are credits.
    #[inline]
    pub fn pump(&mut self, port: &mut impl Port, to: usize) {
        let peer = &self.peers[to];
        if peer.is_idle() && !peer.flow.should_tell() {
            return;
        }
        self.pump_slowly(port, to);
    }

    #[inline(never)]
    fn pump_slowly(&mut self, port: &mut impl Port, to: usize) {
        while self.peers[to].state == PeerState::Open && self.peers[to].flow.may_send() {
            let peer = &mut self.peers[to];
            if let Some(stream) = peer.pieces.take() {
                self.send_more(port, to, stream);
            } else if let Some(item) = peer.queue.pop_front() {
                match item {
                    Item::Control(packet) => self.transmit(port, to, packet, Payload::None),
                    Item::First(index) => self.send_first(port, index),
                }
            } else if let Some(stream) = peer.streams.pop_front() {
                self.send_data(port, to, stream);
            } else {
                break;
            }
        }
        let peer = &mut self.peers[to];
        if peer.state == PeerState::Open && peer.flow.should_tell() {
            peer.counts.credits += 1;
            self.transmit(port, to, Packet::new(Kind::Credit), Payload::None);
        }
    }

    /// Sends an eager message, or its first piece. Returns where the next one begins.
    #[inline]
    pub(super) fn send_eager(
        &mut self,
        port: &mut impl Port,
        span: &Span,
        to: usize,
        envelope: &Envelope,
        waits: Option<u32>,
    ) -> usize {
        let (peer, len) = (&mut self.peers[to], span.bytes());
        peer.flow.spend(len);
        peer.counts.eager += 1;
        peer.counts.bytes += len as u64;
        let packet = Packet {
            flags: if waits.is_some() { packet::SYNCHRONOUS } else { 0 },
            request: waits.unwrap_or(0),
            number: len as u64,
            ..about(Kind::Eager, envelope)
        };
        let len = len.min(self.limits.piece);
        self.transmit(port, to, packet, Payload::Part { span, from: 0, len });
        len
    }

    /// Sends the first packet of a request: the message, or its envelope.
    fn send_first(&mut self, port: &mut impl Port, index: u32) {
        let Some(sending) = self.requests.sending(index) else { return };
        let (span, to, envelope) = (sending.span.clone(), sending.to, sending.envelope);
        let (manner, len) = (sending.manner, span.bytes());
        let synchronous = manner == Manner::Synchronous;
        // Only a message of one packet can be acknowledged, and only a longer one is worth a place.
        let packet = self.limits.piece.min(self.limits.eager);
        let short = len <= if synchronous { packet } else { self.limits.eager };
        let private = manner != Manner::Nonblocking || len > self.limits.eager;
        let place = if len > packet { port.place(to, &span, private) } else { None };
        if short && place.is_none() && self.peers[to].flow.has_room(len) {
            sending.stage = if synchronous { Stage::Announced } else { Stage::Streaming };
            let at = self.send_eager(port, &span, to, &envelope, synchronous.then_some(index));
            if at < len {
                self.peers[to].pieces = Some(Stream { request: index, target: 0, at, end: len });
            } else if !synchronous {
                self.requests.finish(index, Done::well(Status::EMPTY));
            }
            return;
        }
        sending.stage = Stage::Announced;
        let counts = &mut self.peers[to].counts;
        counts.rendezvous += 1;
        counts.no_room += u64::from(short && place.is_none());
        counts.bytes += len as u64;
        let packet = Packet {
            flags: if place.is_some() { packet::PULL } else { 0 },
            request: index,
            number: len as u64,
            ..about(Kind::Start, &envelope)
        };
        self.transmit(port, to, packet, place.map_or(Payload::None, Payload::Place));
    }

    fn send_data(&mut self, port: &mut impl Port, to: usize, mut stream: Stream) {
        let Some(sending) = self.requests.sending(stream.request) else { return };
        let span = sending.span.clone();
        let len = self.limits.piece.min(stream.end - stream.at);
        let packet = Packet { request: stream.target, number: stream.at as u64, ..Packet::new(Kind::Data) };
        self.transmit(port, to, packet, Payload::Part { span: &span, from: stream.at, len });
        stream.at += len;
        if stream.at < stream.end {
            self.peers[to].streams.push_back(stream);
        } else {
            self.requests.finish(stream.request, Done::well(Status::EMPTY));
        }
    }

    /// The receiver asks for the bytes of a message that it knows of.
    pub(super) fn take_reply(&mut self, from: usize, packet: &Packet) -> Result<(), Violation> {
        let announced = self.announced(from, packet.request)?;
        let end = usize::try_from(packet.number).unwrap_or(usize::MAX);
        if end > announced.span.bytes() {
            return Err(Violation("a reply for more than the message has"));
        }
        announced.stage = Stage::Streaming;
        let stream = Stream { request: packet.request, target: packet.context, at: 0, end };
        self.peers[from].streams.push_back(stream);
        Ok(())
    }

    /// The receiver has the message, or has met it.
    pub(super) fn take_ack(&mut self, from: usize, packet: &Packet) -> Result<(), Violation> {
        self.announced(from, packet.request)?;
        self.requests.finish(packet.request, Done::well(Status::EMPTY));
        Ok(())
    }

    /// The request that a peer answers.
    fn announced(&mut self, from: usize, index: u32) -> Result<&mut Sending, Violation> {
        let sending = self.requests.sending(index);
        sending
            .filter(|sending| sending.to == from && sending.stage == Stage::Announced)
            .ok_or(Violation("an answer to a message that was not announced"))
    }

    /// A message of this process to itself.
    fn send_to_self(
        &mut self,
        port: &mut impl Port,
        span: &Span,
        envelope: Envelope,
        manner: Manner,
        keep: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Request {
        self.peers[self.me].counts.bytes += span.bytes() as u64;
        let short = span.bytes() <= self.limits.eager
            && manner != Manner::Synchronous
            && self.own_bytes + cost(span.bytes()) as usize <= self.limits.room as usize;
        let receive = self.posted.take(&envelope);
        if short && receive.is_none() {
            let bytes = raw::fresh(span.bytes());
            span.pack(0, &bytes);
            self.own_bytes += cost(bytes.len()) as usize;
            self.keep_early(envelope, Early::Whole { peer: self.me, bytes, waits: None });
            return self.finished(Status::EMPTY);
        }
        let sending = Sending { span: span.clone(), to: self.me, envelope, manner, stage: Stage::Announced };
        let request = self.requests.insert(Work::Send(sending), keep);
        let own = Early::Own { request: request.index, len: span.bytes() };
        match receive {
            Some(receive) => self.accept(port, receive, envelope, own),
            None => self.keep_early(envelope, own),
        }
        request
    }
}

/// A packet with an envelope.
#[inline]
fn about(kind: Kind, envelope: &Envelope) -> Packet {
    Packet { context: envelope.context, source: envelope.source, tag: envelope.tag, ..Packet::new(kind) }
}
