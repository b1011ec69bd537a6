//! What arrives at a node, from another one or from its own disk, on its way to the sort.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use viaduct_river::{Buffer, Edge, Error, MemPool, Source};

use crate::entries::SOURCE_BITS;

/// What becomes of a buffer that the sort keeps until the end.
pub(super) enum Keep {
    /// It stays as it is, as long as its pool has more than so many free: others need these to arrive in.
    Stay(MemPool, usize),
    /// Its records move to a buffer of this pool, and it goes back at once.
    Move(MemPool),
    /// The sort gives it back soon.
    Pass,
}

/// Numbers the buffers of one source and keeps its pool from running dry.
pub(super) struct Arrivals {
    source: Arc<dyn Source>,
    keep: Keep,
    /// Number of the source, above that of each buffer.
    number: u64,
    /// Bits of an offset in a buffer.
    shift: u32,
    next: AtomicU64,
}

impl Arrivals {
    pub(super) fn new(source: Arc<dyn Source>, number: usize, shift: u32, keep: Keep) -> Arrivals {
        Arrivals { source, keep, number: (number as u64) << SOURCE_BITS, shift, next: AtomicU64::new(0) }
    }

    fn kept(&self, buffer: Buffer) -> Buffer {
        let copy = match &self.keep {
            Keep::Pass => return buffer,
            Keep::Stay(pool, reserve) if pool.free() > *reserve => return buffer,
            Keep::Stay(..) => None,
            Keep::Move(pool) => pool.try_take().filter(|copy| copy.capacity() >= buffer.len()),
        };
        // More came than a sample of the input let expect: it lies outside the pool.
        let mut copy = copy.unwrap_or_else(|| Buffer::heap(buffer.len()));
        copy.copy_from(&buffer);
        copy
    }
}

impl Source for Arrivals {
    fn pull(&self) -> Result<Option<Buffer>, Error> {
        let Some(buffer) = self.source.pull()? else { return Ok(None) };
        let mut buffer = self.kept(buffer);
        // A buffer that is longer than an offset reaches takes several numbers.
        let numbers = buffer.len().div_ceil(1 << self.shift).max(1) as u64;
        let sequence = self.next.fetch_add(numbers, Ordering::Relaxed);
        if (sequence + numbers) >> SOURCE_BITS != 0 {
            return Err(Error::Format("more buffers from one node than can be numbered".into()));
        }
        buffer.set_sequence(self.number | sequence);
        Ok(Some(buffer))
    }

    fn edge(&self) -> &Edge {
        self.source.edge()
    }
}
