//! The sort in two passes: divide the input into partitions on disk, then sort each into its place in the output.
//!
//! There is no merge: a partition is sorted in memory and written where it belongs, so memory is bounded by the partitions'
//! sizes, which are known before the second pass begins. A partition that came out too large is divided again, and so are
//! those of an input for which one division into as many as there are buffers does not suffice.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use viaduct_river::{EdgeCounts, MemPool, PartitionSink, RecordFormat, Sink, Source, records};

use crate::Error;
use crate::kernel::{Base, Kernel, Outcome, on_threads};
use crate::order::Order;
use crate::sort::{Progress, Settings};
use crate::spill::{Part, SpillSink, SpillSource, Store};
use crate::splitters::{SAMPLES, Splitters};

#[cfg(test)]
mod tests;

/// Bytes of a block on disk at most.
const BLOCK: usize = 256 << 10;

/// Bytes of a block at least.
const LEAST_BLOCK: usize = 16 << 10;

/// Records of a sample that are taken however long they are.
const FEWEST: usize = 64;

/// How often a partition is divided again at most.
const DEPTH: u32 = 16;

/// What a sort in two passes needs to know.
pub(crate) struct External<'a, O> {
    pub(crate) order: &'a O,
    pub(crate) format: &'a Arc<dyn RecordFormat>,
    pub(crate) settings: &'a Settings,
    pub(crate) progress: &'a Progress,
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) room: usize,
    /// Where the buffers of the input come from, if that is memory which the second pass has to do without.
    pub(crate) input: Option<&'a MemPool>,
}

