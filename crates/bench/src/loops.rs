//! The timed loops, written once for all layers.
//!
//! A layer implements [`Wire`], five small operations on one message; [`Looped`] turns them into whole slices. The
//! compiler makes a copy of each loop for each layer, and another one for validation, so a timed loop holds neither a
//! dynamic call nor a test whether to check the data.

use std::hint::black_box;

use crate::error::Result;
use crate::plan::{Motion, Run, Tally};
use crate::timer::Timer;

/// One message at a time, as a layer moves it. Sizes and windows were fixed when the layer was opened.
///
/// With `CHECK` the sender writes the pattern of message `seq` first and the receiver counts what differs from it;
/// without, the receiver reads every byte and returns a number that depends on them.
pub(crate) trait Wire {
    /// Sends message `seq`; may wait for room, need not wait for its arrival.
    fn send<const CHECK: bool>(&mut self, seq: u64) -> Result<()>;
    /// Waits for message `seq` and reads all of it.
    fn recv<const CHECK: bool>(&mut self, seq: u64) -> Result<u64>;
    /// Ends a stream: whatever was kept back is sent.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    /// Tells the sender of a stream that all of it was read.
    fn acknowledge(&mut self) -> Result<()>;
    /// Waits for that.
    fn wait_acknowledged(&mut self) -> Result<()>;
}

/// One end of an open layer.
pub(crate) trait End {
    /// The timed end. Adds the time of every sample to `samples`, in ticks of `timer`; the first batch of a ping-pong
    /// is warm-up.
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally>;
    /// The answering end.
    fn follow(&mut self, run: &Run) -> Result<Tally>;
}

/// An [`End`] made of a [`Wire`].
#[derive(Debug)]
pub(crate) struct Looped<W> {
    wire: W,
    motion: Motion,
    /// Messages sent and received so far, all slices together: the next sequence number.
    next: u64,
}

impl<W: Wire> Looped<W> {
    /// Wraps an open wire.
    pub(crate) fn new(wire: W, motion: Motion) -> Looped<W> {
        Looped { wire, motion, next: 1 }
    }
}

impl<W: Wire> End for Looped<W> {
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        let first = self.next;
        self.next += run.count;
        match (self.motion, run.check) {
            (Motion::PingPong, false) => ping::<W, false>(&mut self.wire, first, run, timer, samples),
            (Motion::PingPong, true) => ping::<W, true>(&mut self.wire, first, run, timer, samples),
            (Motion::Stream, false) => push::<W, false>(&mut self.wire, first, run, timer, samples),
            (Motion::Stream, true) => push::<W, true>(&mut self.wire, first, run, timer, samples),
        }
    }

    fn follow(&mut self, run: &Run) -> Result<Tally> {
        let first = self.next;
        self.next += run.count;
        match (self.motion, run.check) {
            (Motion::PingPong, false) => pong::<W, false>(&mut self.wire, first, run),
            (Motion::PingPong, true) => pong::<W, true>(&mut self.wire, first, run),
            (Motion::Stream, false) => drain::<W, false>(&mut self.wire, first, run),
            (Motion::Stream, true) => drain::<W, true>(&mut self.wire, first, run),
        }
    }
}

/// Keeps what [`Wire::recv`] returned: faults of a validation pass, sums of a timed one.
fn tally<const CHECK: bool>(total: u64) -> Tally {
    if CHECK {
        Tally { bad: total, ..Tally::default() }
    } else {
        Tally { sum: black_box(total), ..Tally::default() }
    }
}

#[inline(never)]
fn ping<W: Wire, const CHECK: bool>(
    wire: &mut W,
    first: u64,
    run: &Run,
    timer: &Timer,
    samples: &mut Vec<u64>,
) -> Result<Tally> {
    let mut total = 0u64;
    let mut seq = first;
    let batches = run.count / run.batch;
    samples.reserve(batches as usize);
    let mut before = timer.ticks();
    for batch in 0..batches {
        for _ in 0..run.batch {
            wire.send::<CHECK>(seq)?;
            total = total.wrapping_add(wire.recv::<CHECK>(seq)?);
            seq += 1;
        }
        let after = timer.ticks();
        // The first batch also waits for the peer to reach its loop.
        if batch > 0 {
            samples.push(after - before);
        }
        before = after;
    }
    Ok(tally::<CHECK>(total))
}

