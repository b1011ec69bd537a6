//! A file, or several that are striped, as the end of a flow.
//!
//! Every buffer says where it belongs, so buffers may come in any order and from several threads. Past the page cache they are
//! written through io_uring, several at a time, while their producers go on; else the thread that puts a buffer writes it.

use std::sync::{Arc, PoisonError};

use super::Volume;
use super::writes::{Failed, Writes};
use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::Sink;

/// Writes buffers where they belong.
#[derive(Debug)]
pub struct DiskSink {
    volume: Arc<Volume>,
    writes: Option<Writes>,
    failed: Failed,
    edge: Edge,
}

impl DiskSink {
    /// Writes to `volume`: through io_uring if that is used past the page cache.
    pub fn new(name: &str, volume: Volume) -> DiskSink {
        let mut sink = DiskSink::by_threads(name, volume);
        if sink.volume.has_direct() {
            sink.writes = Writes::start(&sink.volume, &sink.failed);
        }
        sink
    }

    /// Writes to `volume` by the threads that put, as where io_uring is refused.
    pub fn by_threads(name: &str, volume: Volume) -> DiskSink {
        let volume = Arc::new(volume);
        DiskSink { volume, writes: None, failed: Failed::default(), edge: Edge::new(name) }
    }

    /// What it writes to.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Whether several writes are under way at a time, without their producers.
    pub fn is_ahead(&self) -> bool {
        self.writes.is_some()
    }

    /// Writes bytes that are in no buffer.
    pub fn write(&self, bytes: &[u8], position: u64, records: u64) -> Result<(), Error> {
        self.edge.worked(|| self.volume.write_at(bytes, position))?;
        self.edge.carried(bytes.len(), records);
        Ok(())
    }

    fn failure(&self) -> Option<Error> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Sink for DiskSink {
    fn put(&self, buffer: Buffer) -> Result<(), Error> {
        let Some(writes) = &self.writes else {
            return self.write(buffer.data(), buffer.position(), buffer.records());
        };
        if let Some(error) = self.failure() {
            return Err(error);
        }
        let (bytes, records) = (buffer.len(), buffer.records());
        self.edge.stalled_for_credit(|| writes.put(buffer))?;
        self.edge.carried(bytes, records);
        Ok(())
    }

    fn finish(&self) -> Result<(), Error> {
        self.writes.as_ref().map_or(Ok(()), Writes::flush)?;
        self.failure().map_or(Ok(()), Err)
    }

    fn fail(&self, error: Error) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}
