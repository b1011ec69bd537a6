//! Segments (thesis, section 3.7, figure 3.10): messages whose bytes lie in pieces, a page or a cache line apart.
//!
//! The NIC may gather them when it sends, scatter them when it receives, or both; the rival is a program that copies
//! the pieces into one buffer itself, and out of it at the other end.

mod direct;

use viaduct_via::{Completion, Descriptor, Op};

use crate::cases::{Apart, Case, References, by_descriptor, nothing, shape};
use crate::error::Result;
use crate::layers::stock::{DescriptorPool, Manner, Pieces, Plain, descriptors, wrong};
use crate::layers::stocked::{Needs, stocked};
use crate::layers::via::Place;
use crate::loops::End;
use crate::pattern;
use crate::plan::{Motion, Point, Settings, Variant};
use crate::raw::{renew_bytes, sum};

pub(super) const CASE: Case = Case {
    name: "segments",
    about: "what it costs that a message lies in pieces, gathered and scattered by the NIC or packed by the program",
    unit: "us",
    lower_is_better: true,
    sizes: &[64, 1024, 4096, 64 << 10],
    value: |ns, _| ns / 1e3,
    points,
    timed: "ping-pong of one message by descriptor, one way = half of the round trip. Its pieces lie a page apart, in \
            the series -line a cache line: gather sends from them, scatter receives into them, both does both; pack \
            copies them into one buffer before the send and out of one after the receive. In all of them the sender \
            first writes to every line of its message",
    window: 1,
    axis: "segments",
    references: References::None,
    logp: Apart::Polled,
    via: build,
    ofi: Some(direct::build),
    derive: nothing,
};

const PLACES: &[usize] = &[1, 2, 4, 8, 16, 32, 64];
/// Away from the size of the thesis, and for a first impression.
const FEWER: &[usize] = &[1, 4, 16, 64];
const FEWEST: &[usize] = &[1, 16];

/// One way to send a message in pieces.
struct Series {
    name: &'static str,
    gather: bool,
    scatter: bool,
    /// The program copies.
    pack: bool,
    /// The pieces lie a cache line apart instead of a page.
    line: bool,
}

const fn series(name: &'static str, [gather, scatter, pack, line]: [bool; 4]) -> Series {
    Series { name, gather, scatter, pack, line }
}

const SERIES: &[Series] = &[
    series("gather", [true, false, false, false]),
    series("scatter", [false, true, false, false]),
    series("both", [true, true, false, false]),
    series("pack", [false, false, true, false]),
    series("gather-line", [true, false, false, true]),
    series("both-line", [true, true, false, true]),
    series("pack-line", [false, false, true, true]),
];

/// Sizes at which the distance is varied too: that of the thesis, and a page.
const BY_LINE: &[usize] = &[1024, 4096];

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    let quick = settings.quick && settings.sizes.is_empty();
    let sizes = if quick { &[4096] } else { sizes };
    let point = |size: &usize| {
        let places = match size {
            _ if settings.quick => FEWEST,
            1024 => PLACES,
            _ => FEWER,
        };
        let mut all = Vec::new();
        // A piece has at least one byte.
        for segments in places.iter().filter(|segments| **segments <= (*size).max(1)) {
            // One piece is not apart from anything.
            let apart = *segments > 1 && BY_LINE.contains(size);
            for series in SERIES.iter().filter(|series| apart || !series.line) {
                let shape = shape(Motion::PingPong, *size, CASE.window)
                    .on(series.name, Some(*segments as f64))
                    .with("segments", *segments as u64)
                    .with("gather", u64::from(series.gather))
                    .with("scatter", u64::from(series.scatter))
                    .with("pack", u64::from(series.pack))
                    .with("line", u64::from(series.line));
                all.extend(by_descriptor(settings, &shape));
            }
        }
        Point { size: *size, variants: all }
    };
    Ok(sizes.iter().map(point).collect())
}

/// How the pieces of a message lie.
fn pieces(variant: &Variant) -> Pieces {
    let lie = if variant.arg("line") == 1 { Pieces::lines } else { Pieces::pages };
    lie(variant.size, variant.arg("segments").max(1) as usize)
}

/// How the end that `by` names has its message: whole, if the variant does not say otherwise.
fn cut(variant: &Variant, by: &str) -> Pieces {
    if variant.arg(by) == 1 { pieces(variant) } else { Pieces::whole(variant.size) }
}

fn build(mut place: Place) -> Result<Box<dyn End>> {
    let size = place.variant.size;
    let needs = Needs::of(&place.variant, place.side);
    let (out, inn) = (cut(&place.variant, "gather"), cut(&place.variant, "scatter"));
    // One more than are posted: the answer may be sent before the last completion is seen.
    let sends = descriptors(&mut place.nic, place.tag, Op::Send, needs.sends + 1, out);
    let sends = sends.map_err(|e| place.failed(&e))?;
    let receives = descriptors(&mut place.nic, place.tag, Op::Receive, needs.receives, inn);
    let receives = receives.map_err(|e| place.failed(&e))?;
    let pool = DescriptorPool::new(sends, receives, size, true);
    if place.variant.arg("pack") == 1 {
        let packed = Packed::new(pieces(&place.variant));
        return stocked(place, pool.with(packed), None);
    }
    stocked(place, pool.renewed(), None)
}

/// The program packs: its pieces lie in memory of its own.
struct Packed {
    plain: Plain,
    /// Start in the message, start in the memory, length.
    cuts: Vec<(usize, usize, usize)>,
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Packed {
    fn new(pieces: Pieces) -> Packed {
        let memory = vec![1; pieces.step * pieces.segments];
        Packed { plain: Plain::new(pieces.size), cuts: pieces.apart(), from: memory.clone(), to: memory }
    }
}

impl Manner for Packed {
    fn plain(&mut self) -> &mut Plain {
        &mut self.plain
    }

    #[inline(always)]
    fn write<const CHECK: bool>(&mut self, descriptor: &mut Descriptor, seq: u64) {
        // What is sent in a validation pass are the pieces, so that the copying is checked as well.
        if CHECK {
            let whole = &mut self.plain.scratch;
            pattern::fill(whole, seq);
            for (start, at, len) in &self.cuts {
                self.from[*at..at + len].copy_from_slice(&whole[*start..start + len]);
            }
        } else {
            self.cuts.iter().for_each(|(_, at, len)| renew_bytes(&mut self.from[*at..at + len], seq as u8));
        }
        for (start, at, len) in &self.cuts {
            descriptor.write(0, *start, &self.from[*at..at + len]);
        }
    }

    #[inline(always)]
    fn read<const CHECK: bool>(&mut self, done: &Completion, seq: u64) -> u64 {
        let buffer = &done.descriptor.buffers()[0];
        for (start, at, len) in &self.cuts {
            buffer.read(*start, &mut self.to[*at..at + len]);
        }
        if !CHECK {
            let pieces = self.cuts.iter().map(|(_, at, len)| sum(&self.to[*at..at + len]));
            return pieces.fold(0, u64::wrapping_add);
        }
        let whole = &mut self.plain.scratch;
        for (start, at, len) in &self.cuts {
            whole[*start..start + len].copy_from_slice(&self.to[*at..at + len]);
        }
        wrong(whole, done, seq)
    }
}
