//! The three steps of a node: find ranges, distribute what it reads, sort what it gets.

use std::path::PathBuf;
use std::sync::Arc;

use viaduct_job::Job;
use viaduct_river::disk::DiskSource;
use viaduct_river::net::Mesh;
use viaduct_river::{EdgeCounts, MemPool, PartitionSink, RecordFormat, RiverSink, Sink, Source, records};

use super::arrivals::{Arrivals, Bound, Keep};
use super::node::{Read, numbers};
use super::target::Target;
use crate::Error;
use crate::engine::{self, ROOM, sample_files};
use crate::external::External;
use crate::kernel::{Kernel, Outcome, on_threads};
use crate::order::Order;
use crate::sort::{Progress, Settings};
use crate::splitters::{Ranges, SAMPLES};

/// Bytes of a message between nodes, and of a chunk that is read.
pub(super) const BLOCK: usize = 256 << 10;

/// Bits of an offset in one.
const SHIFT: u32 = BLOCK.trailing_zeros();

/// Buffers that wait at a node for itself.
pub(super) const HERE: usize = 8;

/// Buffers that an edge uses at either end: posted or under way, and in the hands of a thread.
const EDGE: usize = 6;

/// What a node knows once it runs.
pub(super) struct Running<'a, O> {
    pub(super) order: &'a O,
    pub(super) settings: Settings,
    pub(super) progress: &'a Progress,
    pub(super) format: Arc<dyn RecordFormat>,
    pub(super) rank: usize,
    pub(super) size: usize,
    /// Bytes of a record, on average.
    pub(super) density: f64,
    /// Bytes of all inputs.
    pub(super) total: u64,
}

/// What records move through.
pub(super) struct Moved<'a> {
    pub(super) mesh: &'a Mesh,
    /// Records that this node reads and sorts itself.
    pub(super) here: &'a Arc<RiverSink>,
    pub(super) receiving: &'a MemPool,
    /// Bytes that this node is expected to sort.
    pub(super) share: u64,
    pub(super) one_pass: bool,
}

