//! A simulated network of ranks: packets between two ranks stay in order, everything else happens in a random one.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU8;

use super::core::{Core, Limits, Payload, Port, Pull, Pulling};
use super::packet::Packet;
use super::receive::PLACE;
use crate::raw::Span;

/// What a rank has given to the network, and what it asked of it.
#[derive(Default)]
pub(super) struct Wire {
    /// Packets by receiver.
    out: Vec<VecDeque<(Packet, Vec<u8>)>>,
    /// Connections that were asked for.
    wanted: Vec<usize>,
    /// Reads that were started: peer, request, how many bytes, where they go.
    pulls: VecDeque<(usize, Pull, Span, usize, u32)>,
    most: usize,
    /// Messages that peers may read.
    places: Vec<Span>,
    /// Whether memory can be read by peers.
    readable: bool,
}

impl Port for Wire {
    fn send(&mut self, to: usize, packet: &Packet, payload: Payload<'_>) {
        let bytes = match payload {
            Payload::None => Vec::new(),
            Payload::Part { span, from, len } => {
                assert!(len <= self.most, "{len} bytes in a packet");
                let mut bytes = vec![0; len];
                span.read(from, &mut bytes);
                bytes
            }
            Payload::Place(place) => place.to_bytes().to_vec(),
        };
        let header = Packet::parse(&packet.to_bytes()).expect("what was written is read");
        self.out[to].push_back((header, bytes));
    }

    fn connect(&mut self, to: usize) {
        self.wanted.push(to);
    }

    fn place(&mut self, _to: usize, span: &Span, _private: bool) -> Option<Pull> {
        span.block().filter(|_| self.readable)?;
        self.places.push(span.clone());
        Some(Pull { address: self.places.len() as u64 - 1, handle: 1 })
    }

    fn pull(&mut self, from: usize, place: Pull, into: &Span, len: usize, request: u32) -> Pulling {
        self.pulls.push_back((from, place, into.clone(), len, request));
        Pulling::Started
    }
}

impl Wire {
    /// Whether nothing was given to the network.
    pub(super) fn is_silent(&self) -> bool {
        self.out.iter().all(VecDeque::is_empty)
    }

    /// Takes the packets for a rank off the network.
    pub(super) fn take_all(&mut self, to: usize) -> Vec<(Packet, Vec<AtomicU8>)> {
        let atomics = |bytes: Vec<u8>| bytes.into_iter().map(AtomicU8::new).collect();
        self.out[to].drain(..).map(|(packet, bytes)| (packet, atomics(bytes))).collect()
    }
}

/// All ranks.
pub(super) struct Net {
    pub(super) ranks: Vec<(Core, Wire)>,
    limits: Limits,
    random: u64,
}

impl Net {
    pub(super) fn new(size: usize, limits: Limits, readable: bool, seed: u64) -> Net {
        let wire = || Wire {
            out: (0..size).map(|_| VecDeque::new()).collect(),
            most: limits.fragment,
            readable,
            ..Wire::default()
        };
        // The third rank sends shorter pieces, as one on another kind of CPU does.
        let of = |me: usize| Limits { piece: limits.piece - usize::from(me == 2) * 24, ..limits };
        let ranks = (0..size).map(|me| (Core::new(me, size, of(me)), wire())).collect();
        Net { ranks, limits, random: seed | 1 }
    }

    pub(super) fn draw(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as usize % below
    }

    /// One thing happens somewhere. False: there was nothing to happen at the place that was drawn.
    pub(super) fn step(&mut self) -> bool {
        let (me, peer) = (self.draw(self.ranks.len()), self.draw(self.ranks.len()));
        let kind = self.draw(4);
        match kind {
            0 => self.open(me),
            1 => self.pull(me),
            _ => self.deliver(peer, me),
        }
    }

    /// All connections that were asked for come about.
    pub(super) fn open_all(&mut self) {
        for me in 0..self.ranks.len() {
            while self.open(me) {}
        }
    }

    /// A connection that was asked for comes about, at both ends.
    fn open(&mut self, me: usize) -> bool {
        let Some(peer) = self.ranks[me].1.wanted.pop() else { return false };
        for (here, there) in [(me, peer), (peer, me)] {
            let (core, wire) = &mut self.ranks[here];
            core.opened(wire, there);
        }
        true
    }

    fn pull(&mut self, me: usize) -> bool {
        let Some((from, place, span, len, request)) = self.ranks[me].1.pulls.pop_front() else {
            return false;
        };
        assert_eq!(place.handle, 1);
        let well = self.draw(4) > 0;
        if well {
            self.ranks[from].1.places[place.address as usize].copy_to(&span, len);
        }
        let (core, wire) = &mut self.ranks[me];
        core.pulled(wire, request, well);
        true
    }

    fn deliver(&mut self, from: usize, to: usize) -> bool {
        let Some((packet, bytes)) = self.ranks[from].1.out[to].pop_front() else { return false };
        let payload: Vec<AtomicU8> = bytes.into_iter().map(AtomicU8::new).collect();
        let (core, wire) = &mut self.ranks[to];
        core.arrived(wire, from, &packet, &payload, None).expect("a packet of the protocol");
        core.reposted(wire, from);
        true
    }

    /// No rank has more packets on the way to another than that one has posted receives.
    pub(super) fn check(&self) {
        let most = usize::from(self.limits.credits);
        for (_, wire) in &self.ranks {
            assert!(wire.out.iter().all(|queue| queue.len() <= most), "more packets than receives");
        }
        for (core, _) in &self.ranks {
            let bound = self.limits.room as usize * self.ranks.len();
            assert!(core.early_bytes() <= bound, "{} bytes of early messages", core.early_bytes());
        }
    }

    /// Runs until nothing moves any more.
    pub(super) fn settle(&mut self) {
        let mut idle = 0;
        while idle < 500 * self.ranks.len() {
            idle = if self.step() { 0 } else { idle + 1 };
            self.check();
        }
    }
}

/// A place is as long as its bytes.
const _: () = assert!(PLACE == 12);
