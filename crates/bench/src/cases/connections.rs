//! Connections: latency on one connection while many others are open and idle.

use crate::cases::{Apart, Case, References, nothing, shape, variants};
use crate::error::{Error, Result};
use crate::layers::Layer;
use crate::layers::ofi::direct;
use crate::layers::via::plain;
use crate::plan::{Motion, Point, Settings, Variant};

pub(super) const CASE: Case = Case {
    name: "connections",
    about: "what it costs the one busy connection that many others are open",
    unit: "us",
    lower_is_better: true,
    sizes: &[16],
    value: |ns, _| ns / 1e3,
    points,
    timed: "ping-pong on one connection, one way = half of the round trip, with the others open and idle",
    window: 1,
    axis: "connections",
    references: References::All,
    logp: Apart::Interrupted,
    via: plain,
    ofi: Some(direct::plain),
    derive: nothing,
};

const COUNTS: &[usize] = &[1, 2, 16, 128, 1024];

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    if let Some(layer) = settings.layers.iter().find(|layer| matches!(layer, Layer::Raw | Layer::Copy)) {
        return Err(Error::usage(
            format!("layer `{layer}` has no connections"),
            "compare a provider, unix or tcp",
        ));
    }
    let counts = if settings.connections.is_empty() { COUNTS } else { &settings.connections };
    let point = |size: &usize| {
        let shape = shape(Motion::PingPong, *size, CASE.window);
        let of_count = |count: &usize| {
            variants(
                settings,
                &settings.layers,
                &Variant { connections: *count, x: Some(*count as f64), ..shape.clone() },
            )
        };
        Point { size: *size, variants: counts.iter().flat_map(of_count).collect() }
    };
    Ok(sizes.iter().map(point).collect())
}
