//! Alltoall: Bruck's algorithm for very short messages, straight ones otherwise, a few at a time.

use super::schedule::{Kind, Place};
use super::{Chunk, Data, Limits, Me, Schedule};

/// Messages that a rank has under way at once each way.
const AT_ONCE: usize = 32;

/// Plans an alltoall. Without `send` the data is in the receive buffer and is replaced.
pub fn alltoall(me: Me, send: Option<Data<'_>>, recv: Data<'_>, limits: &Limits) -> Schedule {
    let into = |rank: usize| Chunk::of_recv(&recv).moved(rank as i64 * recv.stride());
    let Some(send) = send else { return in_place(me, |_| recv.bytes(), into) };
    let from = |rank: usize| Chunk::of_send(&send).moved(rank as i64 * send.stride());
    if me.size >= 8 && recv.bytes() <= limits.alltoall_short {
        return bruck(me, recv.bytes(), from, into);
    }
    straight(me, from, into)
}

/// Plans an alltoall of different lengths: the chunks for each rank and from each rank. Without `from` the data is in
/// the receive buffer and is replaced; `bytes` is the packed length of each chunk there.
pub fn alltoallv(
    me: Me,
    from: Option<&dyn Fn(usize) -> Chunk>,
    into: &dyn Fn(usize) -> Chunk,
    bytes: &dyn Fn(usize) -> usize,
) -> Schedule {
    match from {
        Some(from) => straight(me, from, into),
        None => in_place(me, bytes, into),
    }
}

impl Chunk {
    /// The part of the send buffer for a rank, with a displacement in bytes.
    pub fn to_rank(at: i64, count: usize, kind: Kind) -> Chunk {
        Chunk { place: Place::Send, at, count, kind }
    }

    /// The part of the receive buffer from a rank, with a displacement in bytes.
    pub fn from_rank(at: i64, count: usize, kind: Kind) -> Chunk {
        Chunk { place: Place::Recv, at, count, kind }
    }
}

/// Distances in rising order, so that no rank is everyone's target at the same time.
fn straight(me: Me, from: impl Fn(usize) -> Chunk, into: impl Fn(usize) -> Chunk) -> Schedule {
    let mut schedule = Schedule::default();
    schedule.last().copy(from(me.rank), into(me.rank));
    for first in (1..me.size).step_by(AT_ONCE) {
        let round = schedule.round();
        for distance in first..(first + AT_ONCE).min(me.size) {
            round.recv(me.before(distance), into(me.before(distance)));
            round.send(me.after(distance), from(me.after(distance)));
        }
    }
    schedule
}

/// What is sent is packed first, because what comes replaces it.
fn in_place(me: Me, bytes: impl Fn(usize) -> usize, into: impl Fn(usize) -> Chunk) -> Schedule {
    let mut schedule = Schedule::default();
    let packed: Vec<Chunk> = (0..me.size).map(|rank| schedule.bytes(bytes(rank))).collect();
    for (rank, packed) in packed.iter().enumerate().filter(|(rank, _)| *rank != me.rank) {
        schedule.last().copy(into(rank), *packed);
    }
    for first in (1..me.size).step_by(AT_ONCE) {
        let round = schedule.round();
        for distance in first..(first + AT_ONCE).min(me.size) {
            round.recv(me.before(distance), into(me.before(distance)));
            round.send(me.after(distance), packed[me.after(distance)]);
        }
    }
    schedule
}

/// Block `i` of the memory is on its way to the rank `i` places further; in round k all blocks with bit k go 2^k places.
fn bruck(me: Me, each: usize, from: impl Fn(usize) -> Chunk, into: impl Fn(usize) -> Chunk) -> Schedule {
    let mut schedule = Schedule::default();
    let blocks = schedule.bytes(each * me.size);
    let half = me.size.div_ceil(2);
    let (out, came) = (schedule.bytes(each * half), schedule.bytes(each * half));
    for index in 0..me.size {
        schedule.last().copy(from(me.after(index)), blocks.slice(index * each, each));
    }
    let mut bit = 1;
    while bit < me.size {
        let moving: Vec<usize> = (0..me.size).filter(|index| index & bit != 0).collect();
        for (slot, index) in moving.iter().enumerate() {
            schedule.last().copy(blocks.slice(index * each, each), out.slice(slot * each, each));
        }
        let len = moving.len() * each;
        schedule.round().send(me.after(bit), out.slice(0, len)).recv(me.before(bit), came.slice(0, len));
        for (slot, index) in moving.iter().enumerate() {
            schedule.last().copy(came.slice(slot * each, each), blocks.slice(index * each, each));
        }
        bit *= 2;
    }
    for index in 0..me.size {
        schedule.last().copy(blocks.slice(index * each, each), into(me.before(index)));
    }
    schedule
}
