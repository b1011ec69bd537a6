//! The loops of LogP: what a post costs, what taking a message costs, how long it is on its way, and trains of messages.
//!
//! Two methods that know nothing of each other (thesis, section 3.3, and netgauge): *direct*, where the posts of a burst
//! and the taking of a message that has surely come are timed by themselves, and *trains*, where only whole exchanges
//! are timed: n groups of [`GROUP`] messages with a pause d between the groups, answered once. From those follow, for a
//! group, g = (T(n,0) - T(1,0)) / (n-1) and Os = (T(n,d) - T(1,0)) / (n-1) - d; the pauses are left out of T(n,d) as
//! they really were, with the readings of the clock around them, so d drops out. Groups, for a post takes less than a
//! reading of the clock; the bursts of the direct method are as long. The way itself is timed by the cycle counter, which
//! the cores of one host share.

use std::time::Duration;

use viaduct_os::clock::Tsc;

use crate::error::Result;
use crate::loops::{Wire, tally};
use crate::plan::{Run, Tally};
use crate::timer::Timer;

/// Messages of a burst, and of a train between two pauses: few enough that no queue fills up, many enough that reading
/// the clock does not count.
pub(crate) const GROUP: u64 = 16;

/// A train: so many messages, with so many nanoseconds between the groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Train {
    pub(crate) messages: u64,
    pub(crate) pause_ns: u64,
}

/// Bursts of `run.batch` posts on a connection that has been idle for the pause of `train`; only the posts are timed.
pub(crate) fn posts<W: Wire, const CHECK: bool>(
    wire: &mut W,
    (first, train): (u64, Train),
    run: &Run,
    timer: &Timer,
    samples: &mut Vec<u64>,
) -> Result<Tally> {
    let pause = timer.to_ticks(train.pause_ns as f64);
    let mut seq = first;
    for burst in 0..run.count / run.batch {
        rest(timer, pause);
        let before = timer.ticks();
        for _ in 0..run.batch {
            wire.send::<CHECK>(seq)?;
            seq += 1;
        }
        let after = timer.ticks();
        wire.flush()?;
        wire.wait_acknowledged()?;
        if burst > 0 {
            samples.push(after - before);
        }
    }
    Ok(Tally::default())
}

/// Trains of messages; each is timed from its first post to the answer, without its pauses.
pub(crate) fn trains<W: Wire, const CHECK: bool>(
    wire: &mut W,
    (first, train): (u64, Train),
    run: &Run,
    timer: &Timer,
    samples: &mut Vec<u64>,
) -> Result<Tally> {
    let pause = timer.to_ticks(train.pause_ns as f64);
    let between = if pause > 0 { between_pauses(timer, pause) } else { 0.0 };
    let mut seq = first;
    for number in 0..run.count / train.messages {
        let before = timer.ticks();
        let mut paused = 0;
        for sent in 0..train.messages {
            if pause > 0 && sent > 0 && sent % GROUP == 0 {
                paused += rest(timer, pause);
            }
            wire.send::<CHECK>(seq)?;
            seq += 1;
        }
        wire.flush()?;
        wire.wait_acknowledged()?;
        if number > 0 {
            let clock = (between * ((train.messages - 1) / GROUP) as f64) as u64;
            samples.push((timer.ticks() - before).saturating_sub(paused + clock));
        }
    }
    Ok(Tally::default())
}

/// Does nothing for so many ticks, and tells how many it were.
#[inline(always)]
fn rest(timer: &Timer, ticks: u64) -> u64 {
    let start = timer.ticks();
    let mut now = start;
    while now < start + ticks {
        now = timer.ticks();
    }
    now - start
}

/// Ticks from the end of one pause to the start of the next with nothing in between: the readings of the clock, which
/// cost more than a post.
fn between_pauses(timer: &Timer, ticks: u64) -> f64 {
    const PAUSES: u64 = 64;
    let of_one = || {
        let before = timer.ticks();
        let paused: u64 = (0..PAUSES).map(|_| rest(timer, ticks)).sum();
        (timer.ticks() - before).saturating_sub(paused) as f64 / PAUSES as f64
    };
    // The least disturbed one.
    (0..3).map(|_| of_one()).fold(f64::INFINITY, f64::min)
}

