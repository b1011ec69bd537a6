//! Result schema, version 1: what every Viaduct benchmark writes, one JSON object a line.
//!
//! Three kinds of line. A [`Measurement`] is one layer at one size in one core placement; a [`Pair`] compares two
//! measurements of the same placement; a [`Cell`] is one value of a table, for whatever is not measured between two
//! processes. The field `ratio` marks a pair, the field `table` a cell. Fields are only ever added within a
//! version; readers ignore what they do not know. The table and the charts are drawn from the same objects.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version this crate writes.
pub const VERSION: u32 = 1;

/// One line of a result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// A comparison (tried first: only it has a `ratio`).
    Pair(Pair),
    /// A value of a table (only it has a `table`).
    Cell(Box<Cell>),
    /// A measured value (boxed: it is ten times the size of a pair).
    Measurement(Box<Measurement>),
}

impl Line {
    /// The line as it stands in a result file, without the newline.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain structs with string keys always serialise")
    }
}

/// One layer, one size, one core placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Always [`VERSION`].
    pub schema: u32,
    /// Name of the case: latency, bandwidth, rate, connections.
    pub case: String,
    /// Name of the layer: shm, auto, via:ofi, loopback, ofi, raw, copy, unix, pipe, tcp and their variants.
    pub layer: String,
    /// Viaduct provider that carried the bytes; null for a reference layer.
    pub provider: Option<String>,
    /// Message size in bytes.
    pub size: usize,
    /// Unit of every value below: us, MB/s or Mmsg/s.
    pub unit: String,
    /// Median over the launches (over the slices if there were fewer than six launches); null when the data were wrong.
    pub p50: Option<f64>,
    /// 95 % confidence interval of `p50`, by order statistics over the same.
    pub ci95: Option<[f64; 2]>,
    /// Number of slices behind `p50` and `ci95`.
    pub n: usize,
    /// Number of fresh starts of the second process that the slices come from.
    pub launches: usize,
    /// The data of the validation pass arrived intact. If not, no value is given.
    pub valid: bool,
    /// What the layer lacks that this would measure: the reason why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// The machine was disturbed more than the gate allows, or this placement was seen in too few launches.
    pub noisy: bool,
    /// Smallest timed sample.
    pub min: Option<f64>,
    /// 90th percentile of the timed samples.
    pub p90: Option<f64>,
    /// 99th percentile of the timed samples.
    pub p99: Option<f64>,
    /// 99th percentile of messages that were timed one by one, also where the samples are batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_single: Option<f64>,
    /// 99.9th percentile of the timed samples.
    pub p999: Option<f64>,
    /// Largest timed sample.
    pub max: Option<f64>,
    /// Number of timed samples behind the percentiles.
    pub samples: usize,
    /// Operations in one timed sample; above 1 the percentiles are of means over so many operations.
    pub batch: u64,
    /// The median as nanoseconds for one message.
    pub ns_per_message: Option<f64>,
    /// How near the two cores were: smt, near, far, same (one core), or mixed.
    pub placement: String,
    /// Median of the bare one-way line transfer around these slices, in nanoseconds.
    pub probe_ns: Option<f64>,
    /// The cores of the two ends.
    pub cpus: [usize; 2],
    /// How a receiver waits: poll or block.
    pub wait: String,
    /// Messages under way at once.
    pub window: usize,
    /// Connections open while one was used.
    pub connections: usize,
    /// Which curve of the case; empty if it has only one.
    #[serde(default)]
    pub series: String,
    /// What `x` counts: connections, segments, queues and so on; empty if only the size varies.
    #[serde(default)]
    pub axis: String,
    /// Where on that axis this lies.
    #[serde(default)]
    pub x: Option<f64>,
    /// The median of every round, in the same unit; what follows from several lines is computed round by round.
    #[serde(skip)]
    pub by_round: BTreeMap<usize, f64>,
    /// Further medians of the case by name: shares, CPU time, misses.
    #[serde(default)]
    pub extra: BTreeMap<String, f64>,
    /// Slices left out: their two probes disagreed or a core was taken away.
    pub dropped: usize,
    /// Cost of reading the clock once, in nanoseconds.
    pub timer_ns: f64,
    /// Share of the time that the hypervisor took from the two cores.
    pub steal: f64,
    /// Largest share of a probe next to these slices that was lost in gaps.
    pub gap: f64,
    /// The machine.
    pub host: Host,
    /// Commit of the program, where the build knew it.
    pub commit: Option<String>,
    /// Settings that could change the result.
    pub config: BTreeMap<String, String>,
}

/// Two layers at one size in one placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Always [`VERSION`].
    pub schema: u32,
    /// Name of the case.
    pub case: String,
    /// Message size in bytes.
    pub size: usize,
    /// Name of the layer above the line; `layer/series@x` when the two differ in more than the layer.
    pub a: String,
    /// Name of the layer below the line.
    pub b: String,
    /// Median of `a` over median of `b`: time over time, or rate over rate, taken over the launches (rounds of slices if
    /// there were fewer than six) in which both were measured in this placement.
    pub ratio: f64,
    /// 95 % bootstrap interval of the ratio.
    pub ci95: [f64; 2],
    /// The placement in which both were measured.
    pub placement: String,
    /// Launches or rounds behind the ratio.
    pub n: usize,
    /// One of the two was noisy.
    pub noisy: bool,
    /// Settings that could change the result. Files of earlier versions have none.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
}