impl<O: Order> External<'_, O> {
    /// Sorts `sources`, of about `len` bytes in all, into `sink` from `base` on. At least `certain` bytes will come, for which
    /// there has to be room on disk.
    pub(crate) fn run(
        &self,
        sources: &[&dyn Source],
        (len, certain): (u64, u64),
        density: f64,
        sampler: &dyn Fn(usize) -> Result<Vec<Vec<u8>>, Error>,
        sink: &dyn Sink,
        base: Base<'_>,
    ) -> Result<(Outcome, usize, Vec<EdgeCounts>), Error> {
        let start = Instant::now();
        self.progress.enter(0, 0);
        let store = Arc::new(Store::new(&self.folders, certain, self.settings.direct)?);
        let stable = self.settings.stable || self.settings.unique;
        let writers = if sources.len() > 1 || stable { sources.len() } else { self.settings.threads() };
        let wanted = self.partitions(cost(len, (len as f64 / density) as u64), self.fanout(writers));
        // Long records are not to fill the memory with a sample.
        let room = (self.settings.budget() as f64 / 8.0 / (density + 32.0)) as usize;
        let sample = sampler((wanted * SAMPLES).min(room.max(FEWEST)))?;
        let splitters = Splitters::new(sample, wanted, self.order);
        self.progress.enter(2, len);
        let (parts, sum) = self.distribute(sources, &splitters, &store, true)?;
        // All of it was read: the partitions have the memory from here on.
        self.input.inspect(|pool| pool.trim());
        let parts = self.divide_large(parts, &store)?;
        let read_ns = start.elapsed().as_nanos() as u64;
        let total: u64 = parts.iter().map(|part| part.bytes).sum();
        self.progress.enter(3, total);
        let mut outcome = self.second_pass(&parts, &store, sink, base(total)?)?;
        outcome.read_ns += read_ns;
        if self.settings.checksum && sum != outcome.sum_in {
            return Err(Error::Proof("the checksum of the partitions is not that of the input".into()));
        }
        Ok((outcome, parts.len(), vec![store.edge().counts()]))
    }

    /// Bytes that records and pairs of a partition may have: a worker's share of the memory.
    fn usable(&self) -> u64 {
        if let Some(bytes) = self.settings.partition {
            return bytes;
        }
        let share = self.settings.budget() / self.workers() as u64;
        let fixed = 6 * self.room as u64;
        share.saturating_sub(fixed).max(share / 4) / 10 * 9
    }

    fn workers(&self) -> usize {
        if self.settings.unique { 1 } else { self.settings.threads() }
    }

    /// Into how many partitions something is divided whose sorting takes `cost` bytes.
    fn partitions(&self, cost: u64, most: usize) -> usize {
        // A quarter more than fit exactly: a sample is no count.
        ((cost / self.usable().max(1) + 1) * 5 / 4 + 1).clamp(2, most as u64) as usize
    }

    /// Partitions that so many writers can fill side by side: each has a buffer for each, of a quarter of the memory. Were there
    /// fewer buffers, most records would need one that another partition has, and blocks would be a record or two.
    fn fanout(&self, writers: usize) -> usize {
        (self.settings.budget() as usize / 4 / LEAST_BLOCK / writers).saturating_sub(1).clamp(3, 1 << 14)
    }

    /// The first pass: every record into its partition.
    fn distribute(
        &self,
        sources: &[&dyn Source],
        splitters: &Splitters,
        store: &Arc<Store>,
        first: bool,
    ) -> Result<(Vec<Part>, u128), Error> {
        // One writer keeps the order of its source within each partition; each source has a number of its own there.
        let stable = self.settings.stable || self.settings.unique;
        let readers: Vec<(u64, &dyn Source)> = match sources {
            [one] => vec![(0, *one); if stable { 1 } else { self.settings.threads() }],
            several => (0..).zip(several.iter().copied()).collect(),
        };
        let writers = readers.len();
        let memory = self.settings.budget() as usize / 4;
        // Each writer has buffers of its own: one whose source waits for another node keeps what it has begun, and that node
        // may wait for what the other writers take in.
        let buffers = splitters.count() + 1;
        let block = (memory / (buffers * writers) / 4096 * 4096).clamp(LEAST_BLOCK, BLOCK);
        let buffers = buffers.min((memory / block / writers).max(2));
        let pools = readers.iter().map(|_| MemPool::new(buffers, block)).collect::<Result<Vec<_>, _>>()?;
        let sinks: Vec<Arc<SpillSink>> = (0..splitters.count())
            .map(|number| Arc::new(SpillSink::new(store.clone(), splitters.is_equal(number))))
            .collect();
        let rule = |record: &[u8]| splitters.of(record, self.order);
        let divider = PartitionSink::new("partitions", self.format.clone(), rule, pools[0].clone(), sinks);
        let writers = readers.into_iter().zip(pools).collect();
        let sums = on_threads(writers, |((number, source), pool): ((u64, &dyn Source), MemPool)| {
            let mut writer = divider.writer_with(number, pool);
            let mut sum = 0u128;
            while let Some(buffer) = source.pull()? {
                self.progress.check()?;
                if first {
                    self.progress.add(buffer.len() as u64);
                }
                if first && self.settings.checksum {
                    let each = records(&**self.format, buffer.data());
                    sum += each.map(|record| u128::from(crc32fast::hash(record))).sum::<u128>();
                }
                writer.put(buffer)?;
            }
            writer.flush()?;
            Ok(sum)
        })?;
        let parts = divider.sinks().iter().map(|sink| sink.part());
        Ok((parts.filter(|part| part.records > 0).collect(), sums.into_iter().sum()))
    }

    /// Divides partitions that do not fit into memory again, until all do.
    fn divide_large(&self, parts: Vec<Part>, store: &Arc<Store>) -> Result<Vec<Part>, Error> {
        let stable = self.settings.stable || self.settings.unique;
        let fanout = self.fanout(if stable { 1 } else { self.settings.threads() });
        let mut done = Vec::new();
        let mut left: Vec<(Part, u32)> = parts.into_iter().rev().map(|part| (part, 0)).collect();
        while let Some((part, depth)) = left.pop() {
            let cost = cost(part.bytes, part.records);
            if cost <= self.usable() || part.equal || part.records == 1 {
                done.push(part);
                continue;
            }
            if depth > DEPTH {
                return Err(Error::Usage(format!(
                    "a partition of {} MB does not get smaller; hint: give more --memory",
                    part.bytes >> 20
                )));
            }
            let wanted = self.partitions(cost, fanout);
            let pool = MemPool::new(2 + self.settings.threads(), part.longest().clamp(4096, BLOCK))?;
            let source = SpillSource::new(store.clone(), part, pool);
            let sample = source.sample(&**self.format, wanted * SAMPLES)?;
            let splitters = Splitters::new(sample, wanted, self.order);
            let (parts, _) = self.distribute(&[&source], &splitters, store, false)?;
            left.extend(parts.into_iter().rev().map(|part| (part, depth + 1)));
        }
        Ok(done)
    }

    /// The second pass: every partition into its place.
    fn second_pass(
        &self,
        parts: &[Part],
        store: &Arc<Store>,
        sink: &dyn Sink,
        base: u64,
    ) -> Result<Outcome, Error> {
        let mut bases = Vec::with_capacity(parts.len());
        let start = base;
        let mut base = base;
        for part in parts {
            bases.push(base);
            base += part.bytes;
        }
        let blocks = parts.iter().filter(|part| !part.equal).map(Part::blocks).max().unwrap_or(1);
        let longest = parts.iter().map(Part::longest).max().unwrap_or(4096).clamp(4096, BLOCK);
        let next = AtomicUsize::new(0);
        let written = Mutex::new(start);
        let workers = self.workers();
        let outcomes = on_threads((0..workers.min(parts.len()).max(1)).collect(), |_| {
            let pool = MemPool::new(blocks + 1, longest)?;
            let mut outcomes = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(part) = parts.get(number) else { return Ok(outcomes) };
                let source = SpillSource::new(store.clone(), part.clone(), pool.clone());
                let base = if self.settings.unique { *lock(&written) } else { bases[number] };
                let outcome = if part.equal {
                    let copied = self.copy(&source, sink, base);
                    copied.inspect_err(|_| sink.fail(viaduct_river::Error::Stopped))?
                } else {
                    self.kernel().run(&[&source], sink, &mut |_| Ok(base), self.room)?
                };
                *lock(&written) += outcome.bytes_out;
                outcomes.push((number, outcome));
            }
        })?;
        let mut outcomes: Vec<(usize, Outcome)> = outcomes.into_iter().flatten().collect();
        outcomes.sort_unstable_by_key(|(number, _)| *number);
        self.join(outcomes, workers as u64)
    }

    fn kernel(&self) -> Kernel<'_, O> {
        Kernel {
            order: self.order,
            format: &**self.format,
            threads: 1,
            shift: BLOCK.trailing_zeros(),
            checksum: self.settings.checksum,
            sum_in: self.settings.checksum,
            unique: self.settings.unique,
            progress: self.progress,
            alone: false,
            one_bucket: self.settings.one_bucket,
        }
    }

    /// A partition of equal records goes out as it is, or the first of them alone. It may be larger than the memory.
    fn copy(&self, source: &SpillSource, sink: &dyn Sink, base: u64) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        let start = Instant::now();
        let mut position = base;
        while let Some(mut buffer) = source.pull()? {
            self.progress.check()?;
            if self.settings.checksum {
                let each = records(&**self.format, buffer.data());
                outcome.sum_in += each.map(|record| u128::from(crc32fast::hash(record))).sum::<u128>();
            }
            if outcome.ends.is_none() {
                let first = records(&**self.format, buffer.data()).next().unwrap_or_default().to_vec();
                outcome.ends = Some((first.clone(), first));
            }
            outcome.records_in += buffer.records();
            outcome.bytes_in += buffer.len() as u64;
            self.progress.add(buffer.len() as u64);
            if self.settings.unique {
                if outcome.records_out > 0 {
                    continue;
                }
                let first = records(&**self.format, buffer.data()).next().unwrap_or_default();
                let len = first.len();
                outcome.sum_out = if self.settings.checksum { crc32fast::hash(first).into() } else { 0 };
                buffer.truncate(len);
                buffer.set_records(1);
            }
            outcome.records_out += buffer.records();
            outcome.bytes_out += buffer.len() as u64;
            buffer.set_position(position);
            position += buffer.len() as u64;
            sink.put(buffer)?;
        }
        outcome.write_ns = start.elapsed().as_nanos() as u64;
        if !self.settings.unique {
            outcome.sum_out = outcome.sum_in;
        }
        Ok(outcome)
    }

    /// Joins what the partitions say; their seams are in order, too.
    fn join(&self, outcomes: Vec<(usize, Outcome)>, workers: u64) -> Result<Outcome, Error> {
        let mut whole = Outcome::default();
        for (_, part) in outcomes {
            whole.records_in += part.records_in;
            whole.bytes_in += part.bytes_in;
            whole.sum_in += part.sum_in;
            whole.records_out += part.records_out;
            whole.bytes_out += part.bytes_out;
            whole.sum_out += part.sum_out;
            whole.read_ns += part.read_ns / workers;
            whole.sort_ns += part.sort_ns / workers;
            whole.write_ns += part.write_ns / workers;
            match (&mut whole.ends, part.ends) {
                (_, None) => {}
                (None, ends) => whole.ends = ends,
                (Some((_, before)), Some((first, last))) => {
                    if self.settings.checksum && self.order.compare(before, &first).is_gt() {
                        return Err(Error::Proof("partitions came out in the wrong order".into()));
                    }
                    *before = last;
                }
            }
        }
        Ok(whole)
    }
}

/// Bytes of memory that sorting takes: the records, and two pairs of 16 bytes for each while they are divided.
fn cost(bytes: u64, records: u64) -> u64 {
    bytes + bytes / 20 + 32 * records
}

fn lock(written: &Mutex<u64>) -> std::sync::MutexGuard<'_, u64> {
    written.lock().unwrap_or_else(PoisonError::into_inner)
}
