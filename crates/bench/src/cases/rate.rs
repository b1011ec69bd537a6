//! Rate: small messages one way, many of them under way at a time.

use crate::cases::{Apart, Case, References, nothing, shape, variants, with_extra};
use crate::error::Result;
use crate::layers::Layer;
use crate::layers::ofi::direct;
use crate::layers::via::plain;
use crate::plan::{Motion, Point, Settings, Variant};

pub(super) const CASE: Case = Case {
    name: "rate",
    about: "how many small messages a second one process can send to another",
    unit: "Mmsg/s",
    lower_is_better: false,
    sizes: &[8],
    value: |ns, _| 1e3 / ns,
    points,
    timed: "a stream of messages with a window, from the first post to the acknowledgement of the last. Viaduct's \
            receiver takes up to 16 messages, and posts as many receives, at a time (--batch); tcp has Nagle's \
            algorithm on, which is its faster mode here",
    window: 64,
    axis: "",
    references: References::All,
    logp: Apart::Not,
    via: plain,
    ofi: Some(direct::plain),
    derive: nothing,
};

/// Messages that the receiver takes at a time.
const BATCH: usize = 16;

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    let window = settings.window.unwrap_or(CASE.window);
    let batch = settings.batch.unwrap_or(BATCH);
    let layers = with_extra(&settings.layers, Layer::Tcp, Layer::TcpNodelay);
    let point = |size: &usize| Point {
        size: *size,
        variants: variants(
            settings,
            &layers,
            &Variant { nagle: true, ..shape(Motion::Stream, *size, window) }.with("batch", batch as u64),
        ),
    };
    Ok(sizes.iter().map(point).collect())
}