/// One value of a table: what was measured stands in rows, its quantities in columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Always [`VERSION`].
    pub schema: u32,
    /// Name of the table: launch, datamation and so on.
    pub table: String,
    /// What was measured: a launcher, a program, a number of nodes.
    pub row: String,
    /// Which of its quantities this is.
    pub column: String,
    /// Median of the repetitions; null if there is none, for the reason in `missing` or because the result was wrong.
    pub value: Option<f64>,
    /// Unit of the value; empty for a plain number.
    pub unit: String,
    /// 95 % confidence interval of the value, where there were repetitions.
    pub ci95: Option<[f64; 2]>,
    /// Number of repetitions.
    pub n: usize,
    /// Which direction is an improvement.
    #[serde(default)]
    pub better: Better,
    /// The result was checked and right. If not, no value is given.
    #[serde(default = "yes")]
    pub valid: bool,
    /// The machine was disturbed.
    #[serde(default)]
    pub noisy: bool,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// The paper that gives this value, with the place in it; it was not measured here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The machine.
    pub host: Host,
    /// Commit of the program, where the build knew it.
    pub commit: Option<String>,
    /// Settings that could change the result.
    pub config: BTreeMap<String, String>,
}

/// Which direction of a value is an improvement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// A smaller value: times, bytes.
    Less,
    /// A larger value: rates.
    More,
    /// Neither: counts that only describe.
    #[default]
    Neither,
}

fn yes() -> bool {
    true
}

/// Commit that this program was built from, where the build knew it.
pub fn commit() -> Option<String> {
    option_env!("VIADUCT_COMMIT").map(Into::into)
}

/// Facts about the machine, the same for every line of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Kernel release.
    pub kernel: String,
    /// Processor model.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Running under a hypervisor, as far as the guest can tell.
    pub virtualised: bool,
    /// Bytes of memory.
    pub memory: u64,
    /// Frequency governor, where visible.
    pub governor: Option<String>,
    /// Load average over one minute at the start.
    pub load: f64,
}

/// A plausible measurement, for tests of what makes or reads results.
#[doc(hidden)]
pub fn sample() -> Measurement {
    Measurement {
        schema: VERSION,
        case: "latency".into(),
        layer: "shm".into(),
        provider: Some("shm".into()),
        size: 8,
        unit: "us".into(),
        p50: Some(0.081),
        ci95: Some([0.08, 0.082]),
        n: 40,
        launches: 10,
        valid: true,
        missing: None,
        noisy: false,
        min: Some(0.07),
        p90: Some(0.09),
        p99: Some(0.1),
        p99_single: Some(0.15),
        p999: Some(0.2),
        max: Some(3.0),
        samples: 4000,
        batch: 27,
        ns_per_message: Some(81.0),
        placement: "near".into(),
        probe_ns: Some(57.0),
        cpus: [0, 1],
        wait: "poll".into(),
        window: 1,
        connections: 1,
        series: String::new(),
        axis: String::new(),
        x: None,
        extra: BTreeMap::new(),
        by_round: BTreeMap::new(),
        dropped: 2,
        timer_ns: 24.0,
        steal: 0.0,
        gap: 0.0,
        host: Host { kernel: "6.18".into(), cores: 2, ..Host::default() },
        commit: None,
        config: BTreeMap::from([("time".into(), "1".into())]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;

    #[test]
    fn lines_round_trip_and_are_told_apart() {
        let pair = Pair {
            schema: VERSION,
            case: "latency".into(),
            size: 8,
            a: "shm".into(),
            b: "raw".into(),
            ratio: 1.2,
            ci95: [1.1, 1.3],
            placement: "near".into(),
            n: 40,
            noisy: false,
            config: BTreeMap::from([("wait.spin".into(), "0".into())]),
        };
        let cell = Table::new("launch", BTreeMap::new()).cell("viaduct", "time", "ms", Better::Less).one(4.0);
        for line in [Line::Measurement(Box::new(sample())), Line::Pair(pair), cell] {
            let text = line.to_json();
            assert!(!text.contains('\n'));
            assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
        }
    }

    #[test]
    fn the_promised_fields_are_there() {
        let value = serde_json::to_value(sample()).unwrap();
        for field in
            ["schema", "case", "layer", "provider", "size", "unit", "p50", "ci95", "n", "valid", "noisy"]
        {
            assert!(value.get(field).is_some(), "{field}");
        }
    }

    #[test]
    fn a_newer_writer_may_add_fields() {
        let mut value = serde_json::to_value(sample()).unwrap();
        value["later"] = 1.into();
        assert!(serde_json::from_value::<Line>(value).is_ok());
    }
}
