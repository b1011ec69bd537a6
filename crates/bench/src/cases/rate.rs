//! Rate: small messages one way, many of them under way at a time.

use crate::cases::{Case, nothing, shape, variants, with_extra};
use crate::error::Result;
use crate::layers::Layer;
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
    timed: "a stream of messages with a window, from the first post to the acknowledgement of the last; tcp has \
            Nagle's algorithm on, which is its faster mode here",
    window: 64,
    axis: "",
    references: true,
    logp: false,
    via: plain,
    derive: nothing,
};

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    let window = settings.window.unwrap_or(CASE.window);
    let layers = with_extra(&settings.layers, Layer::Tcp, Layer::TcpNodelay);
    let point = |size: &usize| Point {
        size: *size,
        variants: variants(
            settings,
            &layers,
            &Variant { nagle: true, ..shape(Motion::Stream, *size, window) },
        ),
    };
    Ok(sizes.iter().map(point).collect())
}
