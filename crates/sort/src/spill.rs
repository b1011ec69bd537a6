//! Partitions on disk between the two passes: blocks of one nameless file, or of several that are striped.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use viaduct_os::files::{BLOCK, free_space, temporary};
use viaduct_river::disk::{Direct, Volume};
use viaduct_river::{Buffer, Edge, Error, MemPool, RecordFormat, Sink, Source, records};

/// Where blocks go. They vanish with the process.
#[derive(Debug)]
pub(crate) struct Store {
    volume: Volume,
    end: AtomicU64,
    edge: Edge,
}

/// Bytes of a stripe.
const STRIPE: u64 = 1 << 20;

impl Store {
    /// Files in each of the folders, with room for `bytes` in all.
    pub(crate) fn new(folders: &[PathBuf], bytes: u64, direct: Direct) -> Result<Store, Error> {
        let mut files = Vec::new();
        for folder in folders {
            let free = free_space(folder)
                .map_err(|error| Error::Format(format!("{}: {error}", folder.display())))?;
            let share = bytes / folders.len() as u64;
            if free < share {
                return Err(Error::Format(format!(
                    "{}: {} MB of temporary space wanted, {} MB are free; hint: name other folders with --tmp",
                    folder.display(),
                    share >> 20,
                    free >> 20
                )));
            }
            let file = temporary(folder)
                .map_err(|error| Error::file("creating a temporary file in", folder, error))?;
            files.push((folder.clone(), file));
        }
        let mut volume = Volume::of_files(files, STRIPE);
        if direct != Direct::Off {
            volume.use_direct();
        }
        Ok(Store { volume, end: AtomicU64::new(0), edge: Edge::new("spill") })
    }

    pub(crate) fn edge(&self) -> &Edge {
        &self.edge
    }
}

/// One partition while it is written.
#[derive(Debug)]
pub(crate) struct SpillSink {
    store: Arc<Store>,
    part: Mutex<Part>,
    edge: Edge,
}

/// What is known of a partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    blocks: Vec<Block>,
    pub(crate) bytes: u64,
    pub(crate) records: u64,
    /// All of its records are equal.
    pub(crate) equal: bool,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    offset: u64,
    len: usize,
    records: u64,
    /// The writer's number: blocks of a lower one come first.
    writer: u64,
}

impl SpillSink {
    pub(crate) fn new(store: Arc<Store>, equal: bool) -> SpillSink {
        let part = Part { equal, ..Part::default() };
        SpillSink { store, part: Mutex::new(part), edge: Edge::new("partition") }
    }

    pub(crate) fn part(&self) -> Part {
        let mut part = self.part.lock().unwrap_or_else(PoisonError::into_inner).clone();
        part.blocks.sort_by_key(|block| block.writer);
        part
    }
}

impl Part {
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes of the longest block.
    pub(crate) fn longest(&self) -> usize {
        self.blocks.iter().map(|block| block.len).max().unwrap_or(0)
    }
}

impl Sink for SpillSink {
    fn put(&self, buffer: Buffer) -> Result<(), Error> {
        let len = buffer.len();
        // Whole blocks, so that they can be written past the page cache. What lies behind the records is never read.
        let whole = len.next_multiple_of(BLOCK).min(buffer.capacity());
        let offset = self.store.end.fetch_add(len.next_multiple_of(BLOCK) as u64, Ordering::Relaxed);
        self.store.volume.write_at(&buffer.room()[..whole], offset)?;
        self.store.edge.carried(len, buffer.records());
        let mut part = self.part.lock().unwrap_or_else(PoisonError::into_inner);
        part.blocks.push(Block { offset, len, records: buffer.records(), writer: buffer.sequence() });
        part.bytes += len as u64;
        part.records += buffer.records();
        Ok(())
    }

    fn finish(&self) -> Result<(), Error> {
        Ok(())
    }

    fn fail(&self, _error: Error) {}

    fn edge(&self) -> &Edge {
        &self.edge
    }
}

/// A partition as a source.
#[derive(Debug)]
pub(crate) struct SpillSource {
    store: Arc<Store>,
    part: Part,
    pool: MemPool,
    next: Mutex<(usize, u64)>,
    edge: Edge,
}

impl SpillSource {
    /// Reads the blocks of `part` into buffers of `pool`; longer ones into memory of their own.
    pub(crate) fn new(store: Arc<Store>, part: Part, pool: MemPool) -> SpillSource {
        SpillSource { store, part, pool, next: Mutex::new((0, 0)), edge: Edge::new("spilled") }
    }

    /// About `wanted` records from all over the partition.
    pub(crate) fn sample(&self, format: &dyn RecordFormat, wanted: usize) -> Result<Vec<Vec<u8>>, Error> {
        let step = (self.part.records as usize / wanted.max(1)).max(1);
        let mut sample = Vec::new();
        for &block in &self.part.blocks {
            let buffer = self.read(block)?;
            sample.extend(records(format, buffer.data()).step_by(step).map(<[u8]>::to_vec));
        }
        Ok(sample)
    }

    fn read(&self, block: Block) -> Result<Buffer, Error> {
        let whole = block.len.next_multiple_of(BLOCK);
        let mut buffer = if whole > self.pool.buffer_size() { Buffer::heap(whole) } else { self.pool.take() };
        let got = self.store.volume.read_block(&mut buffer.room_mut()[..whole], block.offset)?;
        if got < block.len {
            return Err(Error::Format(
                "a temporary file became shorter; hint: look at the folder of --tmp".into(),
            ));
        }
        buffer.set_window(0, block.len);
        buffer.set_records(block.records);
        Ok(buffer)
    }
}

impl Source for SpillSource {
    fn pull(&self) -> Result<Option<Buffer>, Error> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, sequence) = *next;
        let Some(&block) = self.part.blocks.get(number) else { return Ok(None) };
        *next = (number + 1, sequence + block.len.div_ceil(self.pool.buffer_size()).max(1) as u64);
        drop(next);
        let mut buffer = self.read(block)?;
        buffer.set_sequence(sequence);
        self.edge.carried(buffer.len(), buffer.records());
        Ok(Some(buffer))
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}
