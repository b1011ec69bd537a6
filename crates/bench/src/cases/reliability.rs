//! Reliability: what VIA's three levels cost, by size.

use viaduct_via::Reliability;

use crate::cases::{Apart, Case, References, nothing, shape, variants};
use crate::error::Result;
use crate::layers::via::plain;
use crate::plan::{Motion, Point, SendMode, Settings, Variant};

pub(super) const CASE: Case = Case {
    name: "reliability",
    about: "what it costs to be sure that a message arrives: VIA's three levels",
    unit: "us",
    lower_is_better: true,
    sizes: &[8, 64, 1 << 10, 4 << 10, 64 << 10],
    value: |ns, _| ns / 1e3,
    points,
    timed: "ping-pong of one message, one way = half of the round trip; unreliable: messages may be lost and a send is \
            done when it has left; delivery: a send is done when it is sure to arrive; reception: when it has arrived \
            in the receiver's memory. All messages go by descriptor, and completions are reaped on the way",
    window: 1,
    axis: "",
    references: References::None,
    via: plain,
    ofi: None,
    derive: nothing,
    logp: Apart::Polled,
};

const LEVELS: &[(&str, Reliability)] = &[
    ("unreliable", Reliability::Unreliable),
    ("delivery", Reliability::ReliableDelivery),
    ("reception", Reliability::ReliableReception),
];

const QUICK: &[usize] = &[8, 4 << 10];

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    let point = |size: &usize| {
        let of = |(series, level): &(&str, Reliability)| {
            let shape = shape(Motion::PingPong, *size, CASE.window).on(series, None);
            let all = variants(settings, &settings.layers, &shape.with("level", *level as u64));
            // Messages sent by value have no completion that a level could change.
            all.into_iter().map(|v| Variant { send: SendMode::Descriptor, ..v }).collect::<Vec<_>>()
        };
        Point { size: *size, variants: LEVELS.iter().flat_map(of).collect() }
    };
    Ok(settings.quickly(sizes, QUICK).iter().map(point).collect())
}
