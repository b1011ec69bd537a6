//! Carries the schedules of all ranks out in one process, in a random order, so that what only works by luck fails.

use std::collections::{HashMap, VecDeque};

use super::{Chunk, Kind, Local, Place, Schedule, Transfer};
use crate::datatype::{Datatype, basic};
use crate::raw;

/// One rank: its buffers and how far it has come.
pub(super) struct Rank {
    pub(super) send: Vec<u8>,
    pub(super) recv: Vec<u8>,
    temp: Vec<u8>,
    schedule: Schedule,
    round: usize,
    open: Vec<Transfer>,
}

/// All ranks of an operation.
pub(super) struct World<'a> {
    pub(super) ranks: Vec<Rank>,
    send_kind: &'a Datatype,
    recv_kind: &'a Datatype,
    /// `into = from op into` on packed elements.
    combine: &'a dyn Fn(&mut [u8], &[u8]),
    mail: HashMap<(usize, usize), VecDeque<Vec<u8>>>,
    random: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(
        send_kind: &'a Datatype,
        recv_kind: &'a Datatype,
        combine: &'a dyn Fn(&mut [u8], &[u8]),
        seed: u64,
    ) -> World<'a> {
        World { ranks: Vec::new(), send_kind, recv_kind, combine, mail: HashMap::new(), random: seed | 1 }
    }

    pub(super) fn add(&mut self, schedule: Schedule, send: Vec<u8>, recv: Vec<u8>) {
        let open = schedule.rounds.first().map_or(vec![], |round| round.transfers.clone());
        let temp = vec![0xaa; schedule.temp];
        self.ranks.push(Rank { send, recv, temp, schedule, round: 0, open });
    }

    /// Runs to the end.
    ///
    /// # Panics
    /// If the ranks wait for each other in a circle, or messages are left over.
    pub(super) fn run(&mut self) {
        let mut idle = 0;
        while self.ranks.iter().any(|rank| rank.round < rank.schedule.rounds.len()) {
            let rank = self.draw(self.ranks.len());
            idle = if self.step(rank) { 0 } else { idle + 1 };
            assert!(idle < 10_000, "all ranks wait");
        }
        assert!(self.mail.values().all(VecDeque::is_empty), "messages that no rank received");
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as usize % below
    }

    /// One transfer of a rank, or the end of its round. False: it has to wait.
    fn step(&mut self, rank: usize) -> bool {
        if self.ranks[rank].round >= self.ranks[rank].schedule.rounds.len() {
            return false;
        }
        if self.ranks[rank].open.is_empty() {
            self.finish_round(rank);
            return true;
        }
        let picked = self.draw(self.ranks[rank].open.len());
        let key = |transfer: &Transfer| match transfer {
            Transfer::Send { to, .. } => (true, *to),
            Transfer::Recv { from, .. } => (false, *from),
        };
        // Messages between two ranks stay in order: the first one of the kind that was drawn.
        let wanted = key(&self.ranks[rank].open[picked]);
        let first = self.ranks[rank].open.iter().position(|transfer| key(transfer) == wanted).unwrap();
        match self.ranks[rank].open[first] {
            Transfer::Send { to, chunk } => {
                let packed = self.pack(rank, chunk);
                self.mail.entry((rank, to)).or_default().push_back(packed);
            }
            Transfer::Recv { from, chunk } => {
                let Some(packed) = self.mail.get_mut(&(from, rank)).and_then(VecDeque::pop_front) else {
                    return false;
                };
                self.unpack(rank, chunk, &packed);
            }
        }
        self.ranks[rank].open.remove(first);
        true
    }

    fn finish_round(&mut self, rank: usize) {
        let round = self.ranks[rank].round;
        let locals = self.ranks[rank].schedule.rounds[round].locals.clone();
        for local in locals {
            match local {
                Local::Copy { from, to } => {
                    let packed = self.pack(rank, from);
                    self.unpack(rank, to, &packed);
                }
                Local::Combine { from, into } => {
                    let (left, mut right) = (self.pack(rank, from), self.pack(rank, into));
                    (self.combine)(&mut right, &left);
                    self.unpack(rank, into, &right);
                }
            }
        }
        let rank = &mut self.ranks[rank];
        rank.round += 1;
        rank.open = rank.schedule.rounds.get(rank.round).map_or(vec![], |round| round.transfers.clone());
    }

    fn kind(&self, kind: Kind) -> Datatype {
        match kind {
            Kind::Send | Kind::SendOf(_) => self.send_kind.clone(),
            Kind::Recv | Kind::RecvOf(_) => self.recv_kind.clone(),
            Kind::Bytes => Datatype::of_basic(basic::find(0x4c00010d).unwrap()),
        }
    }

    fn memory(&mut self, rank: usize, place: Place) -> &mut [u8] {
        let rank = &mut self.ranks[rank];
        match place {
            Place::Send => &mut rank.send,
            Place::Recv => &mut rank.recv,
            Place::Temp => &mut rank.temp,
        }
    }

    fn pack(&mut self, rank: usize, chunk: Chunk) -> Vec<u8> {
        let kind = self.kind(chunk.kind);
        raw::pack_within(self.memory(rank, chunk.place), chunk.at, &kind, chunk.count)
    }

    fn unpack(&mut self, rank: usize, chunk: Chunk, packed: &[u8]) {
        let kind = self.kind(chunk.kind);
        raw::unpack_within(self.memory(rank, chunk.place), chunk.at, &kind, chunk.count, packed);
    }
}
