//! Two copies of a file, or of whatever else has chunks, that share the reading (River's graduated declustering).
//!
//! Each chunk is read from the copy that is expected to have it first, by the reads under way there and the time that its chunks
//! took. So a slower disk serves less, whether one thread pulls or many, and a copy that cannot be read is replaced by the other.
//! A thread has its buffer before it has the number of its chunk: one that waits for a buffer never holds up those with later chunks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::DiskSource;
use super::source::LOOK;
use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::Source;

/// What a copy has to do for a mirror: give chunks by their number, in any order and to several threads. A [`DiskSource`] does; so may a
/// source of a program's own.
pub trait Chunks: Send + Sync {
    /// Bytes of all records, bytes of a chunk, and how many chunks there are: the same in both copies.
    fn shape(&self) -> [u64; 3];

    /// A buffer to read a chunk into, if there is one within this time.
    fn buffer(&self, limit: Duration) -> Option<Buffer>;

    /// A buffer to read a chunk into at once, outside the pool if that has none.
    fn spare_buffer(&self) -> Buffer;

    /// Reads a chunk into `buffer`, with its records, and its place as the buffer's position and sequence.
    ///
    /// # Errors
    /// If it cannot be read: the other copy is asked for it.
    fn read(&self, buffer: Buffer, number: u64) -> Result<Buffer, Error>;
}

impl Chunks for DiskSource {
    fn shape(&self) -> [u64; 3] {
        [self.len(), self.chunk(), self.chunks()]
    }

    fn buffer(&self, limit: Duration) -> Option<Buffer> {
        self.take_for(limit)
    }

    fn spare_buffer(&self) -> Buffer {
        self.take_any()
    }

    fn read(&self, buffer: Buffer, number: u64) -> Result<Buffer, Error> {
        self.pull_chunk(buffer, number)
    }
}

/// Reads two copies as one.
#[derive(Debug)]
pub struct MirrorSource<C = DiskSource> {
    copies: [C; 2],
    /// Chunks of each.
    chunks: u64,
    paces: Mutex<[Pace; 2]>,
    served: [AtomicU64; 2],
    turn: AtomicU64,
    next: AtomicU64,
    edge: Edge,
}

/// What is known of a copy.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Reads under way.
    under_way: u32,
    /// How long a chunk takes, smoothed; unknown before the first.
    chunk: Option<Duration>,
}

impl Pace {
    /// When one more chunk would be here. A copy that was never asked is taken for as fast as `other`, and is asked if it is idle.
    fn finish(&self, other: &Pace) -> Duration {
        match (self.chunk, self.under_way) {
            (None, 0) => Duration::ZERO,
            (chunk, reads) => chunk.or(other.chunk).unwrap_or(Duration::from_nanos(1)) * (reads + 1),
        }
    }

    /// A chunk came after this time, when so many reads shared the copy.
    fn took(&mut self, time: Duration, reads: u32) {
        let time = time / reads.max(1);
        self.chunk = Some(self.chunk.map_or(time, |before| (before * 3 + time) / 4));
    }

    /// It was not asked: what it was slow with may be over, so it is after a while.
    fn forget(&mut self) {
        if self.under_way == 0 {
            self.chunk = self.chunk.map(|chunk| chunk - chunk / 32);
        }
    }
}

impl<C: Chunks> MirrorSource<C> {
    /// Reads `copies`, which hold the same bytes and are read in the same chunks.
    pub fn new(name: &str, copies: [C; 2]) -> Result<MirrorSource<C>, Error> {
        let shape = copies[0].shape();
        if shape != copies[1].shape() {
            return Err(Error::Format("the copies of a mirror differ in length".into()));
        }
        Ok(MirrorSource {
            copies,
            chunks: shape[2],
            paces: Default::default(),
            served: Default::default(),
            turn: AtomicU64::new(0),
            next: AtomicU64::new(0),
            edge: Edge::new(name),
        })
    }

    /// Chunks that each copy has served.
    pub fn served(&self) -> [u64; 2] {
        [0, 1].map(|copy| self.served[copy].load(Ordering::Relaxed))
    }

    fn paces(&self) -> MutexGuard<'_, [Pace; 2]> {
        self.paces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The copy that is expected to have a chunk first, and its reads with this one; where nothing decides, they take turns.
    fn choose(&self) -> (usize, u32) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut paces = self.paces();
        let [first, second] = *paces;
        let expected = |pace: Pace, other: Pace| (pace.finish(&other), pace.under_way);
        let copy = match expected(first, second).cmp(&expected(second, first)) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Greater => 1,
            std::cmp::Ordering::Equal => (turn % 2) as usize,
        };
        paces[copy].under_way += 1;
        paces[1 - copy].forget();
        (copy, paces[copy].under_way)
    }

    /// Whether every chunk is read or being read.
    fn is_over(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.chunks
    }

    /// Reads the next chunk from the copy that was chosen, or from the other if that fails; `None` if there is no other chunk.
    fn read(&self, (copy, reads): (usize, u32)) -> Result<Option<Buffer>, Error> {
        let start = Instant::now();
        let buffer = loop {
            match self.edge.stalled_for_credit(|| self.copies[copy].buffer(LOOK)) {
                Some(buffer) => break Some(buffer),
                None if self.is_over() => break None,
                None => {}
            }
        };
        let numbered = buffer.map(|buffer| (buffer, self.next.fetch_add(1, Ordering::Relaxed)));
        let Some((buffer, number)) = numbered.filter(|(_, number)| *number < self.chunks) else {
            self.paces()[copy].under_way -= 1;
            return Ok(None);
        };
        let read = self.edge.stalled_for_data(|| self.copies[copy].read(buffer, number));
        let time = start.elapsed();
        let mut paces = self.paces();
        paces[copy].under_way -= 1;
        match &read {
            Ok(_) => paces[copy].took(time, reads),
            // However soon it says that it cannot: the other one has to read as well.
            Err(_) => {
                let other = paces[1 - copy].chunk.unwrap_or(time);
                paces[copy].took(time + 2 * other, 1);
            }
        }
        drop(paces);
        let (served, buffer) = match read {
            Ok(buffer) => (copy, buffer),
            // Threads with later chunks may have all buffers of the other copy and wait for this one.
            Err(_) => {
                let other = &self.copies[1 - copy];
                (1 - copy, self.edge.stalled_for_data(|| other.read(other.spare_buffer(), number))?)
            }
        };
        self.served[served].fetch_add(1, Ordering::Relaxed);
        Ok(Some(buffer))
    }
}

impl<C: Chunks> Source for MirrorSource<C> {
    fn pull(&self) -> Result<Option<Buffer>, Error> {
        if self.is_over() {
            return Ok(None);
        }
        let Some(buffer) = self.read(self.choose())? else { return Ok(None) };
        self.edge.carried(buffer.len(), buffer.records());
        Ok(Some(buffer))
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}
