//! LogP (thesis, section 3.3, table 3.1, figures 3.5 and 3.6): what a message costs the sender and the receiver, how
//! long it is on its way, and how close one can follow another.
//!
//! Os, Or and g by two methods that know nothing of each other (`logp.rs`); L by the cycle counter that both cores
//! share. That Os + L + Or is the latency, and that the methods agree, is part of the result.

use std::collections::BTreeMap;

use crate::cases::parts::has_parts;
use crate::cases::{Apart, Case, References, shape, variants};
use crate::error::Result;
use crate::layers::interrupt::interrupted;
use crate::layers::ofi::direct;
use crate::layers::via::plain;
use crate::logp::GROUP;
use crate::measure::WANTED;
use crate::plan::{Motion, Point, Settings, Variant};
use crate::schema::{Line, Measurement, Pair, VERSION};
use crate::stats::{Summary, median};

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
    references: References::All,
    logp: Apart::Not,
    via: plain,
    ofi: Some(direct::plain),
    derive,
};

/// The receive that interrupts.
pub(crate) const INTERRUPTED: &str = "Or-interrupt";

/// Messages of the trains with pauses: no more than the window, or the sender would wait for room.
const PAUSED: u64 = 4 * GROUP;

/// Messages of the long trains without pauses, and of the parts of the stream that they are compared with: so many that
/// how they begin does not count. Short messages find their step only after some ten thousand.
fn plateau(size: usize) -> u64 {
    match size {
        0..=1024 => 1 << 16,
        1025..=4096 => 1 << 12,
        _ => 1 << 9,
    }
}

/// Nanoseconds before a burst, and between the groups of a train: the other end must be through with the last one.
pub(crate) fn pause_ns(size: usize) -> u64 {
    4_000 + GROUP * size as u64 / 4
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
        let pause = pause_ns(*size);
        let train = |messages, pause, series: &str| {
            let with = |v: Variant| v.with("train", messages).with("pause", pause);
            of(Motion::Trains, series).into_iter().map(with).collect::<Vec<_>>()
        };
        let all = [
            of(Motion::PingPong, "latency"),
            of(Motion::Posts, "Os").into_iter().map(|v| v.with("pause", pause)).collect(),
            of(Motion::Takes, "Or"),
            of(Motion::Stream, "g").into_iter().map(|v| v.with("part-of-stream", plateau(*size))).collect(),
            of(Motion::OneWay, "one-way"),
            train(GROUP, 0, "train-1"),
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
///
/// Whatever follows from several lines is computed round by round, while the machine was the same for all of them.
pub(crate) fn derive(lines: &[Measurement]) -> Vec<Line> {
    let mut derived = Vec::new();
    let mut keys: Vec<_> = lines.iter().map(|l| (l.layer.clone(), l.placement.clone(), l.size)).collect();
    keys.sort();
    keys.dedup();
    for (layer, placement, size) in keys {
        let same = |l: &&Measurement| l.layer == layer && l.placement == placement && l.size == size;
        let line = |series: &str| lines.iter().filter(same).find(|l| l.series == series);
        let enough = lines.iter().filter(same).all(|l| l.by_round.len() >= WANTED);
        let of = |series: &str| line(series).map(|l| Blocks::of(l, enough));
        let per_message = |long: &str, n: u64| {
            let difference = of(long)?.and(&of("train-1")?, |long, short| long - short);
            Some(difference.and(&difference, |d, _| d / (n - GROUP) as f64))
        };
        let (os, g) = (per_message("train-d", PAUSED), per_message("train-n", plateau(size)));
        let ends = of("Os").zip(of("Or")).map(|(os, or)| os.and(&or, |os, or| os + or));
        let l = of("one-way").zip(ends).map(|(way, ends)| way.and(&ends, |way, ends| way - ends));
        for (series, blocks) in [("L", &l), ("Os-train", &os), ("g-train", &g)] {
            if let Some((latency, value)) = line("latency").zip(blocks.as_ref().and_then(Blocks::median)) {
                derived.push(self::derived(latency, series, value));
            }
        }
        let noisy = ["latency", "Os", "Or", "g", "one-way"].iter().any(|s| line(s).is_none_or(|l| l.noisy));
        for (a, b, of_both) in [
            ("Os+L+Or", "latency", of("one-way").zip(of("latency"))),
            ("Os-train", "Os", os.zip(of("Os"))),
            ("g-train", "g", g.zip(of("g"))),
        ] {
            let Some(ratios) = of_both.and_then(|(top, bottom)| top.over(&bottom)) else { continue };
            derived.push(Line::Pair(Pair {
                schema: VERSION,
                case: CASE.name.into(),
                size,
                a: format!("{layer}/{a}"),
                b: format!("{layer}/{b}"),
                ratio: ratios.p50,
                ci95: ratios.ci95,
                placement: placement.clone(),
                n: ratios.n,
                noisy,
                config: Default::default(),
            }));
        }
    }
    derived
}

/// A value for every round.
struct Blocks(BTreeMap<usize, f64>);

impl Blocks {
    /// Those of a line; if there are not enough, its median stands for all.
    fn of(line: &Measurement, enough: bool) -> Blocks {
        let whole = || line.p50.map(|p50| (0, p50)).into_iter().collect();
        Blocks(if enough { line.by_round.clone() } else { whole() })
    }

    /// What follows from these and others, where both are known.
    fn and(&self, others: &Blocks, value: impl Fn(f64, f64) -> f64) -> Blocks {
        let both = self.0.iter().filter_map(|(round, a)| Some((*round, value(*a, *others.0.get(round)?))));
        Blocks(both.collect())
    }

    fn median(&self) -> Option<f64> {
        median(&self.0.values().copied().collect::<Vec<_>>())
    }

    /// The ratios, of every round that has both.
    fn over(&self, others: &Blocks) -> Option<Summary> {
        let ratios: Vec<f64> = self.and(others, |a, b| a / b).0.into_values().collect();
        Summary::of(&ratios).filter(|s| s.p50 > 0.0 && s.ci95.iter().all(|bound| bound.is_finite()))
    }
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
        p99_single: None,
        p999: None,
        max: None,
        samples: 0,
        by_round: BTreeMap::new(),
        ..of.clone()
    }))
}
