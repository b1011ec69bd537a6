//! Pairs: several connections between the two processes that stream at once.
//!
//! The sender takes the connections in turn, and so does the receiver: what is seen is what it costs, or gains, that
//! the same bytes come by several ways.

use crate::cases::{Apart, Case, References, nothing, shape, variants};
use crate::error::Result;
use crate::layers::half::Half;
use crate::layers::via::Place;
use crate::loops::{End, Looped, Wire};
use crate::plan::{Motion, Point, Settings, Variant};

pub(super) const CASE: Case = Case {
    name: "pairs",
    about: "how many bytes a second pass over several connections at once",
    unit: "MB/s",
    lower_is_better: false,
    sizes: &[64, 4 << 10, 64 << 10],
    value: |ns, size| size as f64 / ns * 1e3,
    points,
    timed: "a stream over so many connections of the same two processes, each with a window of its own, from the first \
            post to the acknowledgement of the last message; the sum of all (MB = 10^6 bytes)",
    window: 4,
    axis: "pairs",
    references: References::None,
    via: end,
    ofi: None,
    derive: nothing,
    logp: Apart::Not,
};

const COUNTS: &[u64] = &[1, 2, 4];
const QUICK: &[usize] = &[64 << 10];

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    let window = settings.window.unwrap_or(CASE.window);
    let point = |size: &usize| {
        let of = |count: &u64| {
            let shape = shape(Motion::Stream, *size, window).on("", Some(*count as f64));
            variants(settings, &settings.layers, &Variant { connections: *count as usize, ..shape })
        };
        Point { size: *size, variants: COUNTS.iter().flat_map(of).collect() }
    };
    Ok(settings.quickly(sizes, QUICK).iter().map(point).collect())
}

fn end(mut place: Place) -> Result<Box<dyn End>> {
    let variant = place.variant.clone();
    let mut halves = Vec::with_capacity(variant.connections);
    for _ in 0..variant.connections {
        let half = Half::create(&mut place.nic, place.tag, &variant, place.side, place.patience.clone())?;
        place.join(half.vi(), &[])?;
        halves.push(half);
    }
    Ok(Box::new(Looped::new(Turns { place, halves }, &variant)))
}

struct Turns {
    place: Place,
    halves: Vec<Half>,
}

impl Turns {
    #[inline(always)]
    fn turn(&self, seq: u64) -> usize {
        (seq % self.halves.len() as u64) as usize
    }
}

impl Wire for Turns {
    #[inline(always)]
    fn send<const CHECK: bool>(&mut self, seq: u64) -> Result<()> {
        let turn = self.turn(seq);
        self.halves[turn].send::<true, CHECK>(&mut self.place.nic, seq)
    }

    #[inline(always)]
    fn recv<const CHECK: bool>(&mut self, seq: u64) -> Result<u64> {
        let turn = self.turn(seq);
        self.halves[turn].recv::<true, CHECK>(&mut self.place.nic, seq)
    }

    fn acknowledge(&mut self) -> Result<()> {
        self.halves.iter_mut().try_for_each(|half| half.acknowledge(&mut self.place.nic))
    }

    fn wait_acknowledged(&mut self) -> Result<()> {
        self.halves.iter_mut().try_for_each(|half| half.wait_acknowledged(&mut self.place.nic))
    }
}
