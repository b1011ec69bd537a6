//! LogP (thesis, section 3.3, table 3.1, figures 3.5 and 3.6): what a message costs the sender and the receiver, how
//! long it is on its way, and how close one can follow another.
//!
//! Os, Or and g by two methods that know nothing of each other (`logp.rs`); L by the cycle counter that both cores
//! share. That Os + L + Or is the latency, and that the methods agree, is part of the result.

use crate::cases::parts::has_parts;
use crate::cases::{Apart, Case, shape, variants};
use crate::error::Result;
use crate::layers::interrupt::interrupted;
use crate::layers::via::plain;
use crate::plan::{Motion, Point, Settings, Variant};
use crate::schema::{Line, Measurement, Pair, VERSION};

pub(super) const CASE: Case = Case {
    name: "logp",
    about: "what a message costs sender (Os) and receiver (Or), how long it travels (L), how close they follow (g)",
    unit: "us",
    lower_is_better: true,
    sizes: &[4, 64, 1024, 4096, 32 << 10],
    value: |ns, _| ns / 1e3,
    points,
    timed: "Os: a post, in bursts of 16 on an idle connection; Or: taking a message that has come; Or-interrupt: what \
            a loop on the receiver's core loses to a message that a handler takes there; g: the time between \
            messages of a stream; one-way: from just before the post to just after the taking, by the shared cycle \
            counter; L = one-way - Os - Or. Os-train and g-train come from whole trains of messages alone",
    window: 64,
    axis: "",
    references: true,
    logp: Apart::Not,
    via: plain,
    derive,
};

/// The receive that interrupts.
pub(crate) const INTERRUPTED: &str = "Or-interrupt";

/// Messages of the trains with pauses.
const PAUSED: u64 = 9;

/// Messages of the long trains without pauses: so many that how they begin does not count, of long ones fewer.
fn plateau(size: usize) -> u64 {
    if size <= 4096 { 240 } else { 48 }
}

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    let point = |size: &usize| {
        let of = |motion, series: &str| {
            let window = if matches!(motion, Motion::PingPong | Motion::Takes | Motion::OneWay) {
                1
            } else {
                CASE.window
            };
            variants(settings, &settings.layers, &shape(motion, *size, window).on(series, None))
        };
        // A pause must be longer than a whole exchange, or the train would run into its own answer.
        let pause = 2_000 + *size as u64 / 2;
        let train = |messages, pause, series: &str| {
            let window = CASE.window.max(messages as usize);
            let with = |v: Variant| Variant { window, ..v }.with("train", messages).with("pause", pause);
            of(Motion::Trains, series).into_iter().map(with).collect::<Vec<_>>()
        };
        let all = [
            of(Motion::PingPong, "latency"),
            of(Motion::Posts, "Os"),
            of(Motion::Takes, "Or"),
            of(Motion::Stream, "g"),
            of(Motion::OneWay, "one-way"),
            train(1, 0, "train-1"),
            train(plateau(*size), 0, "train-n"),
            train(PAUSED, pause, "train-d"),
        ];
        let mut all: Vec<Variant> = all.into_iter().flatten().collect();
        if !settings.one_core() {
            let woken = of(Motion::Calls, INTERRUPTED).into_iter();
            all.extend(woken.filter(|v| has_parts(v.layer)).map(interrupted));
        }
        Point { size: *size, variants: all }
    };
    Ok(sizes.iter().map(point).collect())
}

/// L, the other method's Os and g, and how far the two agree.
pub(crate) fn derive(lines: &[Measurement]) -> Vec<Line> {
    let mut derived = Vec::new();
    let mut keys: Vec<_> = lines.iter().map(|l| (l.layer.clone(), l.placement.clone(), l.size)).collect();
    keys.sort();
    keys.dedup();
    for (layer, placement, size) in keys {
        let line = |series: &str| {
            lines.iter().find(|l| {
                l.layer == layer && l.placement == placement && l.size == size && l.series == series
            })
        };
        let value = |series: &str| line(series).and_then(|l| l.p50);
        let mut add = |series: &str, value: Option<f64>| -> Option<f64> {
            let (of, value) = (line("latency")?, value?);
            derived.push(self::derived(of, series, value));
            Some(value)
        };
        let l = add("L", value("one-way").zip(value("Os")).zip(value("Or")).map(|((t, os), or)| t - os - or));
        let per_message = |long: &str, n: u64| Some((value(long)? - value("train-1")?) / (n - 1) as f64);
        let os = add("Os-train", per_message("train-d", PAUSED));
        let g = add("g-train", per_message("train-n", plateau(size)));
        let sum = value("Os").zip(value("Or")).zip(l).map(|((os, or), l)| os + or + l);
        let noisy = ["latency", "Os", "Or", "g", "one-way"].iter().any(|s| line(s).is_none_or(|l| l.noisy));
        for (a, b, ratio) in [
            ("Os+L+Or", "latency", sum.zip(value("latency"))),
            ("Os-train", "Os", os.zip(value("Os"))),
            ("g-train", "g", g.zip(value("g"))),
        ] {
            if let Some((top, bottom)) = ratio.filter(|(_, bottom)| *bottom > 0.0) {
                derived.push(Line::Pair(Pair {
                    schema: VERSION,
                    case: CASE.name.into(),
                    size,
                    a: format!("{layer}/{a}"),
                    b: format!("{layer}/{b}"),
                    ratio: top / bottom,
                    ci95: [top / bottom; 2],
                    placement: placement.clone(),
                    n: 1,
                    noisy,
                }));
            }
        }
    }
    derived
}

/// A value that follows from others, beside the line `of`, in microseconds.
pub(crate) fn derived(of: &Measurement, series: &str, value: f64) -> Line {
    Line::Measurement(Box::new(Measurement {
        series: series.to_owned(),
        p50: Some(value),
        ns_per_message: Some(value * 1e3),
        ci95: None,
        min: None,
        p90: None,
        p99: None,
        p999: None,
        max: None,
        samples: 0,
        ..of.clone()
    }))
}
