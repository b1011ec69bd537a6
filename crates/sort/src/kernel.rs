//! The sort in memory: buckets of pairs, sorted one by one, and records gathered from where they lie.
//!
//! Three steps, each on all threads: read and make pairs; divide the pairs into buckets; sort a group of buckets, gather its
//! records and put them into the sink. Millennium Sort (section 4.2) calls them read, sort and write.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use viaduct_os::prefetch::prefetch;
use viaduct_river::{Framing, MemPool, RecordFormat, Sink, Source};

use crate::Error;
use crate::entries::{Buckets, Divided, Gathered, PLACE_BITS, Table, renumber};
use crate::order::Order;
use crate::sort::Progress;
use crate::writer::{Turns, Writer};

/// Records that are asked of memory ahead of their turn.
const AHEAD: usize = 12;

/// What a sort in memory needs to know.
pub(crate) struct Kernel<'a, O> {
    pub(crate) order: &'a O,
    pub(crate) format: &'a dyn RecordFormat,
    pub(crate) threads: usize,
    /// Bits of an offset in a buffer.
    pub(crate) shift: u32,
    pub(crate) checksum: bool,
    /// The sum of what is read is worked out here and has to be that of the output. Else the caller compares.
    pub(crate) sum_in: bool,
    pub(crate) unique: bool,
    pub(crate) progress: &'a Progress,
    /// It is the whole sort, and says what it does.
    pub(crate) alone: bool,
    /// There is one bucket, whatever the keys.
    pub(crate) one_bucket: bool,
}

/// Says where in the output the first record goes, once the bytes that were read are known.
pub(crate) type Base<'a> = &'a mut dyn FnMut(u64) -> Result<u64, Error>;

/// What was read, and how long each step took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) records_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) sum_in: u128,
    pub(crate) records_out: u64,
    pub(crate) bytes_out: u64,
    pub(crate) sum_out: u128,
    pub(crate) read_ns: u64,
    pub(crate) sort_ns: u64,
    pub(crate) write_ns: u64,
    /// The first and the last record, to be compared with those of the neighbours.
    pub(crate) ends: Option<(Vec<u8>, Vec<u8>)>,
}

/// What one group put out.
struct Group {
    number: usize,
    records: u64,
    bytes: u64,
    sum: u128,
    ends: Option<(Vec<u8>, Vec<u8>)>,
}

