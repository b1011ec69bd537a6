//! Broadcast: a binomial tree for short messages; long ones are scattered in blocks, which then go around a ring.

use super::{Chunk, Data, Limits, Me, Schedule, block};

/// Plans a broadcast. The data is in the receive buffer, at the root too.
pub fn bcast(me: Me, root: usize, data: Data<'_>, limits: &Limits) -> Schedule {
    let long = data.bytes() >= limits.bcast_long && data.count >= me.size && me.size > 2;
    if long { scattered(me, root, data) } else { tree(me, root, Chunk::of_recv(&data)) }
}

/// The tree: a rank receives from the one that differs in its lowest bit, then sends to those that differ in lower ones.
fn tree(me: Me, root: usize, chunk: Chunk) -> Schedule {
    let mut schedule = Schedule::default();
    let place = me.place(root);
    let mut bit = 1;
    while bit < me.size {
        if place & bit != 0 {
            schedule.round().recv(me.at(place - bit, root), chunk);
            break;
        }
        bit *= 2;
    }
    schedule.round();
    while bit > 1 {
        bit /= 2;
        if place + bit < me.size {
            schedule.last().send(me.at(place + bit, root), chunk);
        }
    }
    schedule
}

/// Blocks are numbered by places: block `i` belongs to the rank at place `i`.
fn scattered(me: Me, root: usize, data: Data<'_>) -> Schedule {
    let (size, extent) = (me.size, data.kind.extent());
    let whole = Chunk::of_recv(&data);
    let blocks = |first: usize, end: usize| {
        let (begin, _) = block(data.count, size, first);
        let (last, len) = block(data.count, size, end - 1);
        whole.part(begin, last + len - begin, extent)
    };
    let mut schedule = Schedule::default();
    let place = me.place(root);
    // Down the tree each rank gets the blocks of all ranks below it.
    let mut bit = 1;
    while bit < size && place & bit == 0 {
        bit *= 2;
    }
    if place > 0 {
        schedule.round().recv(me.at(place - bit, root), blocks(place, (place + bit).min(size)));
    }
    schedule.round();
    while bit > 1 {
        bit /= 2;
        if place + bit < size {
            let end = (place + 2 * bit).min(size);
            schedule.last().send(me.at(place + bit, root), blocks(place + bit, end));
        }
    }
    // Around the ring each rank passes on what it got in the round before.
    for step in 0..size - 1 {
        let (out, into) = ((place + size - step) % size, (place + 2 * size - step - 1) % size);
        schedule.round().send(me.after(1), blocks(out, out + 1)).recv(me.before(1), blocks(into, into + 1));
    }
    schedule
}
