//! Partitions on disk between the two passes: blocks of one nameless file, or of several that are striped.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
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

/// Records of a sample from one block, about. An input that was almost sorted has neighbours in one.
const EACH: usize = 64;

/// Blocks that a sample is taken from at least.
const FEWEST: usize = 32;

/// Bytes of a stripe.
const STRIPE: u64 = 1 << 20;

impl Store {
    /// Files in each of the folders, with room for `bytes` in all.
    pub(crate) fn new(folders: &[PathBuf], bytes: u64, direct: Direct) -> Result<Store, Error> {
        let mut files = Vec::new();
        let disks = folders.iter().map(|folder| disk_of(folder)).collect::<Result<Vec<_>, Error>>()?;
        for (folder, disk) in folders.iter().zip(&disks) {
            let free = free_space(folder)
                .map_err(|error| Error::Format(format!("{}: {error}", folder.display())))?;
            // Folders of one file system share its room.
            let beside = disks.iter().filter(|other| *other == disk).count() as u64;
            let share = bytes / folders.len() as u64 * beside;
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

/// The number of the file system that a folder lies on.
fn disk_of(folder: &Path) -> Result<u64, Error> {
    let kind = std::fs::metadata(folder);
    let kind =
        kind.map_err(|error| Error::file("looking at the folder of temporary files,", folder, error))?;
    Ok(kind.dev())
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

    /// So many blocks, evenly spread, or all if there are no more.
    fn some(&self, wanted: usize) -> Vec<Block> {
        let (all, wanted) = (self.blocks.len(), wanted.max(1));
        if all <= wanted {
            return self.blocks.clone();
        }
        // From the middle of each stretch.
        (0..wanted).map(|n| self.blocks[(2 * n + 1) * all / (2 * wanted)]).collect()
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
        let store = &self.store;
        let write = || store.volume.write_at(&buffer.room()[..whole], offset);
        self.edge.worked(|| store.edge.worked(write))?;
        store.edge.carried(len, buffer.records());
        self.edge.carried(len, buffer.records());
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

    /// About `wanted` records from all over the partition, of as few of its blocks as that allows.
    pub(crate) fn sample(&self, format: &dyn RecordFormat, wanted: usize) -> Result<Vec<Vec<u8>>, Error> {
        let blocks = self.part.some(wanted.div_ceil(EACH).max(FEWEST));
        let records_there: u64 = blocks.iter().map(|block| block.records).sum();
        let step = (records_there as usize / wanted.max(1)).max(1);
        let mut sample = Vec::new();
        for block in blocks {
            let buffer = self.read(block)?;
            sample.extend(records(format, buffer.data()).step_by(step).map(<[u8]>::to_vec));
        }
        Ok(sample)
    }

    fn read(&self, block: Block) -> Result<Buffer, Error> {
        let whole = block.len.next_multiple_of(BLOCK);
        let mut buffer = if whole > self.pool.buffer_size() { Buffer::heap(whole) } else { self.pool.take() };
        let (store, room) = (&self.store, &mut buffer.room_mut()[..whole]);
        let got = store.edge.stalled_for_data(|| store.volume.read_block(room, block.offset))?;
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
        let mut buffer = self.edge.stalled_for_data(|| self.read(block))?;
        buffer.set_sequence(sequence);
        self.edge.carried(buffer.len(), buffer.records());
        Ok(Some(buffer))
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}

#[cfg(test)]
mod tests {
    use viaduct_kit::tempdir::TempDir;
    use viaduct_river::Fixed;

    use super::*;

    #[test]
    fn a_sample_reads_some_blocks_from_all_over_the_partition() {
        let folder = TempDir::new("spill-sample");
        let store = Arc::new(Store::new(&[folder.path().to_owned()], 0, Direct::Off).unwrap());
        let sink = SpillSink::new(store.clone(), false);
        // Each block has one number, as where the input was sorted.
        for number in 0..1000u64 {
            let mut buffer = Buffer::heap(4096);
            (0..512).for_each(|_| buffer.push_record(&number.to_be_bytes()));
            sink.put(buffer).unwrap();
        }
        let source = SpillSource::new(store, sink.part(), MemPool::new(1, 4096).unwrap());
        let sample = source.sample(&Fixed(8), 8192).unwrap();
        assert!((8192..=2 * 8192).contains(&sample.len()), "{}", sample.len());
        let mut numbers: Vec<u64> =
            sample.iter().map(|record| u64::from_be_bytes(record[..].try_into().unwrap())).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), 128, "blocks that were read");
        let gaps = numbers.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(numbers[0] < 8 && numbers[127] >= 992 && gaps.max().unwrap() <= 8, "{numbers:?}");
        // A small partition is read whole.
        assert_eq!(source.part.some(1000).len(), 1000);
    }

    #[test]
    fn folders_of_one_file_system_share_its_room() {
        let folder = TempDir::new("spill-room");
        let folders: Vec<PathBuf> = (0..4).map(|n| folder.join(format!("{n}"))).collect();
        folders.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let free = free_space(folder.path()).unwrap();
        let told = Store::new(&folders, free * 2, Direct::Off).map(|_| ()).unwrap_err().to_string();
        assert!(told.contains("temporary space wanted") && told.contains("--tmp"), "{told}");
        assert!(Store::new(&folders, free / 8, Direct::Off).is_ok());
    }
}
