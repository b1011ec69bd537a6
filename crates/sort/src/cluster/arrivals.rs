//! What arrives at a node, from another one or from its own disk, on its way to the sort.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use viaduct_river::{Buffer, Edge, Error, MemPool, Source};

use crate::engine;
use crate::entries::SOURCE_BITS;
use crate::sort::Settings;

/// What becomes of a buffer that the sort keeps until the end.
pub(super) enum Keep {
    /// It stays as it is, as long as its pool has more than so many free: others need these to arrive in.
    Stay(MemPool, usize),
    /// Its records move to a buffer of this pool, and it goes back at once.
    Move(MemPool),
    /// The sort gives it back soon.
    Pass,
}

/// What a node keeps until the end, from all of its sources together, and how much that may be.
#[derive(Debug)]
pub(super) struct Bound {
    settings: Settings,
    rank: usize,
    bytes: AtomicU64,
    records: AtomicU64,
}

impl Bound {
    /// The bound of a node that sorts in one pass.
    pub(super) fn new(settings: Settings, rank: usize) -> Bound {
        Bound { settings, rank, bytes: AtomicU64::new(0), records: AtomicU64::new(0) }
    }

    /// Counts a buffer, if the sort of all that was kept still fits into the node's memory with it.
    fn count(&self, buffer: &Buffer) -> Result<(), Error> {
        let add = |counter: &AtomicU64, more: u64| counter.fetch_add(more, Ordering::Relaxed) + more;
        let (bytes, records) = (add(&self.bytes, buffer.len() as u64), add(&self.records, buffer.records()));
        if engine::fits(&self.settings, bytes, bytes as f64 / records.max(1) as f64) {
            return Ok(());
        }
        Err(Error::Format(format!(
            "node {} gets more than a sample of the input let expect: {} MB and more in {records} records, which cannot be sorted \
             in its {} MB of memory; hint: give more --memory, or so little that the sort takes two passes",
            self.rank,
            bytes >> 20,
            self.settings.budget() >> 20
        )))
    }
}

/// Numbers the buffers of one source and keeps its pool from running dry.
pub(super) struct Arrivals {
    source: Arc<dyn Source>,
    keep: Keep,
    bound: Option<Arc<Bound>>,
    /// Number of the source, above that of each buffer.
    number: u64,
    /// Bits of an offset in a buffer.
    shift: u32,
    next: AtomicU64,
}

impl Arrivals {
    /// `bound` is there if buffers are kept until the end.
    pub(super) fn new(
        source: Arc<dyn Source>,
        number: usize,
        shift: u32,
        keep: Keep,
        bound: Option<Arc<Bound>>,
    ) -> Arrivals {
        let number = (number as u64) << SOURCE_BITS;
        Arrivals { source, keep, bound, number, shift, next: AtomicU64::new(0) }
    }

    fn kept(&self, buffer: Buffer) -> Buffer {
        let copy = match &self.keep {
            Keep::Pass => return buffer,
            Keep::Stay(pool, reserve) if pool.free() > *reserve => return buffer,
            Keep::Stay(..) => None,
            Keep::Move(pool) => pool.try_take().filter(|copy| copy.capacity() >= buffer.len()),
        };
        // More came than a sample of the input let expect: as far as the bound allows, it lies outside the pool.
        let mut copy = copy.unwrap_or_else(|| Buffer::heap(buffer.len()));
        copy.copy_from(&buffer);
        copy
    }
}

impl Source for Arrivals {
    fn pull(&self) -> Result<Option<Buffer>, Error> {
        let Some(buffer) = self.source.pull()? else { return Ok(None) };
        if let Some(bound) = &self.bound {
            bound.count(&buffer)?;
        }
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

#[cfg(test)]
mod tests {
    use viaduct_river::{RiverSink, Sink};

    use super::*;

    #[test]
    fn records_that_are_kept_never_need_more_than_the_memory() {
        let settings = Settings { memory: Some(64 << 20), threads: 1, ..Settings::default() };
        let bound = Arc::new(Bound::new(settings.clone(), 3));
        let queues = [0, 1].map(|_| Arc::new(RiverSink::new("queue", 100, 1)));
        let arrivals = queues.clone().map(|queue| {
            let pool = MemPool::new(4, 1 << 20).unwrap();
            Arrivals::new(queue, 0, 20, Keep::Move(pool), Some(bound.clone()))
        });
        let mut kept = 0;
        let refused = loop {
            let n = (kept / (1 << 20)) as usize % 2;
            let mut buffer = Buffer::heap(1 << 20);
            buffer.set_window(0, 1 << 20);
            buffer.set_records((1 << 20) / 100);
            queues[n].put(buffer).unwrap();
            match arrivals[n].pull() {
                Ok(Some(buffer)) => kept += buffer.len() as u64,
                other => break other,
            }
            assert!(kept <= 64 << 20, "no bound");
        };
        let told = refused.map(|_| ()).unwrap_err().to_string();
        assert!(told.contains("node 3") && told.contains("--memory"), "{told}");
        assert!(engine::fits(&settings, kept, 100.0) && kept > 16 << 20, "{kept}");
    }
}
