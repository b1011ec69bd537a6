//! A source that a sort in one pass keeps whole, and what it finds if that does not fit into the memory.
//!
//! How many lines a file has is known by a sample alone, and each takes a pair of 16 bytes twice beside its own. Where the sample has
//! misled, the source ends with an error before the memory is used up, and the sort begins again in two passes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use viaduct_river::{Buffer, Edge, Error, Source};

use crate::engine::fits;
use crate::sort::Settings;

/// Buffers of another source, as long as all of them fit into the memory.
pub(crate) struct Bounded<'a> {
    source: &'a dyn Source,
    settings: &'a Settings,
    bytes: AtomicU64,
    records: AtomicU64,
    over: AtomicBool,
}

impl<'a> Bounded<'a> {
    pub(crate) fn new(source: &'a dyn Source, settings: &'a Settings) -> Bounded<'a> {
        let (bytes, records) = (AtomicU64::new(0), AtomicU64::new(0));
        Bounded { source, settings, bytes, records, over: AtomicBool::new(false) }
    }

    /// Bytes of a record in what did not fit, on average; `None` as long as all did.
    pub(crate) fn too_dense(&self) -> Option<f64> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let density = load(&self.bytes) as f64 / load(&self.records).max(1) as f64;
        self.over.load(Ordering::Relaxed).then_some(density)
    }
}

impl Source for Bounded<'_> {
    fn pull(&self) -> Result<Option<Buffer>, Error> {
        if self.over.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let Some(buffer) = self.source.pull()? else { return Ok(None) };
        let add = |counter: &AtomicU64, more: u64| counter.fetch_add(more, Ordering::Relaxed) + more;
        let (bytes, records) = (add(&self.bytes, buffer.len() as u64), add(&self.records, buffer.records()));
        if fits(self.settings, bytes, bytes as f64 / records.max(1) as f64) {
            return Ok(Some(buffer));
        }
        self.over.store(true, Ordering::Relaxed);
        Err(Error::Stopped)
    }

    fn edge(&self) -> &Edge {
        self.source.edge()
    }
}
