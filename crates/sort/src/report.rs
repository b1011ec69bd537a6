//! What a sort says about itself: the paper's phases, and what every edge carried.

use std::time::Duration;

use serde::Serialize;
use viaduct_river::EdgeCounts;

use crate::kernel::Outcome;
use crate::sort::Settings;

/// A sort in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Records read.
    pub records: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Records written: fewer if only the first of equals was kept.
    pub records_out: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// Sum of the CRC-32 of all records, in hexadecimal; `None` if it was off.
    pub checksum: Option<String>,
    /// 1 or 2.
    pub passes: u32,
    /// Partitions on disk between the passes.
    pub partitions: usize,
    /// Bytes of memory that the sort was allowed.
    pub memory: u64,
    /// One for each node.
    pub nodes: Vec<NodeReport>,
    /// Seconds in all.
    pub seconds: f64,
}

/// What one node did.
#[derive(Clone, Debug, Serialize)]
pub struct NodeReport {
    /// Its number.
    pub node: u32,
    /// Seconds in each of the paper's phases.
    pub phases: Phases,
    /// What its edges carried.
    pub edges: Vec<EdgeReport>,
}

/// Seconds in the phases of Millennium Sort, section 4.2.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Phases {
    /// Everything else: start, connections, memory.
    pub overhead: f64,
    /// Reading, partitioning, sending and receiving.
    pub read: f64,
    /// Sorting.
    pub sort: f64,
    /// Writing.
    pub write: f64,
}

/// What an edge carried.
#[derive(Clone, Debug, Serialize)]
pub struct EdgeReport {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// Records.
    pub records: u64,
    /// Buffers.
    pub buffers: u64,
    /// Seconds that producers waited for credit.
    pub credit_stall: f64,
    /// Seconds that consumers waited for data.
    pub data_stall: f64,
}

impl Report {
    pub(crate) fn new(
        outcome: &Outcome,
        settings: &Settings,
        passes: u32,
        partitions: usize,
        edges: Vec<EdgeCounts>,
        elapsed: Duration,
    ) -> Report {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let (read, sort, write) =
            (seconds(outcome.read_ns), seconds(outcome.sort_ns), seconds(outcome.write_ns));
        let all = elapsed.as_secs_f64();
        let phases = Phases { overhead: (all - read - sort - write).max(0.0), read, sort, write };
        let edge = |counts: EdgeCounts| EdgeReport {
            name: counts.name,
            bytes: counts.bytes,
            records: counts.records,
            buffers: counts.buffers,
            credit_stall: seconds(counts.credit_ns),
            data_stall: seconds(counts.data_ns),
        };
        let node = NodeReport { node: 0, phases, edges: edges.into_iter().map(edge).collect() };
        Report {
            records: outcome.records_in,
            bytes: outcome.bytes_in,
            records_out: outcome.records_out,
            bytes_out: outcome.bytes_out,
            checksum: settings.checksum.then(|| format!("{:x}", outcome.sum_in)),
            passes,
            partitions,
            memory: settings.budget(),
            nodes: vec![node],
            seconds: all,
        }
    }
}
