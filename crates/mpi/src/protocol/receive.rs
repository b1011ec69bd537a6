//! The receiving half of the protocol: packets that bring messages, and messages that meet their receives.

use std::sync::atomic::{AtomicU8, Ordering};

use super::core::{Core, Early, Port, Pull, Pulling, Violation};
use super::flow::cost;
use super::packet::{self, Kind, Packet};
use super::peer::PeerState;
use super::requests::{Done, Matched, Status};
use super::soon::Soon;
use crate::error::{Class, Error};
use crate::matching::Envelope;
use crate::raw;

/// Bytes of a place in the payload of a start.
pub const PLACE: usize = 12;

impl Core {
    #[inline]
    pub(super) fn take_eager(
        &mut self,
        port: &mut impl Port,
        from: usize,
        packet: &Packet,
        payload: &[AtomicU8],
        soon: Option<&mut Soon<'_>>,
    ) -> Result<(), Violation> {
        if packet.number != payload.len() as u64 {
            return self.take_first_piece(from, packet, payload, soon);
        }
        let envelope = envelope_of(packet)?;
        let waits = (packet.flags & packet::SYNCHRONOUS != 0).then_some(packet.request);
        match self.posted.take(&envelope) {
            Some(index) => self.deliver(port, index, from, &envelope, payload, waits),
            None => {
                if let Some(soon) = soon.filter(|soon| soon.takes(&envelope)) {
                    soon.fill(&envelope, payload);
                    self.consumed(port, from, payload.len(), waits);
                    return Ok(());
                }
                let bytes = raw::copied(payload);
                self.peers[from].counts.early += 1;
                self.keep_early(envelope, Early::Whole { peer: from, bytes, waits });
            }
        }
        Ok(())
    }

    pub(super) fn take_start(
        &mut self,
        port: &mut impl Port,
        from: usize,
        packet: &Packet,
        payload: &[AtomicU8],
        soon: Option<&mut Soon<'_>>,
    ) -> Result<(), Violation> {
        let envelope = envelope_of(packet)?;
        let place = (packet.flags & packet::PULL != 0).then(|| place_of(payload)).transpose()?;
        let len = usize::try_from(packet.number).map_err(|_| Violation("a message of endless length"))?;
        let early = Early::Announced { peer: from, len, request: packet.request, place };
        let soon = soon.filter(|soon| soon.takes(&envelope));
        match (self.posted.take(&envelope), soon) {
            (Some(index), _) => self.accept(port, index, envelope, early),
            (None, Some(soon)) => {
                let request = self.begin(soon, from);
                self.accept(port, request.index, envelope, early);
            }
            (None, None) => {
                self.peers[from].counts.early += 1;
                self.keep_early(envelope, early);
            }
        }
        Ok(())
    }

    pub(super) fn take_data(
        &mut self,
        from: usize,
        packet: &Packet,
        payload: &[AtomicU8],
    ) -> Result<(), Violation> {
        let unasked = Violation("data that was not asked for");
        let receiving = self.requests.receiving(packet.request).ok_or(unasked)?;
        let matched = receiving.matched.as_mut().filter(|matched| matched.peer == from).ok_or(unasked)?;
        let in_order = packet.number == matched.got as u64 && payload.len() <= matched.want - matched.got;
        if !in_order || payload.is_empty() {
            return Err(unasked);
        }
        receiving.span.unpack(matched.got, payload);
        matched.got += payload.len();
        if matched.got == matched.want {
            let done = done_with(&matched.envelope, matched.len, matched.want);
            self.requests.finish(packet.request, done);
        }
        Ok(())
    }

    /// Bytes of a message were read out of its sender's memory; if not, they are asked for.
    pub fn pulled(&mut self, port: &mut impl Port, index: u32, well: bool) {
        let Some(receiving) = self.requests.receiving(index) else { return };
        let Some(matched) = receiving.matched else { return };
        if !well {
            return self.ask(port, index, &matched);
        }
        self.peers[matched.peer].counts.pulled += 1;
        self.have_read(port, index, &matched);
    }

    /// A receive has read its message, and the sender may write over it.
    fn have_read(&mut self, port: &mut impl Port, index: u32, matched: &Matched) {
        self.requests.finish(index, done_with(&matched.envelope, matched.len, matched.want));
        self.acknowledge(port, matched.peer, matched.request);
    }

