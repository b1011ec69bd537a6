//! What cases have in common whose two ends spin: a core for each, no waiting mode, and few sizes in a hurry.

use crate::cases::variants;
use crate::error::{Error, Result};
use crate::plan::{Point, Settings, Variant, Wait};

/// Sizes of a stream in a quick run.
pub(super) const QUICK: &[usize] = &[4 << 10, 64 << 10];

/// One point for each size (in a quick run for each of `quick`), with the curves that `shapes` gives for it.
pub(super) fn points(
    settings: &Settings,
    case: &str,
    (sizes, quick): (&[usize], &[usize]),
    shapes: impl Fn(usize) -> Result<Vec<Variant>>,
) -> Result<Vec<Point>> {
    spins(settings, case)?;
    let point = |size: &usize| {
        let shapes = shapes(*size)?;
        let size = shapes.first().map_or(*size, |shape| shape.size);
        let all = shapes.iter().flat_map(|shape| variants(settings, &settings.layers, shape));
        // Memory wakes no sleeper, nor does one direction wake an end that waits for the other.
        let variants = all.map(|variant| Variant { wait: Wait::Poll, ..variant }).collect();
        Ok(Point { size, variants })
    };
    settings.quickly(sizes, quick).iter().map(point).collect()
}

/// Both ends spin, so each needs a core.
pub(super) fn spins(settings: &Settings, case: &str) -> Result<()> {
    if !settings.one_core() {
        return Ok(());
    }
    Err(Error::usage(
        format!("both processes of `{case}` spin, and one core cannot run both"),
        "give each its own core: --cpus 0,1",
    ))
}
