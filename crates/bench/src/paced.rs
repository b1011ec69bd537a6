//! Messages by the clock over any wire: the case `load` for sockets.
//!
//! As the case itself (`cases/load.rs`): a few streams first find the highest rate, then messages are due at even distances at a
//! share of it, and each counts from the moment at which it was due. The receiver's notes come back with its tally.

use viaduct_os::clock::Tsc;

use crate::error::Result;
use crate::logp::Notes;
use crate::loops::{Wire, tally};
use crate::plan::{Motion, Run, Tally, Variant};
use crate::stats::median;
use crate::timer::Timer;

/// The argument of a variant that has it: percent of the highest rate.
pub(crate) const PERCENT: &str = "percent";

/// Streams that find the highest rate, and the messages of each.
const STREAMS: usize = 7;
const MESSAGES: u64 = 2_000;

/// A schedule.
#[derive(Debug)]
pub(crate) struct Paced {
    percent: f64,
    /// Ticks for a message at the highest rate, once it was found.
    peak: Option<f64>,
}

impl Paced {
    pub(crate) fn of(variant: &Variant) -> Option<Paced> {
        let percent = variant.arg(PERCENT);
        (variant.motion == Motion::OneWay && percent > 0)
            .then_some(Paced { percent: percent as f64, peak: None })
    }

    pub(crate) fn lead<W: Wire, const CHECK: bool>(
        &mut self,
        wire: &mut W,
        first: u64,
        run: &Run,
        timer: &Timer,
        samples: &mut Vec<u64>,
    ) -> Result<Tally> {
        let peak = match self.peak {
            Some(peak) => peak,
            None => *self.peak.insert(push(wire)?),
        };
        let interval = peak * 100.0 / self.percent;
        let mut notes = Notes::of(run);
        // The receiver is on its way to its loop; give it a moment.
        let start = timer.ticks() + timer.to_ticks(20_000.0);
        for number in 0..run.count {
            let due = start + (number as f64 * interval) as u64;
            while timer.ticks() < due {
                std::hint::spin_loop();
            }
            notes.take(due);
            wire.send::<CHECK>(first + number)?;
        }
        wire.flush()?;
        wire.wait_acknowledged()?;
        samples.append(&mut notes.taken);
        let rate = |ticks: f64| 1e3 / (timer.to_ns(1 << 20) / f64::from(1 << 20) * ticks);
        let extra = [("peak_mmsg", rate(peak)), ("offered_mmsg", rate(interval))];
        let extra = extra.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Ok(Tally { extra, ..Tally::default() })
    }

    pub(crate) fn follow<W: Wire, const CHECK: bool>(
        &mut self,
        wire: &mut W,
        first: u64,
        run: &Run,
    ) -> Result<Tally> {
        if self.peak.is_none() {
            self.peak = Some(drain(wire)?);
        }
        let (mut total, mut notes) = (0u64, Notes::of(run));
        for seq in first..first + run.count {
            total = total.wrapping_add(wire.recv::<CHECK>(seq)?);
            notes.take(Tsc::cycles());
        }
        wire.acknowledge()?;
        Ok(Tally { samples: notes.taken, ..tally::<CHECK>(total) })
    }
}

/// Streams as fast as it goes, a few times. The median of the ticks for a message.
fn push<W: Wire>(wire: &mut W) -> Result<f64> {
    timed_streams(|| {
        (0..MESSAGES).try_for_each(|seq| wire.send::<false>(seq))?;
        wire.flush()?;
        wire.wait_acknowledged()
    })
}

/// The other end of [`push`].
fn drain<W: Wire>(wire: &mut W) -> Result<f64> {
    timed_streams(|| {
        for seq in 0..MESSAGES {
            std::hint::black_box(wire.recv::<false>(seq)?);
        }
        wire.acknowledge()
    })
}

fn timed_streams(mut stream: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::with_capacity(STREAMS);
    for _ in 0..STREAMS {
        let start = Tsc::cycles();
        stream()?;
        times.push((Tsc::cycles() - start) as f64 / MESSAGES as f64);
    }
    Ok(median(&times).unwrap_or(1.0).max(1.0))
}