impl<O: Order> Kernel<'_, O> {
    /// Sorts all that `sources` give into `sink`, from `base` on. A single source is read by all threads, several by one
    /// each. Threads that wait for their turn at the sink hear of a failure. The sink of a whole sort can still be used after
    /// one of the sources, since nothing was put.
    pub(crate) fn run(
        &self,
        sources: &[&dyn Source],
        sink: &dyn Sink,
        base: Base<'_>,
        room: usize,
    ) -> Result<Outcome, Error> {
        let start = Instant::now();
        let gathered = self.gather(sources).map(|mut gathered| {
            if sources.len() > 1 {
                renumber(&mut gathered, self.shift);
            }
            gathered
        });
        let read_ns = start.elapsed().as_nanos() as u64;
        let is_read = gathered.is_ok();
        let outcome = gathered.and_then(|gathered| self.sort_into(gathered, read_ns, sink, base, room));
        if outcome.is_err() && (is_read || !self.alone) {
            sink.fail(viaduct_river::Error::Stopped);
        }
        outcome
    }

    fn sort_into(
        &self,
        mut gathered: Vec<Gathered>,
        read_ns: u64,
        sink: &dyn Sink,
        base: Base<'_>,
        room: usize,
    ) -> Result<Outcome, Error> {
        let mut outcome = Outcome { read_ns, ..Outcome::default() };
        for part in &gathered {
            outcome.records_in += part.count as u64;
            outcome.bytes_in += part.bytes;
            outcome.sum_in += part.sum;
        }
        let base = base(outcome.bytes_in)?;
        let ranges = gathered.iter().filter_map(Gathered::range);
        let range = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let Some(range) = range else { return Ok(outcome) };
        let start = Instant::now();
        let buckets = Buckets::new(if self.one_bucket { 0 } else { outcome.records_in as usize }, range);
        let divided = on_threads(gathered.iter_mut().collect(), |part: &mut Gathered| part.divide(&buckets))?;
        let divide_ns = start.elapsed().as_nanos() as u64;
        if self.alone {
            self.progress.enter(3, outcome.bytes_in);
        }
        let start = Instant::now();
        let table = Table::new(&gathered, self.shift);
        let sorting = AtomicU64::new(0);
        let plan = Plan::new(&divided, buckets.count, self.threads);
        let mut groups = self.put_out(&plan, &divided, &table, sink, base, room, &sorting)?;
        let rest_ns = start.elapsed().as_nanos() as u64;
        // Threads sort and write side by side: their time is divided as their work was.
        let sorting = sorting.load(Ordering::Relaxed) / self.threads.max(1) as u64;
        outcome.sort_ns = divide_ns + sorting.min(rest_ns);
        outcome.write_ns = rest_ns - sorting.min(rest_ns);
        groups.sort_unstable_by_key(|group| group.number);
        self.conclude(&groups, &mut outcome)?;
        Ok(outcome)
    }

    fn gather(&self, sources: &[&dyn Source]) -> Result<Vec<Gathered>, Error> {
        let readers = match sources {
            [one] => vec![*one; self.threads.max(1)],
            several => several.to_vec(),
        };
        on_threads(readers, |source| {
            let mut gathered = Gathered::new();
            while let Some(buffer) = source.pull()? {
                self.progress.check()?;
                if self.alone {
                    self.progress.add(buffer.len() as u64);
                }
                gathered.add(buffer, self.order, self.format, self.shift, self.sum_in)?;
            }
            Ok(gathered)
        })
    }

    #[allow(clippy::too_many_arguments)]
    fn put_out(
        &self,
        plan: &Plan,
        divided: &[Divided],
        table: &Table<'_>,
        sink: &dyn Sink,
        base: u64,
        room: usize,
        sorting: &AtomicU64,
    ) -> Result<Vec<Group>, Error> {
        let next = AtomicUsize::new(0);
        let turns = Turns::new(base);
        let groups = on_threads((0..self.threads.max(1)).collect(), |_| {
            let pool = MemPool::new(4, room)?;
            let mut scratch = Vec::new();
            let mut groups = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(group) = plan.groups.get(number) else { return Ok(groups) };
                if let Err(stopped) = self.progress.check() {
                    turns.fail();
                    sink.fail(viaduct_river::Error::Stopped);
                    return Err(stopped);
                }
                let start = Instant::now();
                scratch.clear();
                for bucket in group.buckets.clone() {
                    let from = scratch.len();
                    divided.iter().for_each(|part| scratch.extend_from_slice(part.bucket(bucket)));
                    self.sort(&mut scratch[from..], table);
                }
                sorting.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
                let base = match self.format.framing() {
                    Framing::Fixed(size) if !self.unique => Some(base + group.before as u64 * size as u64),
                    _ => None,
                };
                let done =
                    self.collect(number, &scratch, table, Writer::new(sink, &pool, &turns, number, base));
                if done.is_err() {
                    turns.fail();
                    sink.fail(viaduct_river::Error::Stopped);
                }
                let done = done?;
                self.progress.add(done.bytes);
                groups.push(done);
            }
        })?;
        Ok(groups.into_iter().flatten().collect())
    }

    /// Sorts the pairs of a bucket.
    fn sort(&self, pairs: &mut [u128], table: &Table<'_>) {
        pairs.sort_unstable();
        self.settle(pairs, table, 1);
    }

    /// Puts pairs with equal prefixes into the order of what follows in their keys.
    fn settle(&self, pairs: &mut [u128], table: &Table<'_>, depth: usize) {
        let mut start = 0;
        while start < pairs.len() {
            let prefix = pairs[start] >> PLACE_BITS;
            let same = pairs[start..].iter().take_while(|&&pair| pair >> PLACE_BITS == prefix).count();
            if same > 1 {
                self.refine(&mut pairs[start..start + same], table, depth);
            }
            start += same;
        }
    }

    fn refine(&self, run: &mut [u128], table: &Table<'_>, depth: usize) {
        let record = |pair: u128| self.record(table, pair);
        let first = record(run[0]);
        if run[1..].iter().all(|&pair| self.order.compare(first, record(pair)).is_eq()) {
            return;
        }
        if depth >= self.order.depths() || run.len() == 2 {
            let place = |pair: u128| pair & ((1 << PLACE_BITS) - 1);
            run.sort_unstable_by(|&a, &b| {
                self.order.compare(record(a), record(b)).then_with(|| place(a).cmp(&place(b)))
            });
            return;
        }
        for pair in run.iter_mut() {
            let place = *pair & ((1 << PLACE_BITS) - 1);
            *pair = self.order.prefix(record(*pair), depth) << PLACE_BITS | place;
        }
        run.sort_unstable();
        self.settle(run, table, depth + 1);
    }

    #[inline]
    fn record<'t>(&self, table: &Table<'t>, pair: u128) -> &'t [u8] {
        let bytes = table.at(pair);
        match self.format.framing() {
            Framing::Fixed(size) => &bytes[..size],
            _ => &bytes[..self.format.record_len(bytes).unwrap_or(bytes.len())],
        }
    }

    /// Copies the records of a group into the sink, and looks whether they are in order on the way.
    fn collect(
        &self,
        number: usize,
        pairs: &[u128],
        table: &Table<'_>,
        mut writer: Writer<'_>,
    ) -> Result<Group, Error> {
        let mut group = Group { number, records: 0, bytes: 0, sum: 0, ends: None };
        let mut previous: Option<&[u8]> = None;
        let mut first: Option<&[u8]> = None;
        for (n, &pair) in pairs.iter().enumerate() {
            if let Some(&soon) = pairs.get(n + AHEAD) {
                prefetch(table.at(soon), 128);
            }
            let record = self.record(table, pair);
            if let Some(previous) = previous {
                if self.unique && self.order.same_key(previous, record) {
                    continue;
                }
                if self.checksum && self.order.compare(previous, record).is_gt() {
                    return Err(Error::Proof("records came out in the wrong order".into()));
                }
            }
            if self.checksum {
                group.sum += u128::from(crc32fast::hash(record));
            }
            writer.push(record)?;
            group.records += 1;
            group.bytes += record.len() as u64;
            first.get_or_insert(record);
            previous = Some(record);
        }
        writer.finish()?;
        group.ends = first.zip(previous).map(|(first, last)| (first.to_vec(), last.to_vec()));
        Ok(group)
    }

    /// Joins what the groups say: their seams are in order, too.
    fn conclude(&self, groups: &[Group], outcome: &mut Outcome) -> Result<(), Error> {
        for group in groups {
            outcome.records_out += group.records;
            outcome.bytes_out += group.bytes;
            outcome.sum_out += group.sum;
            let Some((first, last)) = &group.ends else { continue };
            match &mut outcome.ends {
                None => outcome.ends = Some((first.clone(), last.clone())),
                Some((_, before)) => {
                    if self.checksum && self.order.compare(before, first).is_gt() {
                        return Err(Error::Proof("groups of records came out in the wrong order".into()));
                    }
                    before.clone_from(last);
                }
            }
        }
        if !self.unique && outcome.records_out != outcome.records_in {
            return Err(Error::Proof("records were lost".into()));
        }
        if self.sum_in && !self.unique && outcome.sum_out != outcome.sum_in {
            return Err(Error::Proof("the checksum of the output is not that of the input".into()));
        }
        Ok(())
    }
}

