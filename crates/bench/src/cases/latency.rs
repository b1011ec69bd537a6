//! Latency: one message there, one back; half of the round trip.

use crate::cases::{Apart, Case, References, nothing, shape, variants, with_extra};
use crate::error::Result;
use crate::layers::ofi::direct;
use crate::layers::via::plain;
use crate::layers::{Layer, cold};
use crate::plan::{Motion, Point, Settings, Wait};

pub(super) const CASE: Case = Case {
    name: "latency",
    about: "how long one message takes from process to process",
    unit: "us",
    lower_is_better: true,
    sizes: &[8, 64, 1 << 10, 4 << 10, 64 << 10],
    value: |ns, _| ns / 1e3,
    points,
    timed: "ping-pong of one message, one way = half of the round trip; short round trips are timed in batches, and \
            the percentiles are then of batch means",
    window: 1,
    axis: "",
    references: References::All,
    logp: Apart::Interrupted,
    via: plain,
    ofi: Some(direct::plain),
    derive: nothing,
};

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    // A comparison with TCP needs both: the usual blocking calls, and TCP that spins as we do.
    let layers = match settings.wait {
        Wait::Poll if !settings.one_core() => with_extra(&settings.layers, Layer::Tcp, Layer::TcpSpin),
        _ => settings.layers.clone(),
    };
    let point = |size: &usize| Point {
        size: *size,
        variants: variants(settings, &layers, &shape(Motion::PingPong, *size, CASE.window)),
    };
    let mut points: Vec<Point> = sizes.iter().map(point).collect();
    cold::extend(settings, &mut points, |size| shape(Motion::PingPong, size, CASE.window))?;
    Ok(points)
}
