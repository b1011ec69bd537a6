//! Off-cache: every message from and into other memory, through more of it than the last-level cache holds.
//!
//! A ping-pong from one buffer is measured in the cache, where few programs find their data. Here both ends go through
//! buffers in turn (IMB calls it off-cache), on providers and on the kernel's byte streams alike. Only messages of a page
//! and more: the lines of smaller ones would all fit.

use viaduct_via::Op;

use crate::cases::variants;
use crate::error::{Error, Result};
use crate::host;
use crate::layers::Layer;
use crate::layers::stock::{DescriptorPool, Pieces, descriptors};
use crate::layers::stocked::{Needs, stocked};
use crate::layers::via::Place;
use crate::loops::End;
use crate::plan::{Point, Settings, Variant};

/// Smallest message whose buffers can be made to fill the cache.
const SMALLEST: usize = 4096;

/// Bytes that an end goes through in each direction: twice the cache, and not less than 64 MiB.
pub(crate) fn memory() -> usize {
    (2 * host::last_level_cache()).max(64 << 20)
}

/// If asked for, adds a cold curve to every point of `shapes` that is large enough.
pub(crate) fn extend(
    settings: &Settings,
    points: &mut [Point],
    shape: impl Fn(usize) -> Variant,
) -> Result<()> {
    if !settings.cold {
        return Ok(());
    }
    let mut found = false;
    for point in points.iter_mut().filter(|point| point.size >= SMALLEST) {
        let buffers = memory().div_ceil(Pieces::whole(point.size).step);
        let cold = shape(point.size).on("cold", None).with("cold", buffers as u64);
        let layers: Vec<Layer> = settings.layers.iter().copied().filter(|layer| can(*layer)).collect();
        found |= !layers.is_empty();
        point.variants.extend(variants(settings, &layers, &cold));
    }
    if found {
        return Ok(());
    }
    Err(Error::usage(
        "nothing here can be measured out of the cache",
        "--cold needs --sizes of 4K or more, and a provider between processes or a kernel's layer",
    ))
}

/// Layers whose messages have a place in memory at both ends; the bare ones have a ring, and loopback one process.
fn can(layer: Layer) -> bool {
    !layer.is_one_process() && !matches!(layer, Layer::Raw | Layer::Copy)
}

/// In words, for readers of the numbers.
pub(crate) fn words() -> String {
    format!(
        "cold: each message of 4K or more from and into other buffers in turn, {} MB in each direction at each end; the \
         last-level cache has {} MB. Without it: the same few buffers, which stay in the cache.",
        memory() >> 20,
        host::last_level_cache() >> 20
    )
}

/// An end on a provider.
pub(crate) fn end(mut place: Place) -> Result<Box<dyn End>> {
    let (size, buffers) = (place.variant.size, place.variant.arg("cold") as usize);
    let needs = Needs::of(&place.variant, place.side);
    let at_least = |needed: usize| if needed == 0 { 0 } else { buffers.max(needed + 1) };
    let mut pool = |op, needed| {
        let all = descriptors(&mut place.nic, place.tag, op, at_least(needed), Pieces::whole(size));
        all.map_err(|e| place.failed(&e))
    };
    let sends = pool(Op::Send, needs.sends)?;
    let receives = pool(Op::Receive, needs.receives)?;
    stocked(place, DescriptorPool::new(sends, receives, size, false), None)
}

/// Memory that a byte stream goes through piece by piece.
pub(crate) struct Pages {
    memory: Vec<u8>,
    size: usize,
    step: usize,
    at: usize,
}

impl Pages {
    /// Pieces of `size` bytes: one, or as many as `variant` wants if it is cold.
    pub(crate) fn new(variant: &Variant, size: usize, fill: u8) -> Pages {
        let step = size.next_multiple_of(4096);
        let count = match variant.arg("cold") {
            0 => 1,
            _ => memory().div_ceil(step),
        };
        Pages { memory: vec![fill; if count == 1 { size } else { step * count }], size, step, at: 0 }
    }

    /// The piece in hand.
    #[inline(always)]
    pub(crate) fn here(&self) -> &[u8] {
        &self.memory[self.at..self.at + self.size]
    }

    /// The memory of a message, to be written.
    #[inline(always)]
    pub(crate) fn here_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.at..self.at + self.size]
    }

    /// Goes on to the next piece.
    #[inline(always)]
    pub(crate) fn turn(&mut self) {
        self.at += self.step;
        if self.at + self.size > self.memory.len() {
            self.at = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Case, shape};
    use crate::plan::Motion;

    #[test]
    fn more_than_the_cache_is_gone_through() {
        assert!(memory() >= 2 * host::last_level_cache() && memory() >= 64 << 20);
        let cold = shape(Motion::Stream, 5000, 4).with("cold", 1);
        let mut pages = Pages::new(&cold, 5000, 1);
        let mut seen = std::collections::BTreeSet::new();
        while seen.insert(pages.here().as_ptr().addr()) {
            pages.turn();
        }
        assert!(seen.len() * 8192 >= memory(), "{} pieces", seen.len());
        let mut warm = Pages::new(&shape(Motion::Stream, 5000, 4), 5000, 1);
        let first = warm.here().as_ptr();
        warm.turn();
        assert_eq!(warm.here().as_ptr(), first, "always the same");
    }

    #[test]
    fn only_what_can_be_cold_is() {
        let cpus = viaduct_os::cpu::allowed();
        let plan = |case: &str, layers: &[Layer], sizes: &[usize]| {
            let mut settings = Settings::new(layers.to_vec(), [cpus[0], *cpus.last().unwrap()]);
            (settings.cold, settings.sizes, settings.wait) = (true, sizes.to_vec(), crate::plan::Wait::Block);
            let points = Case::find(case).unwrap().plan(&settings)?;
            let all = points.iter().flat_map(|point| &point.variants);
            Ok::<_, Error>(all.filter(|v| v.series == "cold").map(|v| (v.layer, v.size)).collect::<Vec<_>>())
        };
        let both = [Layer::Via("shm"), Layer::Tcp];
        assert_eq!(
            plan("latency", &both, &[8, 4096]).unwrap(),
            [(Layer::Via("shm"), 4096), (Layer::Tcp, 4096)]
        );
        assert_eq!(plan("bandwidth", &[Layer::Pipe], &[65_536]).unwrap(), [(Layer::Pipe, 65_536)]);
        for (case, layers, size) in
            [("latency", &both[..], 8), ("rate", &both, 4096), ("latency", &[Layer::Raw], 4096)]
        {
            assert!(plan(case, layers, &[size]).is_err_and(|error| error.is_usage()), "{case}");
        }
    }
}
