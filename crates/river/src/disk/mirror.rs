//! Two copies of a file that share the reading (River's graduated declustering).
//!
//! Each chunk is read from the copy with fewer reads under way, so that a slower disk serves less, and a copy that cannot be
//! read is replaced by the other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::DiskSource;
use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::Source;

/// Reads two copies as one.
#[derive(Debug)]
pub struct MirrorSource {
    copies: [DiskSource; 2],
    /// Reads of each copy.
    under_way: Mutex<[usize; 2]>,
    served: [AtomicU64; 2],
    next: AtomicU64,
    edge: Edge,
}

impl MirrorSource {
    /// Reads `copies`, which hold the same bytes and are read in the same chunks.
    pub fn new(name: &str, copies: [DiskSource; 2]) -> Result<MirrorSource, Error> {
        let shape = |copy: &DiskSource| (copy.len(), copy.chunk(), copy.chunks());
        if shape(&copies[0]) != shape(&copies[1]) {
            return Err(Error::Format("the copies of a mirror differ in length".into()));
        }
        Ok(MirrorSource {
            copies,
            under_way: Default::default(),
            served: Default::default(),
            next: AtomicU64::new(0),
            edge: Edge::new(name),
        })
    }

    /// Chunks that each copy has served.
    pub fn served(&self) -> [u64; 2] {
        [0, 1].map(|copy| self.served[copy].load(Ordering::Relaxed))
    }

    fn under_way(&self) -> MutexGuard<'_, [usize; 2]> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The copy with fewer reads under way, with one more; where that decides nothing, they take turns.
    fn choose(&self, number: u64) -> usize {
        let mut under_way = self.under_way();
        let [first, second] = *under_way;
        let copy = if first == second { (number % 2) as usize } else { usize::from(second < first) };
        under_way[copy] += 1;
        copy
    }

    /// Reads a chunk from the copy that was chosen, or from the other if that fails.
    fn read(&self, copy: usize, number: u64) -> Result<Buffer, Error> {
        let read = self.copies[copy].pull_chunk(number);
        self.under_way()[copy] -= 1;
        let (served, buffer) = match read {
            Ok(buffer) => (copy, buffer),
            Err(_) => (1 - copy, self.copies[1 - copy].pull_chunk(number)?),
        };
        self.served[served].fetch_add(1, Ordering::Relaxed);
        Ok(buffer)
    }
}

impl Source for MirrorSource {
    fn pull(&self) -> Result<Option<Buffer>, Error> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.copies[0].chunks() {
            return Ok(None);
        }
        let buffer = self.read(self.choose(number), number)?;
        self.edge.carried(buffer.len(), buffer.records());
        Ok(Some(buffer))
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}
