//! Allgather: doubling or Bruck's algorithm for short messages, a ring for long ones.

use super::schedule::{Kind, Place, start};
use super::{Chunk, Data, Limits, Me, Schedule};

/// Plans an allgather. Without `send` each rank's part is in place in its receive buffer.
pub fn allgather(me: Me, send: Option<Data<'_>>, recv: Data<'_>, limits: &Limits) -> Schedule {
    let at = |rank: usize| Chunk::of_recv(&recv).moved(rank as i64 * recv.stride());
    let own = send.map(|send| (Chunk::of_send(&send), at(me.rank)));
    if recv.bytes() * me.size > limits.allgather_short {
        return ring(me, own, at);
    }
    if me.size.is_power_of_two() {
        return doubling(me, own, recv, at);
    }
    bruck(me, own.map_or(at(me.rank), |(from, _)| from), recv, at)
}

/// Plans an allgather of different lengths: count and displacement in extents for each rank.
pub fn allgatherv(
    me: Me,
    send: Option<Data<'_>>,
    recv: Data<'_>,
    counts: &[usize],
    displs: &[i64],
) -> Schedule {
    let extent = recv.kind.extent();
    let at = |rank: usize| Chunk {
        place: Place::Recv,
        at: displs[rank] * extent,
        count: counts[rank],
        kind: Kind::Recv,
    };
    ring(me, send.map(|send| (Chunk::of_send(&send), at(me.rank))), at)
}

/// Each rank passes on what it got in the round before.
fn ring(me: Me, own: Option<(Chunk, Chunk)>, at: impl Fn(usize) -> Chunk) -> Schedule {
    let mut schedule = start(own);
    for step in 0..me.size - 1 {
        let (out, into) = (me.before(step), me.before(step + 1));
        schedule.round().send(me.after(1), at(out)).recv(me.before(1), at(into));
    }
    schedule
}

/// In round k two ranks that differ in bit k exchange the 2^k parts that each has.
fn doubling(me: Me, own: Option<(Chunk, Chunk)>, recv: Data<'_>, at: impl Fn(usize) -> Chunk) -> Schedule {
    let mut schedule = start(own);
    let mut bit = 1;
    while bit < me.size {
        let other = me.rank ^ bit;
        let parts = |rank: usize| Chunk { count: bit * recv.count, ..at(rank & !(bit - 1)) };
        schedule.round().send(other, parts(me.rank)).recv(other, parts(other));
        bit *= 2;
    }
    schedule
}

/// Parts are collected in packed form, this rank's first; each round doubles their number; then they go to their places.
fn bruck(me: Me, own: Chunk, recv: Data<'_>, at: impl Fn(usize) -> Chunk) -> Schedule {
    let (mut schedule, each) = (Schedule::default(), recv.bytes());
    let temp = schedule.bytes(each * me.size);
    schedule.last().copy(own, temp.slice(0, each));
    let mut have = 1;
    while have < me.size {
        let more = have.min(me.size - have);
        schedule
            .round()
            .send(me.before(have), temp.slice(0, more * each))
            .recv(me.after(have), temp.slice(have * each, more * each));
        have += more;
    }
    for part in 0..me.size {
        schedule.last().copy(temp.slice(part * each, each), at(me.after(part)));
    }
    schedule
}
