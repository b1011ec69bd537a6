//! Values of all rounds, and the result lines that they become: medians with intervals, and ratios round by round.

use std::collections::BTreeMap;

use super::MpiWay;
use super::cases::Case;
use crate::error::{Error, Result};
use crate::host;
use crate::measure::WANTED;
use crate::plan::Settings;
use crate::schema::{Line, Measurement, Pair, VERSION, commit};
use crate::stats::Summary;

/// Where the cores were is not known of programs that are not ours.
const PLACEMENT: &str = "any";

/// A point of a curve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) case: &'static str,
    pub(super) layer: String,
    pub(super) series: String,
    pub(super) size: usize,
    pub(super) x: Option<usize>,
}

impl Key {
    pub(super) fn new(
        case: &'static str,
        layer: impl Into<String>,
        series: &str,
        size: usize,
        x: Option<usize>,
    ) -> Key {
        Key { case, layer: layer.into(), series: series.into(), size, x }
    }
}

/// What was measured at a point: a value for each round, none if its data were wrong.
#[derive(Clone, Debug)]
struct Found {
    key: Key,
    provider: Option<String>,
    values: Vec<Option<f64>>,
    missing: Option<String>,
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    found: Vec<Found>,
}

impl Gathered {
    fn at(&mut self, key: Key, provider: Option<&str>) -> &mut Found {
        let place = self.found.iter().position(|found| found.key == key);
        let place = place.unwrap_or_else(|| {
            let provider = provider.map(Into::into);
            self.found.push(Found { key, provider, values: Vec::new(), missing: None });
            self.found.len() - 1
        });
        &mut self.found[place]
    }

    /// A value of one round; none if the data were wrong.
    pub(super) fn add(&mut self, key: Key, provider: Option<&str>, value: Option<f64>) {
        self.at(key, provider).values.push(value);
    }

    /// There is no value, for this reason.
    pub(super) fn fail(&mut self, key: Key, why: &str) {
        self.at(key, None).missing = Some(why.into());
    }

    /// Why there is no value, if that was said.
    pub(super) fn why_none(&self, key: &Key) -> Option<String> {
        self.found.iter().find(|found| found.key == *key)?.missing.clone()
    }

    /// Takes what the program said.
    pub(super) fn take(&mut self, said: &str, case: &'static Case, way: &MpiWay) -> Result<()> {
        let points: Vec<_> = said.lines().filter_map(|line| point(line, case)).collect();
        if points.is_empty() {
            return Err(Error::usage(format!("{} printed no point", way.layer), "run it by hand to see why"));
        }
        for (series, size, x, value) in points {
            self.add(Key::new(case.name, way.layer, series, size, x), way.provider, value);
        }
        Ok(())
    }

    /// Takes values of raw VIA: of the placements that it saw, the most frequent one stands for all.
    pub(super) fn take_raw(&mut self, case: &'static Case, lines: Vec<Measurement>) {
        let mut best: Vec<(Key, Measurement)> = Vec::new();
        for line in lines {
            let x = line.x.filter(|_| !case.axis.is_empty()).map(|x| x as usize);
            let key = Key::new(case.name, line.layer.clone(), &line.series, line.size, x);
            match best.iter_mut().find(|(other, _)| *other == key) {
                Some((_, other)) if other.n >= line.n => {}
                Some((_, other)) => *other = line,
                None => best.push((key, line)),
            }
        }
        for (key, line) in best {
            match line.missing {
                Some(why) => self.fail(key, &why),
                None => self.add(key, line.provider.as_deref(), line.p50.filter(|_| line.valid)),
            }
        }
    }

    /// Values of a point, one a round; empty if there are none or some were wrong.
    pub(super) fn values(&self, key: &Key) -> Vec<f64> {
        let found = self.found.iter().find(|found| found.key == *key);
        let values = found.map_or(&[][..], |found| &found.values);
        values.iter().copied().collect::<Option<Vec<f64>>>().unwrap_or_default()
    }

    /// A measurement for each point, and the ratio of ours to each other layer.
    pub(super) fn lines(&self, settings: &Settings, cases: &[&'static Case]) -> Vec<Line> {
        let host = host::facts();
        let mut lines = Vec::new();
        for case in cases {
            let of_case = || self.found.iter().filter(|found| found.key.case == case.name);
            for found in of_case() {
                let values = self.values(&found.key);
                let mut line = measurement(found, &values, case, settings);
                line.host = host.clone();
                lines.push(Line::Measurement(Box::new(line)));
            }
            for other in of_case().filter(|found| found.key.layer != "mpi") {
                let ours = self.values(&Key { layer: "mpi".into(), ..other.key.clone() });
                lines.extend(pair(case.name, &other.key, &ours, &self.values(&other.key)).map(Line::Pair));
            }
        }
        lines
    }
}

/// A line of the program: series, size, place on the axis, value.
fn point<'a>(line: &'a str, case: &Case) -> Option<(&'a str, usize, Option<usize>, Option<f64>)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["point", series, size, x, value] = words[..] else { return None };
    let x = if case.axis.is_empty() { None } else { Some(x.parse().ok()?) };
    let value = if value == "wrong" { None } else { Some(value.parse().ok().filter(|v: &f64| *v > 0.0)?) };
    Some((if series == "-" { "" } else { series }, size.parse().ok()?, x, value))
}

