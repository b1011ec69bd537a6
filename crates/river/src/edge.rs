//! What an edge of a flow has carried: bytes, records, and how long either end waited.
//!
//! Every source and sink has one. The two kinds of stall say which side is the bottleneck: time without credit is a slow
//! consumer, time without data a slow producer. What a thread that puts does itself, as writing to a disk without io_uring, is no
//! wait for another thread: it is counted apart, as work of the edge, and where it is long the edge is the bottleneck.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Counters of one edge. Adding is a relaxed atomic per buffer, never per record.
#[derive(Debug)]
pub struct Edge {
    name: String,
    bytes: AtomicU64,
    records: AtomicU64,
    buffers: AtomicU64,
    credit_ns: AtomicU64,
    data_ns: AtomicU64,
    work_ns: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgeCounts {
    /// Name of the edge.
    pub name: String,
    /// Payload bytes.
    pub bytes: u64,
    /// Records.
    pub records: u64,
    /// Buffers.
    pub buffers: u64,
    /// Nanoseconds that producers waited for a free buffer or a credit.
    pub credit_ns: u64,
    /// Nanoseconds that consumers waited for data.
    pub data_ns: u64,
    /// Nanoseconds that producers did the work of the sink themselves.
    pub work_ns: u64,
}

impl Edge {
    /// An edge that has carried nothing.
    pub fn new(name: impl Into<String>) -> Edge {
        let zero = AtomicU64::default;
        Edge {
            name: name.into(),
            bytes: zero(),
            records: zero(),
            buffers: zero(),
            credit_ns: zero(),
            data_ns: zero(),
            work_ns: zero(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts one buffer.
    pub fn carried(&self, bytes: usize, records: u64) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.records.fetch_add(records, Ordering::Relaxed);
        self.buffers.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs `wait`, which waits for a credit, and counts its time.
    pub fn stalled_for_credit<R>(&self, wait: impl FnOnce() -> R) -> R {
        timed(&self.credit_ns, wait)
    }

    /// Runs `wait`, which waits for data, and counts its time.
    pub fn stalled_for_data<R>(&self, wait: impl FnOnce() -> R) -> R {
        timed(&self.data_ns, wait)
    }

    /// Runs `work`, which the sink leaves to its producer, and counts its time.
    pub fn worked<R>(&self, work: impl FnOnce() -> R) -> R {
        timed(&self.work_ns, work)
    }

    /// The counters now.
    pub fn counts(&self) -> EdgeCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EdgeCounts {
            name: self.name.clone(),
            bytes: load(&self.bytes),
            records: load(&self.records),
            buffers: load(&self.buffers),
            credit_ns: load(&self.credit_ns),
            data_ns: load(&self.data_ns),
            work_ns: load(&self.work_ns),
        }
    }
}

fn timed<R>(counter: &AtomicU64, wait: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let answer = wait();
    counter.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    answer
}
