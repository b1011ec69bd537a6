//! A source that lets only some records through.

use std::sync::Arc;

use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::Source;
use crate::format::RecordFormat;

/// Lets through the records for which `keep` says true. The others are dropped within their buffer, without a copy of it. What is
/// left has no place in the stream any more: one thread that pulls keeps its order.
pub struct Filter<S, K> {
    source: S,
    format: Arc<dyn RecordFormat>,
    keep: K,
    edge: Edge,
}

impl<S: Source, K: Fn(&[u8]) -> bool + Send + Sync> Filter<S, K> {
    /// Filters `source`.
    pub fn new(name: &str, source: S, format: Arc<dyn RecordFormat>, keep: K) -> Filter<S, K> {
        Filter { source, format, keep, edge: Edge::new(name) }
    }

    /// What is filtered.
    pub fn source(&self) -> &S {
        &self.source
    }
}

impl<S: Source, K: Fn(&[u8]) -> bool + Send + Sync> Source for Filter<S, K> {
    fn pull(&self) -> Result<Option<Buffer>, Error> {
        let pulled = self.edge.stalled_for_data(|| self.source.pull())?;
        let Some(mut buffer) = pulled else { return Ok(None) };
        let (mut read, mut written, mut kept) = (0, 0, 0);
        let data = buffer.data_mut();
        while read < data.len() {
            let Some(len) = self.format.record_len(&data[read..]) else { break };
            if (self.keep)(&data[read..read + len]) {
                data.copy_within(read..read + len, written);
                written += len;
                kept += 1;
            }
            read += len;
        }
        buffer.truncate(written);
        buffer.set_records(kept);
        // The records before that were left out are missing in front of it.
        buffer.forget_position();
        self.edge.carried(written, kept);
        Ok(Some(buffer))
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}