fn pair(case: &str, other: &Key, ours: &[f64], theirs: &[f64]) -> Option<Pair> {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
    let summary = Summary::of(&ratios)?;
    let place = |layer: &str| match (&other.series[..], other.x) {
        ("", None) => layer.to_owned(),
        (series, None) => format!("{layer}/{series}"),
        (series, Some(x)) => format!("{layer}/{series}@{x}"),
    };
    Some(Pair {
        schema: VERSION,
        case: case.into(),
        size: other.size,
        a: place("mpi"),
        b: place(&other.layer),
        ratio: summary.p50,
        ci95: summary.ci95,
        placement: PLACEMENT.into(),
        n: summary.n,
        noisy: summary.n < WANTED,
        config: Default::default(),
    })
}

fn measurement(found: &Found, values: &[f64], case: &Case, settings: &Settings) -> Measurement {
    let summary = Summary::of(values);
    let Key { layer, series, size, x, .. } = found.key.clone();
    let ways = super::ALL.iter().find(|way| way.layer == layer);
    let about = ways.map_or("raw, without MPI", |way| way.about);
    let [one, other] = settings.cpus;
    Measurement {
        schema: VERSION,
        case: case.name.into(),
        layer,
        provider: found.provider.clone(),
        size,
        unit: case.unit.into(),
        p50: summary.as_ref().map(|s| s.p50),
        // Order statistics need six values for 95 %.
        ci95: summary.as_ref().filter(|s| s.n >= WANTED).map(|s| s.ci95),
        n: values.len(),
        launches: values.len(),
        valid: found.values.iter().all(Option::is_some),
        missing: found.missing.clone(),
        noisy: values.len() < WANTED,
        min: summary.as_ref().map(|s| s.min),
        p90: None,
        p99: None,
        p99_single: None,
        p999: None,
        max: summary.as_ref().map(|s| s.max),
        samples: values.len(),
        batch: 1,
        ns_per_message: None,
        placement: PLACEMENT.into(),
        probe_ns: None,
        cpus: if case.one_core { [one, one] } else { [one, other] },
        wait: settings.wait.name().into(),
        window: if case.word == "bandwidth" { 16 } else { 1 },
        connections: x.filter(|_| case.axis == "connections").unwrap_or(1),
        series,
        axis: case.axis.into(),
        x: x.map(|x| x as f64),
        by_round: BTreeMap::new(),
        extra: BTreeMap::new(),
        dropped: 0,
        timer_ns: 0.0,
        steal: 0.0,
        gap: 0.0,
        host: Default::default(),
        commit: commit(),
        config: BTreeMap::from([
            ("way".into(), about.into()),
            ("seconds".into(), (settings.time / 20.0).to_string()),
        ]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layer;

    fn case(name: &str) -> &'static Case {
        Case::find_all(name).unwrap()[0]
    }

    #[test]
    fn the_programs_lines_are_read_and_others_left() {
        let (plain, axis) = (case("mpi-latency"), case("mpi-segments"));
        assert_eq!(point("point - 8 1 0.25", plain), Some(("", 8, None, Some(0.25))));
        assert_eq!(point("point derived 1024 4 1.5", axis), Some(("derived", 1024, Some(4), Some(1.5))));
        assert_eq!(point("point - 8 1 wrong", plain), Some(("", 8, None, None)));
        for line in ["warning: something", "point - 8 1 -3", "point - 8 1", "point - x 1 0.5"] {
            assert_eq!(point(line, plain), None, "{line}");
        }
    }

    #[test]
    fn data_that_were_wrong_once_leave_no_number() {
        let mut gathered = Gathered::default();
        let key = |layer: &str| Key::new("mpi-latency", layer, "", 8, None);
        for value in [Some(1.0), None] {
            gathered.add(key("mpi"), Some("shm"), value);
            gathered.add(key("rival:mpich"), None, Some(2.0));
        }
        gathered.fail(key("rival:openmpi"), "it ended");
        let settings = Settings::new(vec![Layer::Via("shm")], [0, 1]);
        let lines = gathered.lines(&settings, &[case("mpi-latency")]);
        let of = |layer: &str| {
            lines.iter().find_map(|line| match line {
                Line::Measurement(line) if line.layer == layer => Some(line),
                _ => None,
            })
        };
        assert!(of("mpi").is_some_and(|line| !line.valid && line.p50.is_none()));
        assert!(of("rival:mpich").is_some_and(|line| line.valid && line.p50 == Some(2.0) && line.noisy));
        assert_eq!(of("rival:openmpi").and_then(|line| line.missing.as_deref()), Some("it ended"));
        assert!(!lines.iter().any(|line| matches!(line, Line::Pair(_))), "nothing to compare with");
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let mut gathered = Gathered::default();
        for (ours, theirs) in [(1.0, 2.0), (10.0, 20.0), (3.0, 12.0)] {
            gathered.add(Key::new("mpi-latency", "mpi", "", 8, None), Some("shm"), Some(ours));
            gathered.add(Key::new("mpi-latency", "rival:mpich", "", 8, None), None, Some(theirs));
        }
        let lines = gathered.lines(&Settings::new(vec![Layer::Via("shm")], [0, 1]), &[case("mpi-latency")]);
        let ratio = lines.iter().find_map(|line| match line {
            Line::Pair(pair) => Some((pair.ratio, pair.a.clone(), pair.b.clone())),
            _ => None,
        });
        assert_eq!(ratio, Some((0.5, "mpi".into(), "rival:mpich".into())));
    }
}