#[inline(never)]
fn pong<W: Wire, const CHECK: bool>(wire: &mut W, first: u64, run: &Run) -> Result<Tally> {
    let mut total = 0u64;
    for seq in first..first + run.count {
        total = total.wrapping_add(wire.recv::<CHECK>(seq)?);
        wire.send::<CHECK>(seq)?;
    }
    Ok(tally::<CHECK>(total))
}

#[inline(never)]
fn push<W: Wire, const CHECK: bool>(
    wire: &mut W,
    first: u64,
    run: &Run,
    timer: &Timer,
    samples: &mut Vec<u64>,
) -> Result<Tally> {
    let before = timer.ticks();
    for seq in first..first + run.count {
        wire.send::<CHECK>(seq)?;
    }
    wire.flush()?;
    wire.wait_acknowledged()?;
    samples.push(timer.ticks() - before);
    Ok(Tally::default())
}

#[inline(never)]
fn drain<W: Wire, const CHECK: bool>(wire: &mut W, first: u64, run: &Run) -> Result<Tally> {
    let mut total = 0u64;
    for seq in first..first + run.count {
        total = total.wrapping_add(wire.recv::<CHECK>(seq)?);
    }
    wire.acknowledge()?;
    Ok(tally::<CHECK>(total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern;

    /// Gives back what was sent, with one bit turned over in message `corrupt`.
    struct Echo {
        message: [u8; 24],
        corrupt: u64,
        acknowledged: u32,
    }

    impl Wire for Echo {
        fn send<const CHECK: bool>(&mut self, seq: u64) -> Result<()> {
            pattern::fill(&mut self.message, seq);
            self.message[5] ^= u8::from(seq == self.corrupt);
            Ok(())
        }

        fn recv<const CHECK: bool>(&mut self, seq: u64) -> Result<u64> {
            Ok(if CHECK { pattern::mismatches(&self.message, seq) } else { 1 })
        }

        fn acknowledge(&mut self) -> Result<()> {
            self.acknowledged += 1;
            Ok(())
        }

        fn wait_acknowledged(&mut self) -> Result<()> {
            self.acknowledged += 1;
            Ok(())
        }
    }

    fn end(motion: Motion, corrupt: u64) -> Looped<Echo> {
        Looped::new(Echo { message: [0; 24], corrupt, acknowledged: 0 }, motion)
    }

    #[test]
    fn a_turned_bit_is_found() {
        let timer = Timer::calibrate();
        let run = Run { count: 10, batch: 1, check: true };
        for (corrupt, bad) in [(0, 0), (1, 1), (10, 1), (11, 0)] {
            let tally = end(Motion::PingPong, corrupt).lead(&run, &timer, &mut Vec::new()).unwrap();
            assert_eq!(tally.bad, bad, "message {corrupt}");
        }
    }

    #[test]
    fn samples_and_sequence_numbers() {
        let timer = Timer::calibrate();
        let mut samples = Vec::new();
        let mut ping = end(Motion::PingPong, 0);
        ping.lead(&Run { count: 12, batch: 3, check: false }, &timer, &mut samples).unwrap();
        assert_eq!((samples.len(), ping.next), (3, 13), "four batches, the first being warm-up");
        let mut stream = end(Motion::Stream, 0);
        stream.lead(&Run { count: 7, batch: 7, check: false }, &timer, &mut samples).unwrap();
        assert_eq!((samples.len(), stream.next, stream.wire.acknowledged), (4, 8, 1));
        let tally = stream.follow(&Run { count: 7, batch: 7, check: false }).unwrap();
        assert_eq!((tally.sum, stream.next, stream.wire.acknowledged), (7, 15, 2));
    }
}
