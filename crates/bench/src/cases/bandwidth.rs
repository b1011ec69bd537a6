//! Bandwidth: many messages one way, a few of them under way at a time, every byte read by the receiver.

use crate::cases::{Apart, Case, References, nothing, shape, variants};
use crate::error::Result;
use crate::layers::cold;
use crate::layers::ofi::direct;
use crate::layers::via::plain;
use crate::plan::{Motion, Point, Settings};

pub(super) const CASE: Case = Case {
    name: "bandwidth",
    about: "how many bytes a second one process can hand to another that reads them",
    unit: "MB/s",
    lower_is_better: false,
    sizes: &[4 << 10, 64 << 10, 1 << 20],
    value: |ns, size| size as f64 / ns * 1e3,
    points,
    timed: "a stream from the first post to the acknowledgement of the last message; the receiver reads every byte \
            inside that time (MB = 10^6 bytes)",
    window: 4,
    axis: "",
    references: References::All,
    logp: Apart::Not,
    via: plain,
    ofi: Some(direct::plain),
    derive: nothing,
};

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    let window = settings.window.unwrap_or(CASE.window);
    let point = |size: &usize| Point {
        size: *size,
        variants: variants(settings, &settings.layers, &shape(Motion::Stream, *size, window)),
    };
    let mut points: Vec<Point> = sizes.iter().map(point).collect();
    cold::extend(settings, &mut points, |size| shape(Motion::Stream, size, window))?;
    Ok(points)
}
