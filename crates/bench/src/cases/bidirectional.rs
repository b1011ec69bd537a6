//! Bidirectional bandwidth: both processes send and receive at the same time.
//!
//! One connection for each direction; each process sends when there is room and takes what has come, in turns.

use crate::cases::spinning::{self, QUICK};
use crate::cases::{Apart, Case, References, nothing, shape};
use crate::control::Turns;
use crate::error::Result;
use crate::layers::half::{Half, Side};
use crate::layers::via::Place;
use crate::loops::{End, tally};
use crate::plan::{Motion, Point, Run, Settings, Tally};
use crate::timer::Timer;

pub(super) const CASE: Case = Case {
    name: "bidirectional",
    about: "how many bytes a second two processes can hand to each other, both ways at once",
    unit: "MB/s",
    lower_is_better: false,
    sizes: &[4 << 10, 64 << 10, 1 << 20],
    // A message each way.
    value: |ns, size| 2.0 * size as f64 / ns * 1e3,
    points,
    timed: "two streams, one each way, from the first post until all has been read on both sides; the sum of both \
            directions (MB = 10^6 bytes)",
    window: 4,
    axis: "",
    references: References::None,
    via: end,
    ofi: None,
    derive: nothing,
    logp: Apart::Not,
};

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    let window = settings.window.unwrap_or(CASE.window);
    spinning::points(settings, CASE.name, (sizes, QUICK), |size| {
        Ok(vec![shape(Motion::Stream, size, window)])
    })
}

fn end(mut place: Place) -> Result<Box<dyn End>> {
    let half = |place: &mut Place, side: Side| -> Result<Half> {
        let half = Half::create(&mut place.nic, place.tag, &place.variant, side, place.patience.clone())?;
        place.join(half.vi(), &[])?;
        Ok(half)
    };
    // The first connection carries what the first process sends.
    let (there, back) = match place.side {
        Side::Lead => (Side::Lead, Side::Follow),
        Side::Follow => (Side::Follow, Side::Lead),
    };
    let first = half(&mut place, there)?;
    let second = half(&mut place, back)?;
    let (out, into) = if place.side == Side::Lead { (first, second) } else { (second, first) };
    Ok(Box::new(Both { place, out, into, next: 1 }))
}

struct Both {
    place: Place,
    out: Half,
    into: Half,
    next: u64,
}

impl Both {
    #[inline(never)]
    fn run<const CHECK: bool>(&mut self, run: &Run) -> Result<Tally> {
        let (nic, end) = (&mut self.place.nic, self.next + run.count);
        let (mut total, mut send, mut recv) = (0u64, self.next, self.next);
        let mut turns = Turns::default();
        self.next = end;
        while send < end || recv < end {
            if send < end && self.out.has_room(nic)? {
                self.out.send::<true, CHECK>(nic, send)?;
                send += 1;
            }
            if recv < end
                && let Some(value) = self.into.try_recv::<CHECK>(nic, recv)?
            {
                total = total.wrapping_add(value);
                recv += 1;
            }
            turns.count(&self.place.patience, "streaming both ways")?;
        }
        self.into.acknowledge(nic)?;
        self.out.wait_acknowledged(nic)?;
        Ok(tally::<CHECK>(total))
    }
}

impl End for Both {
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        let before = timer.ticks();
        let tally = self.follow(run)?;
        samples.push(timer.ticks() - before);
        Ok(tally)
    }

    fn follow(&mut self, run: &Run) -> Result<Tally> {
        if run.check { self.run::<true>(run) } else { self.run::<false>(run) }
    }
}
