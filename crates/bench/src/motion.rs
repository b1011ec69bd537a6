//! How messages move between the ends, and what a slice of each motion looks like.
//!
//! A new motion is a name and its arms here, and its loops in `loops.rs`: how many messages belong together, how many
//! make a slice, what a sample stands for. What is measured stays in `measure.rs`.

use serde::{Deserialize, Serialize};

use crate::logp::GROUP;
use crate::plan::{Run, Variant};
use crate::timer::Timer;

/// How messages move between the ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Motion {
    /// One message there, one back.
    PingPong,
    /// One message there, one back, after a pause that is not timed.
    Spaced,
    /// Many messages one way, the last one acknowledged.
    Stream,
    /// Bursts of messages one way on an idle connection: only the posts are timed (Os of LogP).
    Posts,
    /// Trains of messages one way, each answered once and timed as a whole (the other method of LogP).
    Trains,
    /// One message there and one back, which is waited for long enough that it has come: only taking it is timed (Or).
    Takes,
    /// One message each way, timed one way by the cycle counter that both cores share.
    OneWay,
    /// Calls that the case times itself; the other end does what the case says.
    Calls,
}

/// Nanoseconds of a slice that pauses may take, unless even four messages need more.
const PAUSES_NS: u64 = 10_000_000;

/// Most messages in a slice where nothing else limits them.
const MOST: u64 = 1 << 26;

impl Motion {
    /// Messages under way at once are a part of it, so that credits are needed.
    pub(crate) fn is_stream(self) -> bool {
        matches!(self, Motion::Stream | Motion::Posts | Motion::Trains)
    }

    /// Messages (or calls) that a sample of `run` stands for.
    pub(crate) fn messages(self, run: &Run) -> u64 {
        match self {
            Motion::PingPong => 2 * run.batch,
            Motion::Stream | Motion::Posts | Motion::Calls => run.batch,
            Motion::Spaced => 2,
            Motion::Trains | Motion::Takes | Motion::OneWay => 1,
        }
    }

    /// Nanoseconds that the readings of the clock inside a sample take: no part of what is measured, see `logp.rs`.
    pub(crate) fn clock_ns(self, timer: &Timer) -> f64 {
        match self {
            Motion::OneWay => timer.about_ns(),
            Motion::Takes | Motion::Spaced => timer.cost_ns(),
            _ => 0.0,
        }
    }

    /// The time of every sample, in ticks, from the notes of both ends: the timed end has them unless it cannot know.
    pub(crate) fn samples(self, led: Vec<u64>, followed: Vec<u64>) -> Vec<u64> {
        match self {
            Motion::OneWay => followed.iter().zip(&led).map(|(to, from)| to.saturating_sub(*from)).collect(),
            _ if led.is_empty() => followed,
            _ => led,
        }
    }

    /// Aimed length of a slice in nanoseconds. Streams get longer ones, because filling and draining the window is part
    /// of the time.
    pub(crate) fn slice_ns(self) -> f64 {
        if self.is_stream() { 5e6 } else { 3e6 }
    }

    /// Nanoseconds for one message, of a trial of `count` that took `whole` with a median `sample`.
    pub(crate) fn per_message(self, sample: f64, whole: f64, count: u64) -> f64 {
        match self {
            Motion::Stream => sample / count as f64,
            Motion::PingPong | Motion::Calls => sample,
            // What a slice has room for is a matter of whole exchanges here.
            Motion::Posts | Motion::Trains | Motion::Takes | Motion::OneWay | Motion::Spaced => {
                whole / count as f64
            }
        }
    }
}

impl Variant {
    /// A slice whose length the case has set: of calls that take long, or whose samples are not the time they take.
    pub(crate) fn set_run(&self) -> Option<Run> {
        let (count, batch) = (self.arg("count"), self.arg("batch").max(1));
        (count > 0).then_some(Run { count, batch, check: false })
    }

    /// Most messages in a slice: pauses take their time.
    pub(crate) fn most(&self) -> u64 {
        match self.motion {
            Motion::Spaced => (PAUSES_NS / self.arg("pause").max(1)).clamp(4, 4000),
            _ => MOST,
        }
    }

