//! Files as a source of buffers with whole records.
//!
//! A file is cut into chunks that can be read independently, so that several threads read at once. Records of one size fill a
//! chunk evenly. A delimited record belongs to the chunk that holds its first byte, except that one which begins exactly on
//! a boundary belongs to the chunk before: both neighbours then find the seam by looking for a delimiter from it on.
//! Chained formats cannot be cut; [`StreamSource`](super::StreamSource) reads them.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use viaduct_os::files::BLOCK;
use viaduct_os::uring::Ring;

use super::{Direct, Volume};
use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::Source;
use crate::format::{Framing, RecordFormat};
use crate::pool::MemPool;

/// Transfers under way past the page cache.
const DEPTH: usize = 8;

/// How long a thread waits for a buffer until it looks whether others have read the last chunk.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// Files shorter than this are read through the page cache.
const DIRECT_FROM: u64 = 64 << 20;

/// What is done with a piece of a record at the end of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partial {
    /// It is an error.
    #[default]
    Refuse,
    /// It is left out.
    Drop,
    /// It is left out of the flow, and `leftover` of the source gives it afterwards.
    Keep,
}

/// Records of files, in order.
#[derive(Debug)]
pub struct DiskSource {
    /// Before the volumes: files stay open until it is idle.
    ring: Option<Mutex<Flight>>,
    format: Arc<dyn RecordFormat>,
    pool: MemPool,
    volumes: Vec<Piece>,
    chunk: u64,
    chunks: u64,
    next: AtomicU64,
    /// The first failure, which every thread that pulls is told: the chunk behind it never comes.
    failed: OnceLock<Error>,
    edge: Edge,
}

/// One volume with its share of the chunks.
#[derive(Debug)]
struct Piece {
    volume: Volume,
    len: u64,
    first_chunk: u64,
    /// Where it begins in the stream of all volumes.
    base: u64,
}

/// Direct reads under way, and those that came back before their turn.
#[derive(Debug)]
struct Flight {
    ring: Ring<Buffer>,
    asked: u64,
    given: u64,
    ready: BTreeMap<u64, Buffer>,
}

impl DiskSource {
    /// Records of `format` from the volumes, one after the other, into buffers of `pool`.
    pub fn new(
        name: &str,
        volumes: Vec<Volume>,
        format: Arc<dyn RecordFormat>,
        pool: MemPool,
        direct: Direct,
        partial: Partial,
    ) -> Result<DiskSource, Error> {
        let chunk = chunk_size(format.framing(), pool.buffer_size())?;
        let aligned = chunk.is_multiple_of(BLOCK as u64);
        let mut pieces = Vec::new();
        let (mut first_chunk, mut base) = (0, 0);
        let mut all_direct = aligned && direct != Direct::Off;
        let last = volumes.len().saturating_sub(1);
        for (number, mut volume) in volumes.into_iter().enumerate() {
            let mut len = volume.len();
            if let Framing::Fixed(size) = format.framing() {
                let rest = len % size as u64;
                if rest > 0 && partial == Partial::Refuse {
                    let path = volume.path_at(len - 1).to_owned();
                    return Err(Error::Partial { path, offset: len - rest, rest, size: size as u64 });
                }
                len -= rest;
            }
            let cold = len >= DIRECT_FROM && volume.resident().is_none_or(|share| share < 0.5);
            if all_direct && (direct == Direct::On || cold) {
                volume.use_direct();
            }
            all_direct &= volume.has_direct();
            let added = u64::from(number < last && lacks_end(&volume, format.framing()));
            pieces.push(Piece { volume, len, first_chunk, base });
            first_chunk += len.div_ceil(chunk);
            base += len + added;
        }
        let ring = if all_direct && !pieces.is_empty() { Ring::new(DEPTH).ok() } else { None };
        let flight = |ring| Flight { ring, asked: 0, given: 0, ready: BTreeMap::new() };
        Ok(DiskSource {
            format,
            pool,
            volumes: pieces,
            chunk,
            chunks: first_chunk,
            next: AtomicU64::new(0),
            ring: ring.map(flight).map(Mutex::new),
            failed: OnceLock::new(),
            edge: Edge::new(name),
        })
    }

