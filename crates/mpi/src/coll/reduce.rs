//! Reductions to one rank, to all, and to each a part. Operands are always combined in the order of ranks, so that
//! operations that do not commute are right and every run gives the same bits.

use super::schedule::start;
use super::{Chunk, Data, Limits, Me, Schedule, block};

/// Plans a reduction. `send` is this rank's contribution; without it the contribution is in the receive buffer. `root`
/// has the result in its receive buffer.
pub fn reduce(
    me: Me,
    root: usize,
    data: Data<'_>,
    in_place: bool,
    commutes: bool,
    limits: &Limits,
) -> Schedule {
    let contribution = if in_place { Chunk::of_recv(&data) } else { Chunk::of_send_as_recv(&data) };
    let mut schedule = Schedule::default();
    // At the root the result grows where it belongs, elsewhere in memory of the schedule.
    let own = if me.rank == root { Chunk::of_recv(&data) } else { schedule.elements(data.count, data.kind) };
    if contribution != own {
        schedule.last().copy(contribution, own);
    }
    if is_long(me, &data, commutes, limits) {
        let other = schedule.elements(data.count, data.kind);
        halve(&mut schedule, me, own, other, &data);
        collect(&mut schedule, me, root, own, &data);
        return schedule;
    }
    // The tree is counted from rank 0 where the order of ranks matters; the result then goes on to the root.
    let top = if commutes { root } else { 0 };
    let place = me.place(top);
    let mut bit = 1;
    let mut other = None;
    while bit < me.size {
        if place & bit != 0 {
            schedule.round().send(me.at(place - bit, top), own);
            break;
        }
        if place + bit < me.size {
            let other = *other.get_or_insert_with(|| schedule.elements(data.count, data.kind));
            let from = me.at(place + bit, top);
            schedule.round().recv(from, other).combine(other, false, own);
        }
        bit *= 2;
    }
    if top != root && me.rank == top {
        schedule.round().send(root, own);
    }
    if top != root && me.rank == root {
        schedule.round().recv(top, own);
    }
    schedule
}

/// Plans a reduction whose result every rank gets, in its receive buffer.
pub fn allreduce(me: Me, data: Data<'_>, in_place: bool, commutes: bool, limits: &Limits) -> Schedule {
    let own = Chunk::of_recv(&data);
    let mut schedule = start((!in_place).then(|| (Chunk::of_send_as_recv(&data), own)));
    if me.size == 1 {
        return schedule;
    }
    let other = schedule.elements(data.count, data.kind);
    if is_long(me, &data, commutes, limits) {
        halve(&mut schedule, me, own, other, &data);
        return spread(schedule, me, own, &data);
    }
    // Pairs of neighbours become one where the number of ranks is no power of two: the odd ones sit out.
    let power = me.power();
    let extra = me.size - power;
    let folded = Folded::new(me, extra);
    folded.fold(&mut schedule, own, other);
    if let Some(number) = folded.number {
        let mut bit = 1;
        while bit < power {
            let partner = number ^ bit;
            let rank = folded.rank(partner);
            schedule.round().send(rank, own).recv(rank, other).combine(other, partner < number, own);
            bit *= 2;
        }
    }
    folded.unfold(&mut schedule, own);
    schedule
}

/// Plans a reduction of which rank `i` gets the elements of block `i`; `counts` has the length of each block. The result is
/// at the beginning of the receive buffer, the contribution in the send buffer or, without one, in the receive buffer.
pub fn reduce_scatter(me: Me, data: Data<'_>, counts: &[usize], in_place: bool, commutes: bool) -> Schedule {
    let extent = data.kind.extent();
    let first = |rank: usize| counts[..rank].iter().sum::<usize>();
    let source = if in_place { Chunk::of_recv(&data) } else { Chunk::of_send_as_recv(&data) };
    let mut schedule = Schedule::default();
    let mine = counts[me.rank];
    let result = Chunk::of_recv(&data).part(0, mine, extent);
    // In a copy of its own: the result may lie over contributions that are still to be sent.
    let acc = schedule.elements(mine, data.kind);
    let part = |rank: usize| source.part(first(rank), counts[rank], extent);
    if commutes {
        schedule.last().copy(part(me.rank), acc);
        let other = schedule.elements(mine, data.kind);
        for distance in 1..me.size {
            let (to, from) = (me.after(distance), me.before(distance));
            schedule.round().send(to, part(to)).recv(from, other).combine(other, true, acc);
        }
    } else {
        // Every part is collected from all ranks and combined in their order.
        let parts: Vec<Chunk> = (0..me.size).map(|_| schedule.elements(mine, data.kind)).collect();
        let round = schedule.round();
        for distance in 1..me.size {
            let (to, from) = (me.after(distance), me.before(distance));
            round.send(to, part(to)).recv(from, parts[from]);
        }
        round.copy(part(me.rank), parts[me.rank]);
        round.copy(parts[me.size - 1], acc);
        for rank in (0..me.size - 1).rev() {
            round.combine(parts[rank], true, acc);
        }
    }
    schedule.last().copy(acc, result);
    schedule
}