    /// About `count` messages while nothing is known about how long they take.
    pub(crate) fn trial(&self, count: u64, check: bool) -> Run {
        let count = count.min(self.most()).next_multiple_of(self.group());
        let batch = match self.motion {
            Motion::Posts => self.group(),
            Motion::Stream => count,
            _ => 1,
        };
        Run { count, batch, check }
    }

    /// A slice like `run` in which every exchange is timed by itself, of fewer of them; none where `run` does so, or where a
    /// sample is more than an exchange.
    pub(crate) fn one_by_one(&self, run: &Run) -> Option<Run> {
        let apart = self.motion == Motion::PingPong && self.set_run().is_none() && self.arg("turn") <= 1;
        (apart && run.batch > 1).then(|| Run { count: (run.count / 4).max(4), batch: 1, ..*run })
    }

    /// A timed slice, if about `count` messages fit and a sample of `batch` exchanges is worth reading the clock for.
    pub(crate) fn timed(&self, count: u64, batch: u64) -> Run {
        let group = self.group();
        let (count, batch) = match self.motion {
            Motion::Stream => match self.arg("part-of-stream") {
                0 => (count, count),
                part => ((count / part + 2) * part, part),
            },
            Motion::Posts => ((count / group + 2) * group, group),
            Motion::Trains => ((count / group).clamp(4, 2000) * group, 1),
            Motion::Takes => (count.clamp(64, 4000), 1),
            Motion::Spaced => (count.clamp(4, self.most()), 1),
            Motion::OneWay => (count.max(32), 1),
            Motion::PingPong | Motion::Calls => {
                // Exchanges that only together are what the case is about stay in one sample.
                let batch = batch.next_multiple_of(self.arg("turn").max(1));
                ((count / batch + 2) * batch, batch)
            }
        };
        Run { count, batch, check: false }
    }

    /// Messages that belong together.
    fn group(&self) -> u64 {
        match self.motion {
            Motion::Posts => (self.window as u64).clamp(1, GROUP),
            Motion::Trains => self.arg("train").max(1),
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::shape;

    const ALL: [Motion; 8] = [
        Motion::PingPong,
        Motion::Spaced,
        Motion::Stream,
        Motion::Posts,
        Motion::Trains,
        Motion::Takes,
        Motion::OneWay,
        Motion::Calls,
    ];

    #[test]
    fn slices_are_whole_groups_within_bounds() {
        for motion in ALL {
            let variant = shape(motion, 8, 64).with("train", 9).with("turn", 4);
            for count in [1, 7, 100, 100_000] {
                for run in [variant.trial(count, true), variant.timed(count.max(4), 3)] {
                    assert!(run.count >= run.batch && run.count % run.batch == 0, "{motion:?}: {run:?}");
                    assert!(run.count % variant.group() == 0, "{motion:?}: {run:?}");
                    assert!(
                        run.count <= variant.most().next_multiple_of(variant.group()),
                        "{motion:?}: {run:?}"
                    );
                }
            }
        }
        assert_eq!(shape(Motion::PingPong, 8, 1).with("turn", 4).timed(100, 3).batch, 4);
        assert_eq!(shape(Motion::Posts, 8, 64).timed(100, 1).batch, 16);
    }

    #[test]
    fn samples_come_from_the_side_that_took_them() {
        assert_eq!(
            Motion::OneWay.samples(vec![10, 30], vec![15, 29]),
            [5, 0],
            "clocks may differ by a little"
        );
        assert_eq!(Motion::Stream.samples(vec![1], vec![2]), [1]);
        assert_eq!(Motion::Stream.samples(vec![], vec![2]), [2]);
    }

    #[test]
    fn a_trial_tells_what_one_message_takes() {
        assert_eq!(Motion::Stream.per_message(100.0, 120.0, 10), 10.0);
        assert_eq!(Motion::PingPong.per_message(8.0, 120.0, 10), 8.0);
        assert_eq!(Motion::Takes.per_message(8.0, 120.0, 10), 12.0);
    }
}
