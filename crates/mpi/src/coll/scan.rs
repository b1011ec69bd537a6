//! Scan and exscan by doubling: in round k a rank hears the combination of the 2^k ranks before it.

use super::schedule::{Kind, Place, start};
use super::{Chunk, Data, Me, Schedule};

/// Plans an inclusive scan. Without a send buffer the contribution is in the receive buffer.
pub fn scan(me: Me, data: Data<'_>, in_place: bool) -> Schedule {
    let result = Chunk::of_recv(&data);
    let mut schedule = start((!in_place).then(|| (contribution(&data), result)));
    if me.size > 1 {
        let (sum, other) =
            (schedule.elements(data.count, data.kind), schedule.elements(data.count, data.kind));
        schedule.last().copy(result, sum);
        double(&mut schedule, me, sum, other, |round| {
            round.combine(other, true, result);
        });
    }
    schedule
}

/// Plans an exclusive scan. The receive buffer of rank 0 stays as it is.
pub fn exscan(me: Me, data: Data<'_>, in_place: bool) -> Schedule {
    let result = Chunk::of_recv(&data);
    let mut schedule = Schedule::default();
    if me.size > 1 {
        let (sum, other) =
            (schedule.elements(data.count, data.kind), schedule.elements(data.count, data.kind));
        schedule.last().copy(if in_place { result } else { contribution(&data) }, sum);
        let mut first = true;
        double(&mut schedule, me, sum, other, |round| {
            if std::mem::take(&mut first) {
                round.copy(other, result);
            } else {
                round.combine(other, true, result);
            }
        });
    }
    schedule
}

fn contribution(data: &Data<'_>) -> Chunk {
    Chunk { place: Place::Send, at: 0, count: data.count, kind: Kind::Recv }
}

/// `sum` is the combination of this rank and those before it that were heard of. `take` uses what came from lower ranks.
fn double(
    schedule: &mut Schedule,
    me: Me,
    sum: Chunk,
    other: Chunk,
    mut take: impl FnMut(&mut super::Round),
) {
    let mut step = 1;
    while step < me.size {
        let round = schedule.round();
        if me.rank + step < me.size {
            round.send(me.rank + step, sum);
        }
        if me.rank >= step {
            round.recv(me.rank - step, other);
            take(round);
            round.combine(other, true, sum);
        }
        step *= 2;
    }
}
