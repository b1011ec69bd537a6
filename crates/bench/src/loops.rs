//! The timed loops, written once for all layers.
//!
//! A layer implements [`Wire`], five small operations on one message; [`Looped`] turns them into whole slices. The
//! compiler makes a copy of each loop for each layer, and another one for validation, so a timed loop holds neither a
//! dynamic call nor a test whether to check the data.

use std::hint::black_box;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::logp::{self, Train};
use crate::paced::Paced;
use crate::plan::{Motion, Run, Tally, Variant};
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
    /// A slice begins; not part of the timed region.
    fn begin(&mut self) {}
    /// A slice has ended: adds further numbers of the case, and in a validation pass what is wrong with them.
    fn finish(&mut self, _run: &Run, _tally: &mut Tally) -> Result<()> {
        Ok(())
    }
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
    train: Train,
    paced: Option<Paced>,
    /// Messages sent and received so far, all slices together: the next sequence number.
    next: u64,
}

impl<W: Wire> Looped<W> {
    /// Wraps an open wire.
    pub(crate) fn new(wire: W, variant: &Variant) -> Looped<W> {
        let train = Train { messages: variant.arg("train").max(1), pause_ns: variant.arg("pause") };
        Looped { wire, motion: variant.motion, train, paced: Paced::of(variant), next: 1 }
    }

    fn lead_with<const CHECK: bool>(
        &mut self,
        run: &Run,
        timer: &Timer,
        samples: &mut Vec<u64>,
    ) -> Result<Tally> {
        let (wire, first) = (&mut self.wire, self.next);
        self.next += run.count;
        match self.motion {
            Motion::PingPong => ping::<W, CHECK>(wire, first, run, timer, samples),
            Motion::Spaced => spaced::<W, CHECK>(wire, (first, self.train.pause_ns), run, timer, samples),
            Motion::Stream => push::<W, CHECK>(wire, first, run, timer, samples),
            Motion::Posts => logp::posts::<W, CHECK>(wire, (first, self.train), run, timer, samples),
            Motion::Trains => logp::trains::<W, CHECK>(wire, (first, self.train), run, timer, samples),
            Motion::Takes => logp::takes::<W, CHECK>(wire, first, run, timer, samples),
            Motion::OneWay => match &mut self.paced {
                Some(paced) => paced.lead::<W, CHECK>(wire, first, run, timer, samples),
                None => logp::departures::<W, CHECK>(wire, (first, self.train), run, timer, samples),
            },
            Motion::Calls => Err(no_loop()),
        }
    }

    fn follow_with<const CHECK: bool>(&mut self, run: &Run) -> Result<Tally> {
        let (wire, first) = (&mut self.wire, self.next);
        self.next += run.count;
        match self.motion {
            Motion::PingPong | Motion::Spaced | Motion::Takes => pong::<W, CHECK>(wire, first, run),
            Motion::Stream => drain::<W, CHECK>(wire, first, run),
            Motion::Posts => logp::take_trains::<W, CHECK>(wire, first, run, run.batch),
            Motion::Trains => logp::take_trains::<W, CHECK>(wire, first, run, self.train.messages),
            Motion::OneWay => match &mut self.paced {
                Some(paced) => paced.follow::<W, CHECK>(wire, first, run),
                None => logp::arrivals::<W, CHECK>(wire, first, run),
            },
            Motion::Calls => Err(no_loop()),
        }
    }
}

impl<W: Wire> End for Looped<W> {
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        self.wire.begin();
        let mut tally = match run.check {
            false => self.lead_with::<false>(run, timer, samples),
            true => self.lead_with::<true>(run, timer, samples),
        }?;
        self.wire.finish(run, &mut tally)?;
        Ok(tally)
    }

    fn follow(&mut self, run: &Run) -> Result<Tally> {
        self.wire.begin();
        let mut tally = match run.check {
            false => self.follow_with::<false>(run),
            true => self.follow_with::<true>(run),
        }?;
        self.wire.finish(run, &mut tally)?;
        Ok(tally)
    }
}

#[cold]
fn no_loop() -> Error {
    Error::usage(
        "calls are timed by the case itself",
        "this is a fault of the benchmark: it should have its own end",
    )
}

/// Keeps what [`Wire::recv`] returned: faults of a validation pass, sums of a timed one.
pub(crate) fn tally<const CHECK: bool>(total: u64) -> Tally {
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

/// Ping-pongs that are timed one by one, each after a pause of so many nanoseconds.
#[inline(never)]
fn spaced<W: Wire, const CHECK: bool>(
    wire: &mut W,
    (first, pause_ns): (u64, u64),
    run: &Run,
    timer: &Timer,
    samples: &mut Vec<u64>,
) -> Result<Tally> {
    let (mut total, pause) = (0u64, Duration::from_nanos(pause_ns));
    for seq in first..first + run.count {
        timer.pause(pause);
        let before = timer.ticks();
        wire.send::<CHECK>(seq)?;
        total = total.wrapping_add(wire.recv::<CHECK>(seq)?);
        // The first one may have waited for the peer to reach its loop.
        if seq > first {
            samples.push(timer.ticks() - before);
        }
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
    let mut before = timer.ticks();
    let mut seq = first;
    let batches = run.count / run.batch;
    for batch in 0..batches {
        for _ in 0..run.batch {
            wire.send::<CHECK>(seq)?;
            seq += 1;
        }
        // How a stream begins and ends is no part of a sample, unless the sample is all of it.
        if batch + 1 < batches {
            let after = timer.ticks();
            if batch > 0 {
                samples.push(after - before);
            }
            before = after;
        }
    }
    wire.flush()?;
    wire.wait_acknowledged()?;
    if batches < 3 {
        samples.push(timer.ticks() - before);
    }
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
        let variant = crate::cases::shape(motion, 24, 4);
        Looped::new(Echo { message: [0; 24], corrupt, acknowledged: 0 }, &variant)
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
