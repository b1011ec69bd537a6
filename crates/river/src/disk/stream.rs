//! Pipes and other streams that can only be read or written from front to back.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::places::{MIXED, taken};
use super::source::{Partial, with_room};
use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::{Sink, Source};
use crate::format::{Framing, RecordFormat};
use crate::pool::MemPool;

/// Records of streams, one stream after the other.
pub struct StreamSource {
    format: Arc<dyn RecordFormat>,
    pool: MemPool,
    partial: Partial,
    state: Mutex<Reading>,
    edge: Edge,
}

#[derive(Default)]
struct Reading {
    inputs: VecDeque<(PathBuf, Box<dyn Read + Send>)>,
    /// The beginning of a record whose end has not come yet.
    carry: Vec<u8>,
    /// Pieces of records at the ends of streams.
    leftover: Vec<u8>,
    position: u64,
    /// Where the first of `inputs` begins.
    base: u64,
    sequence: u64,
    /// The first failure, which every thread that pulls is told.
    failed: Option<Error>,
}

impl StreamSource {
    /// Records of `format` from `inputs`, which have names for messages.
    pub fn new(
        name: &str,
        inputs: Vec<(PathBuf, Box<dyn Read + Send>)>,
        format: Arc<dyn RecordFormat>,
        pool: MemPool,
        partial: Partial,
    ) -> StreamSource {
        let state = Reading { inputs: inputs.into(), ..Reading::default() };
        StreamSource { format, pool, partial, state: Mutex::new(state), edge: Edge::new(name) }
    }

    /// The pieces of records at the ends of the streams that were read so far, which are in no buffer.
    pub fn leftover(&self) -> Vec<u8> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = std::mem::take(&mut state.leftover);
        if !rest.is_empty() {
            self.edge.carried(rest.len(), 0);
        }
        rest
    }

    /// Fills a buffer from the first stream; cuts behind its last whole record.
    fn fill(&self, state: &mut Reading, mut buffer: Buffer) -> Result<Buffer, Error> {
        loop {
            let Some((path, input)) = state.inputs.front_mut() else {
                buffer.set_window(0, 0);
                return Ok(buffer);
            };
            let mut end = state.carry.len();
            buffer = with_room(buffer, 0, 2 * end + 1);
            buffer.room_mut()[..end].copy_from_slice(&state.carry);
            state.carry.clear();
            let room = buffer.capacity();
            let mut over = false;
            // One byte stays free for a delimiter that the last record may lack.
            while end < room - 1 && !over {
                match input.read(&mut buffer.room_mut()[end..room - 1]) {
                    Ok(0) => over = true,
                    Ok(got) => end += got,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(Error::file("reading", path, error)),
                }
            }
            let mut cut = self.cut(&buffer.room()[..end]);
            if over && cut < end {
                match self.format.framing() {
                    Framing::Delimited(mark) => {
                        buffer.room_mut()[end] = mark;
                        cut = end + 1;
                    }
                    _ if self.partial == Partial::Drop => {}
                    _ if self.partial == Partial::Keep => {
                        state.leftover.extend_from_slice(&buffer.room()[cut..end]);
                    }
                    framing => {
                        let size = if let Framing::Fixed(size) = framing { size as u64 } else { 0 };
                        let (offset, rest) = (state.position - state.base + cut as u64, (end - cut) as u64);
                        return Err(Error::Partial { path: path.clone(), offset, rest, size });
                    }
                }
            } else if !over {
                state.carry.extend_from_slice(&buffer.room()[cut..end]);
            }
            if over {
                state.inputs.pop_front();
                state.base = state.position + cut as u64;
            }
            if cut > 0 {
                buffer.set_window(0, cut);
                return Ok(buffer);
            }
        }
    }

    /// Where the last whole record ends.
    fn cut(&self, bytes: &[u8]) -> usize {
        match self.format.framing() {
            Framing::Fixed(size) => bytes.len() / size * size,
            Framing::Delimited(mark) => memchr::memrchr(mark, bytes).map_or(0, |at| at + 1),
            Framing::Chained => crate::format::records(&*self.format, bytes).map(<[u8]>::len).sum(),
        }
    }
}