    /// A receive meets a message that came early, or is announced now.
    pub(super) fn accept(&mut self, port: &mut impl Port, index: u32, envelope: Envelope, early: Early) {
        match early {
            Early::Whole { peer, bytes, waits } => {
                self.early_bytes -= bytes.len();
                self.deliver(port, index, peer, &envelope, &bytes, waits);
            }
            Early::Pieces { peer, kept } => self.accept_pieces(port, index, &envelope, (peer, kept)),
            Early::Own { request, len } => {
                let from = self.requests.sending(request).expect("kept until it is received").span.clone();
                let Some(receiving) = self.requests.receiving(index) else { return };
                let want = len.min(receiving.span.bytes());
                from.copy_to(&receiving.span, want);
                self.requests.finish(index, done_with(&envelope, len, want));
                self.requests.finish(request, Done::well(Status::EMPTY));
            }
            Early::Announced { peer, len, request, place } => {
                let Some(receiving) = self.requests.receiving(index) else { return };
                if self.peers[peer].state == PeerState::Lost {
                    let error = Some(self.gone(peer));
                    return self.requests.finish(index, Done { status: Status::EMPTY, error });
                }
                let want = len.min(receiving.span.bytes());
                let matched = Matched { peer, envelope, len, want, got: 0, request };
                receiving.matched = Some(matched);
                receiving.entry = None;
                let span = receiving.span.clone();
                if want == 0 {
                    self.requests.finish(index, done_with(&envelope, len, want));
                    return self.acknowledge(port, peer, request);
                }
                let place = place.filter(|_| span.block().is_some());
                match place.map_or(Pulling::No, |place| port.pull(peer, place, &span, want, index)) {
                    Pulling::Started => {}
                    Pulling::Copied => {
                        self.peers[peer].counts.copied += 1;
                        self.have_read(port, index, &matched);
                    }
                    Pulling::No => self.ask(port, index, &matched),
                }
            }
        }
    }

    /// A receive gets all bytes of its message.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        port: &mut impl Port,
        index: u32,
        peer: usize,
        envelope: &Envelope,
        bytes: &[AtomicU8],
        waits: Option<u32>,
    ) {
        if let Some(receiving) = self.requests.receiving(index) {
            let want = bytes.len().min(receiving.span.bytes());
            receiving.span.unpack(0, &bytes[..want]);
            self.requests.finish(index, done_with(envelope, bytes.len(), want));
        }
        self.consumed(port, peer, bytes.len(), waits);
    }

    /// A receive has taken an eager message of this length.
    #[inline]
    pub(super) fn consumed(&mut self, port: &mut impl Port, peer: usize, len: usize, waits: Option<u32>) {
        if peer == self.me {
            self.own_bytes -= cost(len) as usize;
            return;
        }
        self.peers[peer].flow.consumed(len);
        match waits {
            Some(request) => self.acknowledge(port, peer, request),
            None => self.pump(port, peer),
        }
    }

    fn ask(&mut self, port: &mut impl Port, index: u32, matched: &Matched) {
        let packet = Packet {
            request: matched.request,
            context: index,
            number: matched.want as u64,
            ..Packet::new(Kind::Reply)
        };
        self.control(port, matched.peer, packet);
    }

    fn acknowledge(&mut self, port: &mut impl Port, peer: usize, request: u32) {
        self.control(port, peer, Packet { request, ..Packet::new(Kind::Ack) });
    }
}

impl Pull {
    /// As bytes of a packet.
    pub fn to_bytes(self) -> [u8; PLACE] {
        let mut bytes = [0; PLACE];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..].copy_from_slice(&self.handle.to_le_bytes());
        bytes
    }
}

fn place_of(payload: &[AtomicU8]) -> Result<Pull, Violation> {
    if payload.len() != PLACE {
        return Err(Violation("a place that is none"));
    }
    let byte = |at: usize| payload[at].load(Ordering::Relaxed);
    let address = u64::from_le_bytes(std::array::from_fn(byte));
    Ok(Pull { address, handle: u32::from_le_bytes(std::array::from_fn(|at| byte(8 + at))) })
}

#[inline]
pub(super) fn envelope_of(packet: &Packet) -> Result<Envelope, Violation> {
    if packet.tag < 0 || packet.source < 0 {
        return Err(Violation("a tag or a rank below 0"));
    }
    Ok(Envelope { context: packet.context, source: packet.source, tag: packet.tag })
}

/// How a receive ends for which a message of `len` bytes came, of which it took `want`.
#[inline]
pub(super) fn done_with(envelope: &Envelope, len: usize, want: usize) -> Done {
    let status = Status::of(envelope, want);
    let error = (want < len).then(|| {
        Error::new(Class::Truncate, format!("a message of {len} bytes came for a receive of {want}"))
    });
    Done { status, error }
}