/// The other end of bursts and trains: takes so many at a time and says so.
pub(crate) fn take_trains<W: Wire, const CHECK: bool>(
    wire: &mut W,
    first: u64,
    run: &Run,
    length: u64,
) -> Result<Tally> {
    let mut total = 0u64;
    let mut seq = first;
    for _ in 0..run.count / length {
        for _ in 0..length {
            total = total.wrapping_add(wire.recv::<CHECK>(seq)?);
            seq += 1;
        }
        wire.acknowledge()?;
    }
    Ok(tally::<CHECK>(total))
}

/// Ping-pongs in which the answer is waited for so long that it has come: only taking it is timed.
pub(crate) fn takes<W: Wire, const CHECK: bool>(
    wire: &mut W,
    first: u64,
    run: &Run,
    timer: &Timer,
    samples: &mut Vec<u64>,
) -> Result<Tally> {
    let mut total = 0u64;
    // What a whole exchange takes is found out first; between one and a half and four times that is long enough.
    let mut round_trip = u64::MAX;
    for number in 0..run.count {
        let seq = first + number;
        let start = timer.ticks();
        wire.send::<CHECK>(seq)?;
        if number < WARM {
            total = total.wrapping_add(wire.recv::<CHECK>(seq)?);
            round_trip = round_trip.min(timer.ticks() - start);
            continue;
        }
        let pause = 3 * round_trip.max(timer.to_ticks(200.0));
        while timer.ticks() < start + pause {}
        let before = timer.ticks();
        total = total.wrapping_add(wire.recv::<CHECK>(seq)?);
        samples.push(timer.ticks() - before);
    }
    Ok(tally::<CHECK>(total))
}

/// Exchanges at the start of a slice of [`takes`] that are not samples.
pub(crate) const WARM: u64 = 8;

/// Ping-pongs in which both ends note the time: when a message was about to be sent, and when it was taken. The notes
/// of the other end come back with its tally. Neither end waits for the clock: what an end has left to do after a message goes
/// on beside the next one, as it does without a clock. With a pause, there is one before each message.
pub(crate) fn departures<W: Wire, const CHECK: bool>(
    wire: &mut W,
    (first, train): (u64, Train),
    run: &Run,
    timer: &Timer,
    samples: &mut Vec<u64>,
) -> Result<Tally> {
    let mut total = 0u64;
    let mut notes = Notes::of(run);
    for seq in first..first + run.count {
        if train.pause_ns > 0 {
            timer.pause(Duration::from_nanos(train.pause_ns));
        }
        notes.take(Tsc::about());
        wire.send::<CHECK>(seq)?;
        total = total.wrapping_add(wire.recv::<CHECK>(seq)?);
    }
    samples.append(&mut notes.taken);
    Ok(tally::<CHECK>(total))
}

/// The other end of [`departures`].
pub(crate) fn arrivals<W: Wire, const CHECK: bool>(wire: &mut W, first: u64, run: &Run) -> Result<Tally> {
    let mut total = 0u64;
    let mut notes = Notes::of(run);
    for seq in first..first + run.count {
        total = total.wrapping_add(wire.recv::<CHECK>(seq)?);
        notes.take(Tsc::about());
        wire.send::<CHECK>(seq)?;
    }
    Ok(Tally { samples: notes.taken, ..tally::<CHECK>(total) })
}

/// Most notes of a slice: those of the other end have to fit into its answer.
const NOTES: u64 = 500;

/// Notes of the time, evenly spread over a slice.
pub(crate) struct Notes {
    every: u64,
    until: u64,
    pub(crate) taken: Vec<u64>,
}

impl Notes {
    pub(crate) fn of(run: &Run) -> Notes {
        Notes { every: run.count.div_ceil(NOTES).max(1), until: 1, taken: Vec::with_capacity(NOTES as usize) }
    }

    /// The clock is read for every message, so that those which are noted are like the others.
    #[inline(always)]
    pub(crate) fn take(&mut self, time: u64) {
        self.until -= 1;
        if self.until == 0 {
            self.until = self.every;
            self.taken.push(time);
        }
    }
}