impl<O: Order> Running<'_, O> {
    /// Buffers for what comes from other nodes: in one pass for all of it, if the keys are spread evenly. What a node has read
    /// itself lies elsewhere.
    pub(super) fn receiving(&self) -> usize {
        let share = self.total / self.size as u64 * 9 / 8;
        let from_others = share as usize / self.size * (self.size - 1);
        let kept = if engine::fits(&self.settings, share, self.density) { from_others / BLOCK } else { 0 };
        kept + (self.size - 1) * EDGE
    }

    /// Buffers for what goes to other nodes: one that each thread fills for each, and those under way.
    pub(super) fn sending(&self) -> usize {
        self.size * self.settings.threads() + (self.size - 1) * EDGE + HERE
    }

    /// Which node sorts which records, from samples of all; and the part of the sample that is this node's to sort.
    pub(super) fn ranges(
        &self,
        source: &DiskSource,
        mesh: &Mesh,
        len: u64,
    ) -> Result<(Ranges, Vec<Vec<u8>>), Error> {
        let fits = engine::fits(&self.settings, self.total / self.size as u64 * 9 / 8, self.density);
        // Two passes need partitions of about the same size, too.
        let all = SAMPLES * self.size * if fits { 1 } else { 4 };
        let wanted = (all as f64 * len as f64 / self.total.max(1) as f64).ceil() as usize;
        let mut ours = Vec::new();
        for record in sample_files(source, &*self.format, wanted, self.rank as u64)? {
            if ours.len() + record.len() <= BLOCK {
                ours.extend_from_slice(&record);
            }
        }
        let mut sample = Vec::new();
        for theirs in mesh.exchange(self.rank, &ours)? {
            sample.extend(records(&*self.format, &theirs).map(<[u8]>::to_vec));
        }
        let ranges = Ranges::new(&sample, self.size, self.order);
        sample.retain(|record| ranges.of(record, self.order) == self.rank);
        Ok((ranges, sample))
    }

    /// Reads this node's part of the input and sends each record to its node.
    pub(super) fn distribute(
        &self,
        source: &DiskSource,
        ranges: &Ranges,
        moved: &Moved<'_>,
        pool: MemPool,
    ) -> Result<Read, Error> {
        let here: Arc<dyn Sink> = moved.here.clone();
        let sinks: Vec<Arc<dyn Sink>> =
            moved.mesh.sinks.iter().map(|sink| sink.clone().unwrap_or_else(|| here.clone())).collect();
        let read = self.send(source, ranges, sinks.clone(), pool);
        match &read {
            Ok(_) => sinks.iter().try_for_each(|sink| sink.finish())?,
            Err(error) => {
                let cause = match error {
                    Error::River(error) => error.clone(),
                    other => viaduct_river::Error::Format(other.to_string()),
                };
                sinks.iter().for_each(|sink| sink.fail(cause.clone()));
            }
        }
        read
    }

    fn send(
        &self,
        source: &DiskSource,
        ranges: &Ranges,
        sinks: Vec<Arc<dyn Sink>>,
        pool: MemPool,
    ) -> Result<Read, Error> {
        // One writer keeps the order of the input.
        let stable = self.settings.stable || self.settings.unique;
        let threads = if stable { 1 } else { self.settings.threads() };
        let rule = |record: &[u8]| ranges.of(record, self.order);
        let divider = PartitionSink::new("nodes", self.format.clone(), rule, pool, sinks);
        self.progress.enter(2, self.total / self.size as u64);
        let parts = on_threads((0..threads).collect(), |_| {
            let mut writer = divider.writer();
            let mut read = Read::default();
            while let Some(buffer) = source.pull()? {
                self.progress.check()?;
                self.progress.add(buffer.len() as u64);
                read.records += buffer.records();
                read.bytes += buffer.len() as u64;
                if self.settings.checksum {
                    let each = records(&*self.format, buffer.data());
                    read.sum += each.map(|record| u128::from(crc32fast::hash(record))).sum::<u128>();
                }
                writer.put(buffer)?;
            }
            writer.flush()?;
            Ok(read)
        })?;
        Ok(parts.into_iter().fold(Read::default(), |sum, one| Read {
            records: sum.records + one.records,
            bytes: sum.bytes + one.bytes,
            sum: sum.sum + one.sum,
        }))
    }

    /// Sorts what arrives into the target.
    pub(super) fn sort(
        &self,
        moved: &Moved<'_>,
        target: &Target,
        job: &mut Job,
        folders: Vec<PathBuf>,
        sample: Vec<Vec<u8>>,
    ) -> Result<(Outcome, usize, Vec<EdgeCounts>), Error> {
        let arrivals = self.arrivals(moved)?;
        let sources: Vec<&dyn Source> = arrivals.iter().map(|source| source as &dyn Source).collect();
        // Where only the first of equals stays, a place is known when all nodes before have written.
        let in_turn = target.shared && self.settings.unique;
        let mut base = |bytes: u64| {
            target.reserve(bytes)?;
            let mut base = 0;
            if in_turn {
                for node in 0..self.rank {
                    base += numbers(job, 0)?[node];
                }
            } else if target.shared {
                base = numbers(job, bytes)?[..self.rank].iter().sum();
            }
            Ok(base)
        };
        let sorted = if moved.one_pass {
            let kernel = Kernel {
                order: self.order,
                format: &*self.format,
                threads: self.settings.threads(),
                shift: SHIFT,
                checksum: self.settings.checksum,
                sum_in: false,
                unique: self.settings.unique,
                progress: self.progress,
                alone: true,
                one_bucket: self.settings.one_bucket,
            };
            (kernel.run(&sources, &target.sink, &mut base, ROOM)?, 1, Vec::new())
        } else {
            let external = External {
                order: self.order,
                format: &self.format,
                settings: &self.settings,
                progress: self.progress,
                folders,
                room: ROOM,
                // The edges keep theirs, which is taken off the budget.
                input: None,
            };
            let sampler = |_: usize| Ok(sample.clone());
            // The share is that of a sample: a disk with a little less room than that may do.
            let len = (moved.share, moved.share / 8 * 7);
            external.run(&sources, len, self.density, &sampler, &target.sink, &mut base)?
        };
        if in_turn {
            for node in self.rank..self.size {
                numbers(job, if node == self.rank { sorted.0.bytes_out } else { 0 })?;
            }
        }
        Ok(sorted)
    }

    /// What arrives, by the node that it comes from.
    fn arrivals(&self, moved: &Moved<'_>) -> Result<Vec<Arrivals>, Error> {
        let reserve = (self.size - 1) * EDGE;
        let own = moved.share as usize / self.size / BLOCK + HERE;
        let bound = moved.one_pass.then(|| Arc::new(Bound::new(self.settings.clone(), self.rank)));
        let arrival = |(node, source): (usize, &Option<Arc<dyn Source>>)| {
            let (source, keep): (Arc<dyn Source>, Keep) = match source {
                Some(source) if moved.one_pass => {
                    (source.clone(), Keep::Stay(moved.receiving.clone(), reserve))
                }
                Some(source) => (source.clone(), Keep::Pass),
                None if moved.one_pass => (moved.here.clone(), Keep::Move(MemPool::new(own, BLOCK)?)),
                None => (moved.here.clone(), Keep::Pass),
            };
            Ok(Arrivals::new(source, node, SHIFT, keep, bound.clone()))
        };
        moved.mesh.sources.iter().enumerate().map(arrival).collect()
    }

    /// Every record of this node belongs to its range: the first and the last do, and the rest lies between.
    pub(super) fn prove_range(&self, outcome: &Outcome, ranges: &Ranges) -> Result<(), Error> {
        let Some((first, last)) = outcome.ends.as_ref().filter(|_| self.settings.checksum) else {
            return Ok(());
        };
        if [first, last].iter().any(|record| ranges.of(record, self.order) != self.rank) {
            return Err(Error::Proof("a node sorted records of another one's range".into()));
        }
        Ok(())
    }
}
