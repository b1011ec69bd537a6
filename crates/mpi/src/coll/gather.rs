//! Gather and scatter: a binomial tree of packed blocks for short messages, straight to and from the root otherwise.

use super::schedule::{Kind, Place, start};
use super::{Chunk, Data, Limits, Me, Schedule};

/// Plans a gather. `recv` is the root's; other ranks pass what they send. Without `send` the root's part is in place.
pub fn gather(me: Me, root: usize, send: Option<Data<'_>>, recv: Data<'_>, limits: &Limits) -> Schedule {
    let each = send.unwrap_or(recv).bytes();
    if each > limits.tree_short || me.size < 4 {
        let at = |rank: usize| Chunk::of_recv(&recv).moved(rank as i64 * recv.stride());
        return straight_in(me, root, send, at);
    }
    let place = me.place(root);
    let mut schedule = Schedule::default();
    let below = below(me, place);
    let temp = schedule.bytes(each * below);
    let own = match &send {
        Some(send) => Chunk::of_send(send),
        None => Chunk::of_recv(&recv).moved(me.rank as i64 * recv.stride()),
    };
    schedule.last().copy(own, temp.slice(0, each));
    schedule.round();
    let mut bit = 1;
    while bit < me.size && place & bit == 0 {
        if place + bit < me.size {
            let blocks = bit.min(me.size - place - bit);
            schedule.last().recv(me.at(place + bit, root), temp.slice(bit * each, blocks * each));
        }
        bit *= 2;
    }
    if place > 0 {
        schedule.round().send(me.at(place - bit, root), temp);
    } else {
        for other in 0..me.size {
            let rank = me.at(other, root);
            let to = Chunk::of_recv(&recv).moved(rank as i64 * recv.stride());
            if rank != root || send.is_some() {
                schedule.last().copy(temp.slice(other * each, each), to);
            }
        }
    }
    schedule
}

/// Plans a gather of different lengths: count and displacement in extents for each rank, known to the root.
pub fn gatherv(
    me: Me,
    root: usize,
    send: Option<Data<'_>>,
    recv: Data<'_>,
    counts: &[usize],
    displs: &[i64],
) -> Schedule {
    let extent = recv.kind.extent();
    straight_in(me, root, send, |rank| Chunk {
        place: Place::Recv,
        at: displs[rank] * extent,
        count: counts[rank],
        kind: Kind::Recv,
    })
}

/// Plans a scatter. `send` is the root's; other ranks pass what they receive. Without `recv` the root's part stays.
pub fn scatter(me: Me, root: usize, send: Data<'_>, recv: Option<Data<'_>>, limits: &Limits) -> Schedule {
    let each = recv.unwrap_or(send).bytes();
    if each > limits.tree_short || me.size < 4 {
        let at = |rank: usize| Chunk::of_send(&send).moved(rank as i64 * send.stride());
        return straight_out(me, root, recv, at);
    }
    let place = me.place(root);
    let mut schedule = Schedule::default();
    let temp = schedule.bytes(each * below(me, place));
    let mut bit = 1;
    while bit < me.size && place & bit == 0 {
        bit *= 2;
    }
    if place > 0 {
        schedule.round().recv(me.at(place - bit, root), temp);
    } else {
        for other in 0..me.size {
            let from = Chunk::of_send(&send).moved(me.at(other, root) as i64 * send.stride());
            schedule.last().copy(from, temp.slice(other * each, each));
        }
    }
    schedule.round();
    while bit > 1 {
        bit /= 2;
        if place + bit < me.size {
            let blocks = bit.min(me.size - place - bit);
            schedule.last().send(me.at(place + bit, root), temp.slice(bit * each, blocks * each));
        }
    }
    if let Some(recv) = &recv {
        schedule.last().copy(temp.slice(0, each), Chunk::of_recv(recv));
    }
    schedule
}

/// Plans a scatter of different lengths: count and displacement in extents for each rank, known to the root.
pub fn scatterv(
    me: Me,
    root: usize,
    send: Data<'_>,
    recv: Option<Data<'_>>,
    counts: &[usize],
    displs: &[i64],
) -> Schedule {
    let extent = send.kind.extent();
    straight_out(me, root, recv, |rank| Chunk {
        place: Place::Send,
        at: displs[rank] * extent,
        count: counts[rank],
        kind: Kind::Send,
    })
}

/// How many ranks the tree has at a place and below it.
fn below(me: Me, place: usize) -> usize {
    let most = if place == 0 { me.size } else { 1 << place.trailing_zeros() };
    most.min(me.size - place)
}

/// Every rank sends to the root.
fn straight_in(me: Me, root: usize, send: Option<Data<'_>>, at: impl Fn(usize) -> Chunk) -> Schedule {
    if me.rank != root {
        let mut schedule = Schedule::default();
        let chunk = send.as_ref().map_or(Chunk::NOTHING, Chunk::of_send);
        schedule.round().send(root, chunk);
        return schedule;
    }
    let mut schedule = start(send.map(|send| (Chunk::of_send(&send), at(root))));
    schedule.round();
    for rank in (0..me.size).filter(|rank| *rank != root) {
        schedule.last().recv(rank, at(rank));
    }
    schedule
}

/// The root sends to every rank.
fn straight_out(me: Me, root: usize, recv: Option<Data<'_>>, at: impl Fn(usize) -> Chunk) -> Schedule {
    if me.rank != root {
        let mut schedule = Schedule::default();
        let chunk = recv.as_ref().map_or(Chunk::NOTHING, Chunk::of_recv);
        schedule.round().recv(root, chunk);
        return schedule;
    }
    let mut schedule = start(recv.map(|recv| (at(root), Chunk::of_recv(&recv))));
    schedule.round();
    for rank in (0..me.size).filter(|rank| *rank != root) {
        schedule.last().send(rank, at(rank));
    }
    schedule
}
