//! Barrier by dissemination: in round k every rank hears from the rank 2^k places back.

use super::{Chunk, Me, Schedule};

/// Plans a barrier.
pub fn barrier(me: Me) -> Schedule {
    let mut schedule = Schedule::default();
    let mut step = 1;
    while step < me.size {
        schedule.round().send(me.after(step), Chunk::NOTHING).recv(me.before(step), Chunk::NOTHING);
        step *= 2;
    }
    schedule
}