    /// Leaves only the chunks of one reader out of `readers` that divide the volumes among themselves: `number` counts from 0,
    /// and the parts follow each other in the order of the stream. Buffers say their place in the whole of it, so that readers can write
    /// one file; a sink for one part alone has to append.
    pub fn part(mut self, number: u64, readers: u64) -> DiskSource {
        let cut = |n: u64| (u128::from(self.chunks) * u128::from(n) / u128::from(readers.max(1))) as u64;
        let (first, end) = (cut(number), cut(number + 1));
        self.next = AtomicU64::new(first);
        self.chunks = end;
        if let Some(flight) = &mut self.ring {
            let flight = flight.get_mut().unwrap_or_else(PoisonError::into_inner);
            (flight.asked, flight.given) = (first, first);
        }
        self
    }

    /// Bytes that it will give, if every file is as long as it was at the start.
    pub fn len(&self) -> u64 {
        self.volumes.last().map_or(0, |piece| piece.base + piece.len)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of a chunk: as many a buffer holds at most, but for long delimited records.
    pub fn chunk(&self) -> u64 {
        self.chunk
    }

    /// Buffers that it will give; some may be empty.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Lets the threads that pull read by themselves, as where io_uring is refused.
    pub fn by_threads(self) -> DiskSource {
        DiskSource { ring: None, ..self }
    }

    /// Whether it reads past the page cache.
    pub fn is_direct(&self) -> bool {
        !self.volumes.is_empty() && self.volumes.iter().all(|piece| piece.volume.has_direct())
    }

    /// Whether several reads are under way at a time, ahead of the threads that pull.
    pub fn is_ahead(&self) -> bool {
        self.ring.is_some()
    }

    /// Reads `into` at `offset` of the stream, for samples. Returns the bytes read.
    pub fn peek(&self, into: &mut [u8], offset: u64) -> Result<usize, Error> {
        let piece =
            self.volumes.iter().rev().find(|piece| piece.base <= offset && offset < piece.base + piece.len);
        let Some(piece) = piece else { return Ok(0) };
        let most = into.len().min((piece.base + piece.len - offset) as usize);
        piece.volume.read_at(&mut into[..most], offset - piece.base)
    }

    /// A buffer to read a chunk into, if there is one within this time.
    pub(super) fn take_for(&self, limit: Duration) -> Option<Buffer> {
        self.pool.try_take().or_else(|| self.edge.stalled_for_credit(|| self.pool.take_for(limit)))
    }

    /// A buffer to read a chunk into, outside the pool if that has none.
    pub(super) fn take_any(&self) -> Buffer {
        self.pool.try_take().unwrap_or_else(|| Buffer::heap(self.pool.buffer_size()))
    }

    /// Reads one chunk into `buffer`, whatever was pulled.
    pub(super) fn pull_chunk(&self, buffer: Buffer, number: u64) -> Result<Buffer, Error> {
        let buffer = self.read_chunk(buffer, number)?;
        self.edge.carried(buffer.len(), buffer.records());
        Ok(buffer)
    }

    /// The pieces of records at the ends of the volumes, which are in no buffer.
    pub fn leftover(&self) -> Result<Vec<u8>, Error> {
        let mut rest = Vec::new();
        for piece in &self.volumes {
            let start = rest.len();
            rest.resize(start + (piece.volume.len() - piece.len) as usize, 0);
            let got = piece.volume.read_at(&mut rest[start..], piece.len)?;
            rest.truncate(start + got);
        }
        if !rest.is_empty() {
            self.edge.carried(rest.len(), 0);
        }
        Ok(rest)
    }

    fn piece(&self, chunk: u64) -> &Piece {
        let after = self.volumes.partition_point(|piece| piece.first_chunk <= chunk);
        // Empty volumes share their first chunk with the one behind them, which is the last of them.
        &self.volumes[after - 1]
    }

    fn take(&self) -> Buffer {
        self.pool.try_take().unwrap_or_else(|| self.edge.stalled_for_credit(|| self.pool.take()))
    }

    /// The next chunk, read by the calling thread.
    fn pull_alone(&self) -> Result<Option<Buffer>, Error> {
        self.failure()?;
        // The buffer comes first: a thread that has a number then never waits for those that are behind it. Another thread
        // may take the last chunk meanwhile, and a consumer may keep all buffers, so the end is looked for again.
        let buffer = loop {
            if self.next.load(Ordering::Relaxed) >= self.chunks {
                return Ok(None);
            }
            if let Some(buffer) = self.take_for(LOOK) {
                break buffer;
            }
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.chunks {
            return Ok(None);
        }
        self.noted(self.read_chunk(buffer, number).map(Some))
    }

    /// The failure that another thread has met, if there was one.
    fn failure(&self) -> Result<(), Error> {
        self.failed.get().cloned().map_or(Ok(()), Err)
    }

    /// Keeps a failure for the other threads, which then end as well instead of reading what is left.
    fn noted<T>(&self, done: Result<T, Error>) -> Result<T, Error> {
        done.inspect_err(|error| drop(self.failed.set(error.clone())))
    }

    /// Reads a chunk on this thread.
    fn read_chunk(&self, mut buffer: Buffer, number: u64) -> Result<Buffer, Error> {
        let piece = self.piece(number);
        let offset = (number - piece.first_chunk) * self.chunk;
        let len = self.chunk.min(piece.len - offset) as usize;
        // Without io_uring the threads that pull read past the page cache themselves, in whole blocks.
        let direct = piece.volume.has_direct();
        let whole = if direct { len.next_multiple_of(BLOCK).min(buffer.capacity()) } else { len };
        let got = self
            .edge
            .stalled_for_data(|| piece.volume.read_block(&mut buffer.room_mut()[..whole], offset))?;
        self.complete(buffer, number, got)
    }

    /// The next chunk past the page cache; reads ahead as far as the pool has buffers.
    fn pull_direct(&self, flight: &Mutex<Flight>) -> Result<Option<Buffer>, Error> {
        let mut flight = flight.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: a thread that waited for it hears of the failure, too.
        self.failure()?;
        self.noted(self.next_in_flight(&mut flight))
    }

    fn next_in_flight(&self, flight: &mut Flight) -> Result<Option<Buffer>, Error> {
        if flight.given == self.chunks {
            return Ok(None);
        }
        let reading = |error| Error::file("reading", self.volumes[0].volume.path_at(0), error);
        loop {
            while flight.asked < self.chunks && flight.ring.has_room() {
                let idle = flight.ring.under_way() == 0 && flight.ready.is_empty();
                let buffer = if idle { Some(self.take()) } else { self.pool.try_take() };
                let Some(buffer) = buffer else { break };
                self.ask(flight, buffer)?;
            }
            if let Some(buffer) = flight.ready.remove(&flight.given) {
                flight.given += 1;
                return Ok(Some(buffer));
            }
            let done = self.edge.stalled_for_data(|| flight.ring.wait()).map_err(reading)?;
            // The chunk was asked for, is not here and not under way: to wait for it would be to wait for ever.
            let Some(done) = done else { return Err(reading(io::Error::other("a chunk never came"))) };
            let number = done.buffer.sequence();
            let got = done.result.unwrap_or(0);
            // What was refused or cut short is read the ordinary way, which also tells the cause.
            let buffer = self.complete(done.buffer, number, got)?;
            flight.ready.insert(number, buffer);
        }
    }

    fn ask(&self, flight: &mut Flight, mut buffer: Buffer) -> Result<(), Error> {
        let number = flight.asked;
        let piece = self.piece(number);
        let offset = (number - piece.first_chunk) * self.chunk;
        let len = self.chunk.min(piece.len - offset) as usize;
        buffer.set_sequence(number);
        flight.asked += 1;
        let whole = len.next_multiple_of(BLOCK);
        match piece.volume.direct_at(offset, whole) {
            Some((file, at)) if whole <= buffer.capacity() => {
                let path = || piece.volume.path_at(offset);
                flight
                    .ring
                    .read(file, buffer, at, whole)
                    .map_err(|error| Error::file("reading", path(), error))
            }
            _ => {
                let buffer = self.complete(buffer, number, 0)?;
                flight.ready.insert(number, buffer);
                Ok(())
            }
        }
    }

    /// Reads what is missing behind the first `got` bytes, cuts at records, and says where the payload belongs.
    fn complete(&self, mut buffer: Buffer, number: u64, got: usize) -> Result<Buffer, Error> {
        let piece = self.piece(number);
        let offset = (number - piece.first_chunk) * self.chunk;
        let len = self.chunk.min(piece.len - offset) as usize;
        let got = got.min(len);
        if got < len {
            let more = piece.volume.read_at(&mut buffer.room_mut()[got..len], offset + got as u64)?;
            if got + more < len {
                let error =
                    io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was read");
                return Err(Error::file("reading", piece.volume.path_at(offset), error));
            }
        }
        buffer.set_window(0, len);
        buffer.set_position(piece.base + offset);
        let mut buffer = match self.format.framing() {
            Framing::Delimited(mark) => frame(buffer, piece, offset, mark)?,
            _ => buffer,
        };
        buffer.set_sequence(number);
        buffer.set_records(self.format.count(buffer.data()));
        Ok(buffer)
    }
}

impl Source for DiskSource {
    fn pull(&self) -> Result<Option<Buffer>, Error> {
        let buffer = match &self.ring {
            Some(flight) => self.pull_direct(flight)?,
            None => self.pull_alone()?,
        };
        if let Some(buffer) = &buffer {
            self.edge.carried(buffer.len(), buffer.records());
        }
        Ok(buffer)
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}

/// Bytes to read at a time into buffers of `room` bytes.
fn chunk_size(framing: Framing, room: usize) -> Result<u64, Error> {
    match framing {
        Framing::Fixed(size) => {
            let step = lcm(size as u64, BLOCK as u64);
            if step <= room as u64 {
                return Ok(room as u64 / step * step);
            }
            if size > room || size == 0 {
                return Err(Error::Format(format!(
                    "records of {size} bytes do not fit into buffers of {room}"
                )));
            }
            Ok((room / size * size) as u64)
        }
        // An eighth of the room, at most 256 KiB, is for the end of the last record.
        Framing::Delimited(_) => {
            let slack = (room / 8).clamp(1, 256 << 10);
            Ok((((room - slack) / BLOCK * BLOCK) as u64).max(BLOCK as u64))
        }
        Framing::Chained => Err(Error::Format("records of this format can only be read as a stream".into())),
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a.max(1), b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

/// Makes the payload begin behind the first delimiter and end with the first one at or behind the end of the chunk.
fn frame(mut buffer: Buffer, piece: &Piece, offset: u64, mark: u8) -> Result<Buffer, Error> {
    let position = piece.base + offset;
    let mut end = buffer.len();
    let start = match memchr::memchr(mark, buffer.data()) {
        _ if offset == 0 => 0,
        Some(at) => at + 1,
        // A piece of a record that began in a chunk before.
        None => {
            buffer.set_window(0, 0);
            return Ok(buffer);
        }
    };
    let mut at = offset + end as u64;
    let mut whole = false;
    // The record that reaches over the seam, or begins on it, is read to its end.
    while at < piece.len && !whole {
        let step = STEP.min((piece.len - at) as usize);
        buffer = with_room(buffer, end, step);
        let got = piece.volume.read_at(&mut buffer.room_mut()[end..end + step], at)?;
        if got == 0 {
            break;
        }
        let found = memchr::memchr(mark, &buffer.room()[end..end + got]);
        end += found.map_or(got, |place| place + 1);
        at += got as u64;
        whole = found.is_some();
    }
    // The last record of a file gets the delimiter that it may lack.
    if end > start && buffer.room()[end - 1] != mark {
        buffer = with_room(buffer, end, 1);
        buffer.room_mut()[end] = mark;
        end += 1;
    }
    buffer.set_window(start, end);
    buffer.set_position(position + start as u64);
    Ok(buffer)
}

/// Whether the last record of a volume gets a delimiter that it lacks.
fn lacks_end(volume: &Volume, framing: Framing) -> bool {
    let (Framing::Delimited(mark), Some(last)) = (framing, volume.len().checked_sub(1)) else { return false };
    let mut byte = [mark];
    volume.read_at(&mut byte, last).is_ok() && byte[0] != mark
}

/// Bytes read at a time behind the end of a chunk.
const STEP: usize = 4096;

/// A buffer with the first `filled` bytes and room for `more` behind them.
pub(super) fn with_room(buffer: Buffer, filled: usize, more: usize) -> Buffer {
    if buffer.capacity() >= filled + more {
        return buffer;
    }
    let mut longer = Buffer::heap((filled + more).max(2 * buffer.capacity()));
    longer.room_mut()[..filled].copy_from_slice(&buffer.room()[..filled]);
    longer
}
