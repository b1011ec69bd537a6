//! What a sort says about itself: the paper's phases, and what every edge carried.

use std::time::Duration;

use serde::{Deserialize, Serialize};
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
    /// What carried records between nodes; `None` if there was one.
    pub transport: Option<String>,
    /// One for each node.
    pub nodes: Vec<NodeReport>,
    /// Seconds in all.
    pub seconds: f64,
}

/// What one node did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its number.
    pub node: u32,
    /// Seconds in each of the paper's phases.
    pub phases: Phases,
    /// What the overhead was.
    pub overhead: Overhead,
    /// Records that it wrote.
    pub records: u64,
    /// What its edges carried.
    pub edges: Vec<EdgeReport>,
}

/// Seconds in the phases of Millennium Sort, section 4.2.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
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

/// Seconds of overhead by cause, where there are several nodes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Overhead {
    /// From the command to the start of the node.
    pub launch: f64,
    /// Waiting for the other nodes.
    pub barrier: f64,
    /// Opening the NIC and making connections.
    pub connect: f64,
    /// Making pools.
    pub memory: f64,
    /// Opening files and finding splitters.
    pub sample: f64,
}

/// What an edge carried.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// Seconds that producers did the work of the edge themselves, as writing to a disk.
    pub work: f64,
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
        let node = NodeReport {
            node: 0,
            phases,
            overhead: Overhead::default(),
            records: outcome.records_out,
            edges: edges.into_iter().map(EdgeReport::of).collect(),
        };
        Report {
            records: outcome.records_in,
            bytes: outcome.bytes_in,
            records_out: outcome.records_out,
            bytes_out: outcome.bytes_out,
            checksum: settings.checksum.then(|| format!("{:x}", outcome.sum_in)),
            passes,
            partitions,
            memory: settings.budget(),
            transport: None,
            nodes: vec![node],
            seconds: all,
        }
    }
}

impl EdgeReport {
    pub(crate) fn of(counts: EdgeCounts) -> EdgeReport {
        EdgeReport {
            name: counts.name,
            bytes: counts.bytes,
            records: counts.records,
            buffers: counts.buffers,
            credit_stall: counts.credit_ns as f64 / 1e9,
            data_stall: counts.data_ns as f64 / 1e9,
            work: counts.work_ns as f64 / 1e9,
        }
    }
}
