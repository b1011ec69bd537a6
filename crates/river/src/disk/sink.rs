//! A file, or several that are striped, as the end of a flow.
//!
//! A buffer that says where it belongs is written there, so buffers may come in any order and from several threads; one that says
//! nothing goes behind those before it. Past the page cache they are written through io_uring, several at a time, while their
//! producers go on; else the thread that puts a buffer writes it.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use super::Volume;
use super::places::Places;
use super::writes::{Failed, Writes};
use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::Sink;

/// Writes buffers where they belong.
#[derive(Debug)]
pub struct DiskSink {
    places: Places,
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
        let (places, failed) = (Places::default(), Failed::default());
        DiskSink { places, volume, writes: None, failed, edge: Edge::new(name) }
    }

    /// Lets it write every buffer behind those before it, whatever place the buffer names: for flows of several sources, each of which
    /// has places of its own.
    pub fn appending(self) -> DiskSink {
        DiskSink { places: Places::appending(), ..self }
    }

    /// What it writes to.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Whether several writes are under way at a time, without their producers.
    pub fn is_ahead(&self) -> bool {
        self.writes.is_some()
    }

    /// How long the file is with all that was put.
    ///
    /// # Errors
    /// If a part of it has not come: a flow that names places has to fill them.
    pub fn whole(&self) -> Result<u64, Error> {
        self.places.whole().map_err(|hole| self.hole(hole))
    }

    /// Where in the file all that was put lies: for a part of a file that other sinks write, too.
    ///
    /// # Errors
    /// If it is not one stretch.
    pub fn stretch(&self) -> Result<Range<u64>, Error> {
        self.places.stretch().map_err(|hole| self.hole(hole))
    }

    fn hole(&self, (from, to): (u64, u64)) -> Error {
        let path = self.volume.path_at(from).to_owned();
        Error::Place { path, cause: format!("nothing came for the bytes from {from} to {to}") }
    }

    /// Writes bytes that are in no buffer.
    pub fn write(&self, bytes: &[u8], position: u64, records: u64) -> Result<(), Error> {
        let position = self.place(Some(position), bytes.len())?;
        self.write_at(bytes, position, records)
    }

    fn place(&self, position: Option<u64>, len: usize) -> Result<u64, Error> {
        let refused = |cause| {
            let path = self.volume.path_at(position.unwrap_or(0)).to_owned();
            Error::Place { path, cause }
        };
        self.places.of(position, len as u64).map_err(refused)
    }

    fn write_at(&self, bytes: &[u8], position: u64, records: u64) -> Result<(), Error> {
        self.edge.worked(|| self.volume.write_at(bytes, position))?;
        self.edge.carried(bytes.len(), records);
        Ok(())
    }

    fn failure(&self) -> Option<Error> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Sink for DiskSink {
    fn put(&self, mut buffer: Buffer) -> Result<(), Error> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        let (bytes, records) = (buffer.len(), buffer.records());
        let position = self.place(buffer.position(), bytes)?;
        let Some(writes) = &self.writes else {
            return self.write_at(buffer.data(), position, records);
        };
        buffer.set_position(position);
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