impl Source for StreamSource {
    fn pull(&self) -> Result<Option<Buffer>, Error> {
        let buffer = self.pool.try_take();
        let buffer = buffer.unwrap_or_else(|| self.edge.stalled_for_credit(|| self.pool.take()));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let filled = self.edge.stalled_for_data(|| self.fill(&mut state, buffer));
        let mut buffer = filled.inspect_err(|error| state.failed = Some(error.clone()))?;
        if buffer.is_empty() {
            return Ok(None);
        }
        buffer.set_position(state.position);
        buffer.set_sequence(state.sequence);
        state.position += buffer.len() as u64;
        // A buffer that is longer than those of the pool counts as several.
        state.sequence += buffer.len().div_ceil(self.pool.buffer_size()).max(1) as u64;
        drop(state);
        buffer.set_records(self.format.count(buffer.data()));
        self.edge.carried(buffer.len(), buffer.records());
        Ok(Some(buffer))
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}

impl fmt::Debug for StreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamSource({})", self.edge.name())
    }
}

/// Writes buffers to a stream in the order of their places: a thread that is early waits for the others. Buffers without a place are
/// written as they come.
pub struct StreamSink {
    path: PathBuf,
    appending: bool,
    state: Mutex<Writing>,
    moved: Condvar,
    edge: Edge,
}

struct Writing {
    output: Box<dyn Write + Send>,
    position: u64,
    /// Whether buffers say where they belong; the first one decides.
    placed: Option<bool>,
    failed: Option<Error>,
}

impl StreamSink {
    /// Writes to `output`, which messages call `path`.
    pub fn new(name: &str, path: &Path, output: Box<dyn Write + Send>) -> StreamSink {
        let state = Mutex::new(Writing { output, position: 0, placed: None, failed: None });
        let (path, moved) = (path.to_owned(), Condvar::new());
        StreamSink { path, appending: false, state, moved, edge: Edge::new(name) }
    }

    /// Lets it write buffers as they come, whatever place they name: for a part of a stream, and for flows of several sources, each of
    /// which has places of its own.
    pub fn appending(self) -> StreamSink {
        StreamSink { appending: true, ..self }
    }

    fn state(&self) -> MutexGuard<'_, Writing> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes bytes once all before `position` are written.
    pub fn write(&self, bytes: &[u8], position: u64, records: u64) -> Result<(), Error> {
        self.write_next(bytes, Some(position), records)
    }

    fn write_next(&self, bytes: &[u8], position: Option<u64>, records: u64) -> Result<(), Error> {
        // Nothing has no place, and takes no turn.
        if bytes.is_empty() {
            return self.state().failed.clone().map_or(Ok(()), Err);
        }
        let position = position.filter(|_| !self.appending);
        let early = |state: &mut Writing| {
            position.is_some_and(|position| state.position < position) && state.failed.is_none()
        };
        let wait = || self.moved.wait_while(self.state(), early).unwrap_or_else(PoisonError::into_inner);
        // The turn of the threads before, which is as long as the stream is slow.
        let mut state = self.edge.stalled_for_credit(wait);
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let cause = match position {
            _ if *state.placed.get_or_insert(position.is_some()) != position.is_some() => Some(MIXED.into()),
            Some(position) if position < state.position => Some(taken(position)),
            _ => None,
        };
        if let Some(cause) = cause {
            let error = Error::Place { path: self.path.clone(), cause };
            state.failed = Some(error.clone());
            self.moved.notify_all();
            return Err(error);
        }
        if let Err(error) = self.edge.worked(|| state.output.write_all(bytes)) {
            let error = Error::file("writing", &self.path, error);
            state.failed = Some(error.clone());
            self.moved.notify_all();
            return Err(error);
        }
        state.position += bytes.len() as u64;
        self.edge.carried(bytes.len(), records);
        self.moved.notify_all();
        Ok(())
    }
}

impl Sink for StreamSink {
    fn put(&self, buffer: Buffer) -> Result<(), Error> {
        self.write_next(buffer.data(), buffer.position(), buffer.records())
    }

    fn finish(&self) -> Result<(), Error> {
        let mut state = self.state();
        match &state.failed {
            Some(error) => Err(error.clone()),
            None => state.output.flush().map_err(|error| Error::file("writing", &self.path, error)),
        }
    }

    fn fail(&self, error: Error) {
        self.state().failed.get_or_insert(error);
        self.moved.notify_all();
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}

impl fmt::Debug for StreamSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamSink({})", self.path.display())
    }
}
