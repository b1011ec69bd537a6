//! A file, or several that are striped, as the end of a flow.
//!
//! Every buffer says where it belongs, so buffers may come in any order and from several threads; the thread that puts a
//! buffer writes it.

use std::sync::Mutex;
use std::sync::PoisonError;

use super::Volume;
use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::Sink;

/// Writes buffers where they belong.
#[derive(Debug)]
pub struct DiskSink {
    volume: Volume,
    failed: Mutex<Option<Error>>,
    edge: Edge,
}

impl DiskSink {
    /// Writes to `volume`.
    pub fn new(name: &str, volume: Volume) -> DiskSink {
        DiskSink { volume, failed: Mutex::new(None), edge: Edge::new(name) }
    }

    /// What it writes to.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Writes bytes that are in no buffer.
    pub fn write(&self, bytes: &[u8], position: u64, records: u64) -> Result<(), Error> {
        self.edge.stalled_for_credit(|| self.volume.write_at(bytes, position))?;
        self.edge.carried(bytes.len(), records);
        Ok(())
    }
}

impl Sink for DiskSink {
    fn put(&self, buffer: Buffer) -> Result<(), Error> {
        self.write(buffer.data(), buffer.position(), buffer.records())
    }

    fn finish(&self) -> Result<(), Error> {
        match self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn fail(&self, error: Error) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}