/// Groups of buckets that are put out together.
struct Plan {
    groups: Vec<Planned>,
}

struct Planned {
    buckets: std::ops::Range<usize>,
    /// Records before the group.
    before: usize,
}

impl Plan {
    fn new(divided: &[Divided], buckets: usize, threads: usize) -> Plan {
        let sizes: Vec<usize> =
            (0..buckets).map(|bucket| divided.iter().map(|part| part.bucket(bucket).len()).sum()).collect();
        let records: usize = sizes.iter().sum();
        let wanted = (records / (threads * 16).max(1)).clamp(1024, 1 << 15);
        let (mut groups, mut start, mut held, mut before) = (Vec::new(), 0, 0, 0);
        for (bucket, size) in sizes.iter().enumerate() {
            held += size;
            if held >= wanted || bucket + 1 == buckets {
                groups.push(Planned { buckets: start..bucket + 1, before });
                (start, before, held) = (bucket + 1, before + held, 0);
            }
        }
        Plan { groups }
    }
}

/// Runs `work` on every item, each on a thread of its own; a single one stays on this thread.
pub(crate) fn on_threads<I: Send, R: Send>(
    items: Vec<I>,
    work: impl Fn(I) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    if items.len() == 1 {
        return items.into_iter().map(work).collect();
    }
    let work = &work;
    std::thread::scope(|scope| {
        let workers: Vec<_> = items.into_iter().map(|item| scope.spawn(move || work(item))).collect();
        let ends: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        let mut results = Vec::new();
        let mut failed: Option<Error> = None;
        for end in ends {
            match end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                Ok(result) => results.push(result),
                // A thread that was stopped tells less than the one that failed.
                Err(error) if failed.as_ref().is_none_or(Error::is_stopped) => failed = Some(error),
                Err(_) => {}
            }
        }
        failed.map_or(Ok(results), Err)
    })
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering as Outcomes;
    use std::io::Cursor;
    use std::sync::Arc;

    use viaduct_river::Fixed;
    use viaduct_river::disk::{Partial, StreamSink, StreamSource};

    use super::*;

    /// Sorts the wrong way round, as an error of this program would: prefixes fall where records grow.
    struct Wrong;

    impl Order for Wrong {
        fn prefix(&self, record: &[u8], _: usize) -> u128 {
            u128::from(255 - record[0])
        }

        fn depths(&self) -> usize {
            1
        }

        fn compare(&self, a: &[u8], b: &[u8]) -> Outcomes {
            a.cmp(b)
        }

        fn same_key(&self, a: &[u8], b: &[u8]) -> bool {
            a == b
        }
    }

    #[test]
    fn records_in_the_wrong_order_are_found_out() {
        let format = Fixed(8);
        let bytes: Vec<u8> = (0..200u8).flat_map(|n| [n; 8]).collect();
        for checksum in [true, false] {
            let progress = Progress::default();
            let kernel = Kernel {
                order: &Wrong,
                format: &format,
                threads: 1,
                shift: 12,
                checksum,
                sum_in: checksum,
                unique: false,
                progress: &progress,
                alone: true,
                one_bucket: false,
            };
            let input: Box<dyn std::io::Read + Send> = Box::new(Cursor::new(bytes.clone()));
            let pool = MemPool::new(4, 4096).unwrap();
            let inputs = vec![("input".into(), input)];
            let source = StreamSource::new("input", inputs, Arc::new(Fixed(8)), pool, Partial::Refuse);
            let sink = StreamSink::new("output", "output".as_ref(), Box::new(std::io::sink()));
            let done = kernel.run(&[&source], &sink, &mut |_| Ok(0), 4096);
            assert_eq!(matches!(done, Err(Error::Proof(_))), checksum, "{done:?}");
        }
    }
}