impl Chunk {
    /// The send buffer of a reduction, whose elements have the one type of the call.
    fn of_send_as_recv(data: &Data<'_>) -> Chunk {
        Chunk { place: super::Place::Send, ..Chunk::of_recv(data) }
    }
}

/// Halving pays for long data, needs an element for each rank, and combines out of order.
fn is_long(me: Me, data: &Data<'_>, commutes: bool, limits: &Limits) -> bool {
    commutes && me.size > 2 && data.count >= me.power() && data.bytes() >= limits.reduce_long
}

/// The elements that the rank with a number has after the halving, of `power` parts.
fn share(number: usize, power: usize, own: Chunk, data: &Data<'_>) -> Chunk {
    let (first, len) = block(data.count, power, number);
    own.part(first, len, data.kind.extent())
}

/// The elements of parts `first..end`.
fn shares(first: usize, end: usize, power: usize, own: Chunk, data: &Data<'_>) -> Chunk {
    let (begin, _) = block(data.count, power, first);
    let (last, len) = block(data.count, power, end - 1);
    own.part(begin, last + len - begin, data.kind.extent())
}

/// Each round halves what a rank is responsible for: it sends one half to its partner and combines the other.
fn halve(schedule: &mut Schedule, me: Me, own: Chunk, other: Chunk, data: &Data<'_>) {
    let power = me.power();
    let folded = Folded::new(me, me.size - power);
    folded.fold(schedule, own, other);
    let Some(number) = folded.number else { return };
    let (mut first, mut end) = (0, power);
    while end - first > 1 {
        let middle = first.midpoint(end);
        let upper = number >= middle;
        let partner = if upper { number - (end - first) / 2 } else { number + (end - first) / 2 };
        let (keep, give) =
            if upper { ((middle, end), (first, middle)) } else { ((first, middle), (middle, end)) };
        let into = shares(keep.0, keep.1, power, other, data);
        let rank = folded.rank(partner);
        schedule.round().send(rank, shares(give.0, give.1, power, own, data)).recv(rank, into).combine(
            into,
            partner < number,
            shares(keep.0, keep.1, power, own, data),
        );
        (first, end) = keep;
    }
}

/// The opposite of the halving: each round doubles what a rank has.
fn spread(mut schedule: Schedule, me: Me, own: Chunk, data: &Data<'_>) -> Schedule {
    let power = me.power();
    let folded = Folded::new(me, me.size - power);
    if let Some(number) = folded.number {
        let mut width = 1;
        while width < power {
            let partner = number ^ width;
            let parts = |of: usize| {
                let first = of & !(width - 1);
                shares(first, first + width, power, own, data)
            };
            let rank = folded.rank(partner);
            schedule.round().send(rank, parts(number)).recv(rank, parts(partner));
            width *= 2;
        }
    }
    folded.unfold(&mut schedule, own);
    schedule
}

/// After the halving the root collects the parts.
fn collect(schedule: &mut Schedule, me: Me, root: usize, own: Chunk, data: &Data<'_>) {
    let power = me.power();
    let folded = Folded::new(me, me.size - power);
    let round = schedule.round();
    if let Some(number) = folded.number.filter(|_| me.rank != root) {
        round.send(root, share(number, power, own, data));
    }
    if me.rank == root {
        for number in (0..power).filter(|number| folded.rank(*number) != root) {
            round.recv(folded.rank(number), share(number, power, own, data));
        }
    }
}

/// A power of two of the ranks. The first `2 * extra` ranks go in pairs, of which the even one has the number.
struct Folded {
    me: Me,
    extra: usize,
    /// None: this rank sits out.
    number: Option<usize>,
}

impl Folded {
    fn new(me: Me, extra: usize) -> Folded {
        let number = match me.rank {
            rank if rank >= 2 * extra => Some(rank - extra),
            rank if rank % 2 == 0 => Some(rank / 2),
            _ => None,
        };
        Folded { me, extra, number }
    }

    fn rank(&self, number: usize) -> usize {
        if number < self.extra { 2 * number } else { number + self.extra }
    }

    /// The odd rank of a pair gives its contribution to the even one.
    fn fold(&self, schedule: &mut Schedule, own: Chunk, other: Chunk) {
        if self.me.rank < 2 * self.extra {
            if self.number.is_some() {
                schedule.round().recv(self.me.rank + 1, other).combine(other, false, own);
            } else {
                schedule.round().send(self.me.rank - 1, own);
            }
        }
    }

    /// The even rank of a pair gives the result to the odd one.
    fn unfold(&self, schedule: &mut Schedule, own: Chunk) {
        if self.me.rank < 2 * self.extra {
            if self.number.is_some() {
                schedule.round().send(self.me.rank + 1, own);
            } else {
                schedule.round().recv(self.me.rank - 1, own);
            }
        }
    }
}
