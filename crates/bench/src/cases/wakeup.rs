//! Wake-up: how long a message takes to a receiver that has been waiting for a while.
//!
//! The receiver waits in the blocking call, the sender lets a gap pass, then sends. Short gaps find a receiver that
//! still spins, longer ones a sleeping thread, long ones a core that has gone to rest. One way, by the cycle counter
//! that both cores share.

use std::time::Duration;

use viaduct_os::clock::Tsc;

use crate::cases::{Apart, Case, References, nothing, shape, variants};
use crate::error::Result;
use crate::layers::half::Half;
use crate::layers::via::Place;
use crate::loops::{End, tally};
use crate::plan::{Motion, Point, Run, Settings, Tally, Variant, Wait};
use crate::timer::Timer;

pub(super) const CASE: Case = Case {
    name: "wakeup",
    about: "how long a message takes to a receiver that blocks, after a pause",
    unit: "us",
    lower_is_better: true,
    sizes: &[8],
    value: |ns, _| ns / 1e3,
    points,
    timed: "one way by the shared cycle counter, from just before the post to just after the blocking call returned; \
            before each message the sender pauses for so many microseconds after the answer to the last one",
    window: 1,
    axis: "idle_us",
    references: References::Sockets,
    via: end,
    ofi: None,
    derive: nothing,
    logp: Apart::Not,
};

const GAPS: &[u64] = &[1, 10, 100, 1_000, 10_000, 100_000];
const QUICK: &[u64] = &[1, 100, 10_000];

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    let point = |size: &usize| {
        let of = |gap: &u64| {
            // About 20 ms of pauses, without too many notes or too few messages.
            let count = (20_000 / (gap + 20)).clamp(2, 250);
            let shape = shape(Motion::OneWay, *size, CASE.window).on("", Some(*gap as f64));
            let shape = shape.with("count", count).with("pause", gap * 1000);
            let all = variants(settings, &settings.layers, &shape);
            all.into_iter().map(|v| Variant { wait: v.layer.wait(Wait::Block), ..v }).collect::<Vec<_>>()
        };
        let gaps = settings.places(GAPS, QUICK);
        Point { size: *size, variants: gaps.iter().flat_map(of).collect() }
    };
    Ok(sizes.iter().map(point).collect())
}

fn end(mut place: Place) -> Result<Box<dyn End>> {
    let half = Half::create(&mut place.nic, place.tag, &place.variant, place.side, place.patience.clone())?;
    place.join(half.vi(), &[])?;
    let gap = Duration::from_micros(place.variant.x.unwrap_or(0.0) as u64);
    Ok(Box::new(Sleeper { place, half, gap, next: 1 }))
}

struct Sleeper {
    place: Place,
    half: Half,
    gap: Duration,
    next: u64,
}

impl Sleeper {
    fn wake<const CHECK: bool>(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        let (mut total, first) = (0u64, self.next);
        self.next += run.count;
        for seq in first..self.next {
            timer.pause(self.gap);
            samples.push(timer.ticks());
            self.half.send::<false, CHECK>(&mut self.place.nic, seq)?;
            total = total.wrapping_add(self.half.recv::<false, CHECK>(&mut self.place.nic, seq)?);
        }
        Ok(tally::<CHECK>(total))
    }

    fn sleep<const CHECK: bool>(&mut self, run: &Run) -> Result<Tally> {
        let (mut total, first) = (0u64, self.next);
        self.next += run.count;
        let mut samples = Vec::with_capacity(run.count as usize);
        for seq in first..self.next {
            total = total.wrapping_add(self.half.recv::<false, CHECK>(&mut self.place.nic, seq)?);
            samples.push(Tsc::cycles());
            self.half.send::<false, CHECK>(&mut self.place.nic, seq)?;
        }
        Ok(Tally { samples, ..tally::<CHECK>(total) })
    }
}

impl End for Sleeper {
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        if run.check {
            self.wake::<true>(run, timer, samples)
        } else {
            self.wake::<false>(run, timer, samples)
        }
    }

    fn follow(&mut self, run: &Run) -> Result<Tally> {
        if run.check { self.sleep::<true>(run) } else { self.sleep::<false>(run) }
    }
}
