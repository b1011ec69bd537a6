//! Translation (Millennium Sort, figure 7): one-way time when the target is in the translation cache, and when it is not.
//!
//! The heir of that cache is the shm provider's cache of peers' slabs (`shm.map-cache`), which the sender looks into
//! when it copies into a posted receive. The case makes it small. Receives are posted slab by slab in turn: one slab
//! (hit), as many as fit (stride), or more, so that the one needed next is always the one that went (miss). The NIC's
//! counters prove it; where they do not, the data count as wrong.

use viaduct_via::{Counter, Descriptor, MemAttributes, Nic, Op};

use crate::cases::{Apart, Case, References, by_descriptor, nothing, shape};
use crate::error::Result;
use crate::layers::stock::{DescriptorPool, Manner, Pieces, Plain, descriptors};
use crate::layers::stocked::{Needs, stocked};
use crate::layers::via::Place;
use crate::loops::End;
use crate::plan::{Motion, Point, Run, Settings, Tally};

pub(super) const CASE: Case = Case {
    name: "translation",
    about: "how long a message takes when its target is mapped at the sender, and when it has to be mapped first",
    unit: "us",
    lower_is_better: true,
    sizes: &[1024, 4096, 32 << 10],
    value: |ns, _| ns / 1e3,
    points: |settings, sizes| {
        points(settings, settings.sizes.is_empty() && settings.quick, sizes, Motion::PingPong)
    },
    timed: "ping-pong by descriptor, one way = half of the round trip. The targets lie in one slab (hit), in as many as \
            the sender keeps mapped (stride), or in more, in turn (miss: each is asked for and mapped again). miss_rate \
            (in JSON) is the share of messages whose target was not mapped",
    window: 1,
    axis: "",
    references: References::None,
    logp: Apart::Polled,
    via: build,
    ofi: None,
    derive: nothing,
};

/// Slabs that the sender keeps mapped.
const MAPPED: u64 = 4;
/// Series and number of slabs.
const SERIES: &[(&str, u64)] = &[("hit", 1), ("stride", MAPPED), ("miss", MAPPED + 2)];
/// The shm provider gives a block of this length a slab of its own.
const SLAB: usize = 8 << 20;

/// Points of this case and of its stream.
pub(super) fn points(
    settings: &Settings,
    quick: bool,
    sizes: &[usize],
    motion: Motion,
) -> Result<Vec<Point>> {
    let sizes = if quick { &sizes[1..2] } else { sizes };
    let window = if motion.is_stream() { settings.window.unwrap_or(4) } else { 1 };
    let point = |size: &usize| {
        let of = |(series, slabs): &(&str, u64)| {
            let missing = *slabs > MAPPED;
            let shape = shape(motion, *size, window)
                .on(series, None)
                .with("slabs", *slabs)
                .with("map-cache", MAPPED)
                .with("missing", u64::from(missing))
                // The threads that ask and answer take the cores from those that wait: part of what is measured.
                .with("helped", u64::from(missing));
            by_descriptor(settings, &shape)
        };
        Point { size: *size, variants: SERIES.iter().flat_map(of).collect() }
    };
    Ok(sizes.iter().map(point).collect())
}

/// An end of this case and of its stream.
pub(super) fn build(mut place: Place) -> Result<Box<dyn End>> {
    let size = place.variant.size;
    let needs = Needs::of(&place.variant, place.side);
    let sends = descriptors(&mut place.nic, place.tag, Op::Send, needs.sends + 1, Pieces::whole(size));
    let sends = sends.map_err(|e| place.failed(&e))?;
    let slabs = place.variant.arg("slabs");
    let receives =
        if needs.receives == 0 { Vec::new() } else { in_turn(&mut place, slabs as usize, &needs)? };
    let missing = place.variant.arg("missing") == 1;
    let pool = DescriptorPool::new(sends, receives, size, false);
    let watched = Watched { plain: Plain::new(size), slabs, missing, before: [0; 2] };
    stocked(place, pool.with(watched), None)
}

/// Receives over several slabs, such that each lies in another slab than the one before it.
fn in_turn(place: &mut Place, slabs: usize, needs: &Needs) -> Result<Vec<Descriptor>> {
    let (size, each) = (place.variant.size, (needs.receives + 1).div_ceil(slabs));
    let step = Pieces::whole(size).step;
    let mut blocks = Vec::new();
    for _ in 0..slabs {
        let memory = place.nic.alloc(SLAB.max(step * each), MemAttributes::local(place.tag));
        blocks.push(memory.map_err(|e| place.failed(&e))?.chunks(step).into_iter().take(each));
    }
    let turn = |_| blocks.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>();
    let buffers = (0..each).flat_map(turn);
    Ok(buffers.map(|buffer| Descriptor::new(Op::Receive).segment_range(buffer, 0..size)).collect())
}

/// Plain messages, with an eye on the mapping cache of the NIC.
struct Watched {
    plain: Plain,
    slabs: u64,
    missing: bool,
    /// Misses and evictions when the slice began.
    before: [u64; 2],
}

impl Manner for Watched {
    fn plain(&mut self) -> &mut Plain {
        &mut self.plain
    }

    fn begin(&mut self, nic: &Nic) {
        self.before = counted(nic);
    }

    fn finish(&mut self, nic: &Nic, run: &Run, sent: u64, tally: &mut Tally) {
        if sent == 0 {
            return;
        }
        let now = counted(nic);
        let [misses, evictions] = [now[0] - self.before[0], now[1] - self.before[1]];
        tally.extra.insert("miss_rate".into(), misses as f64 / sent as f64);
        if run.check && !proven(self.missing, self.slabs, sent, misses, evictions) {
            tally.bad += 1;
        }
    }
}

fn counted(nic: &Nic) -> [u64; 2] {
    [Counter::MapMisses, Counter::MapEvictions].map(|counter| nic.counters().read(counter))
}

/// Whether the counters say what the series says. At first nothing is mapped: a miss for each slab is no fault, and the
/// first few take no other's place.
fn proven(missing: bool, slabs: u64, sent: u64, misses: u64, evictions: u64) -> bool {
    if missing {
        let least = sent - sent / 20;
        misses >= least && evictions + MAPPED >= least
    } else {
        misses <= slabs && evictions == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_only_what_the_counters_say() {
        assert!(proven(false, 1, 1000, 1, 0) && proven(false, 4, 1000, 0, 0));
        assert!(!proven(false, 4, 1000, 5, 0) && !proven(false, 4, 1000, 2, 1));
        assert!(proven(true, 6, 1000, 1000, 996) && proven(true, 6, 1000, 960, 960));
        assert!(!proven(true, 6, 1000, 900, 900) && !proven(true, 6, 1000, 1000, 0));
    }
}
