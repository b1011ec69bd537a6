//! Runs a sort on one node: one pass if everything fits into memory, two if not.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use viaduct_river::disk::{DiskSource, Partial, StreamSource, Volume};
use viaduct_river::{Buffer, Edge, Framing, MemPool, RecordFormat, Source, records};

use crate::Error;
use crate::bounded::Bounded;
use crate::destination::Destination;
use crate::external::External;
use crate::kernel::{Kernel, Outcome};
use crate::lookout::{looked_at, refuse_text};
use crate::merging::{Open, merge};
use crate::order::{AnyOrder, Order};
use crate::report::Report;
use crate::sort::{Input, Progress, Records, Settings, Target};

/// Bytes of a buffer, about.
pub(crate) const ROOM: usize = 1 << 20;

/// Sorts `inputs` into `target`.
pub fn sort(
    inputs: Vec<Input>,
    target: Target,
    settings: &Settings,
    progress: &Progress,
) -> Result<Report, Error> {
    // What is available falls while it is used: all decisions are made by what it was at the start.
    let settings = &settings.pinned();
    match settings.order()? {
        AnyOrder::Fields(order) => {
            Engine { order, settings, progress, start: Instant::now() }.run(inputs, target)
        }
        AnyOrder::Text(order) => {
            Engine { order, settings, progress, start: Instant::now() }.run(inputs, target)
        }
    }
}

struct Engine<'a, O> {
    order: O,
    settings: &'a Settings,
    progress: &'a Progress,
    start: Instant,
}

/// What is sorted.
struct Flow<'a> {
    source: &'a dyn Source,
    /// Where its buffers come from.
    pool: &'a MemPool,
    /// Bytes that it will give, about.
    len: u64,
    /// Bytes that it will give at least.
    certain: u64,
    /// Gives the pieces of records that are kept, once all else was read.
    rest: &'a dyn Fn() -> Result<Vec<u8>, Error>,
}

impl<O: Order> Engine<'_, O> {
    fn run(self, inputs: Vec<Input>, target: Target) -> Result<Report, Error> {
        if self.settings.merge {
            return self.merge(inputs, target);
        }
        let format = self.settings.format();
        let room = room_for(format.framing(), ROOM);
        let seekable = inputs.iter().all(|input| matches!(input, Input::Path(path) if is_file(path)));
        if seekable {
            let paths: Vec<PathBuf> = inputs.into_iter().filter_map(path_of).collect();
            paths.iter().try_for_each(|path| refuse_text(path, self.settings))?;
            self.files(&paths, target, &format, room)
        } else {
            self.streams(inputs, target, &format, room)
        }
    }

    fn merge(&self, inputs: Vec<Input>, target: Target) -> Result<Report, Error> {
        let known = inputs.iter().map(|input| match input {
            Input::Path(path) => {
                std::fs::metadata(path).ok().filter(|kind| kind.is_file()).map(|kind| kind.len())
            }
            Input::Stream(..) => None,
        });
        let len = known.sum::<Option<u64>>().unwrap_or(0);
        let open = opened(inputs)?;
        let destination = self.open(target, len)?;
        self.progress.enter(4, len);
        let merged = merge(open, destination.sink(), &self.order, self.settings, self.progress);
        let (outcome, edges) = merged?;
        self.conclude(outcome, destination, (1, 1), edges, Vec::new())
    }

    fn files(
        &self,
        paths: &[PathBuf],
        target: Target,
        format: &Arc<dyn RecordFormat>,
        room: usize,
    ) -> Result<Report, Error> {
        let volumes = paths.iter().map(|path| Volume::open(path)).collect::<Result<Vec<_>, _>>()?;
        let len: u64 = volumes.iter().map(Volume::len).sum();
        let density = density(&volumes, format)?;
        if !fits(self.settings, len, density) {
            let (source, pool) = self.reader(volumes, 0, format, room)?;
            let destination = self.open(target, source.len())?;
            return self.files_in_two_passes(&source, &pool, density, destination, format, room);
        }
        // One pass keeps all.
        let kept = (len / (room as u64 * 3 / 4)) as usize + volumes.len();
        let (source, pool) = self.reader(volumes, kept, format, room)?;
        let destination = self.open(target, source.len())?;
        let bounded = Bounded::new(&source, self.settings);
        let rest = || self.rest_of(&source);
        let flow =
            Flow { source: &bounded, pool: &pool, len: source.len(), certain: source.len(), rest: &rest };
        let sorted = self.in_memory(&flow, &destination, format, room);
        let Some(density) = bounded.too_dense() else {
            return self.conclude_in_memory(sorted?, &flow, destination);
        };
        // Nothing was written yet. What was kept is free again, with the memory that it lies in.
        drop((source, pool));
        let volumes = paths.iter().map(|path| Volume::open(path)).collect::<Result<Vec<_>, _>>()?;
        let (source, pool) = self.reader(volumes, 0, format, room)?;
        self.files_in_two_passes(&source, &pool, density, destination, format, room)
    }

    /// A source of files, which has buffers for `kept` to be kept.
    fn reader(
        &self,
        volumes: Vec<Volume>,
        kept: usize,
        format: &Arc<dyn RecordFormat>,
        room: usize,
    ) -> Result<(DiskSource, MemPool), Error> {
        // Every thread has a buffer at hand, and eight reads may be under way.
        let pool = MemPool::new(kept + self.settings.threads() + 10, room)?;
        let (direct, partial) = (self.settings.direct, self.settings.partial);
        Ok((DiskSource::new("input", volumes, format.clone(), pool.clone(), direct, partial)?, pool))
    }

    /// The pieces of records that are kept.
    fn rest_of(&self, source: &DiskSource) -> Result<Vec<u8>, Error> {
        if self.settings.partial == Partial::Keep { Ok(source.leftover()?) } else { Ok(Vec::new()) }
    }

    fn files_in_two_passes(
        &self,
        source: &DiskSource,
        pool: &MemPool,
        density: f64,
        destination: Destination,
        format: &Arc<dyn RecordFormat>,
        room: usize,
    ) -> Result<Report, Error> {
        let (len, rest) = (source.len(), || self.rest_of(source));
        let flow = Flow { source, pool, len, certain: len, rest: &rest };
        let sampler = |wanted: usize| sample_files(source, &**format, wanted, 0);
        self.two_passes(&flow, density, &sampler, destination, format, room)
    }

    fn streams(
        &self,
        inputs: Vec<Input>,
        target: Target,
        format: &Arc<dyn RecordFormat>,
        room: usize,
    ) -> Result<Report, Error> {
        let mut open = opened(inputs)?;
        if self.settings.refuse_text && matches!(self.settings.records, Records::Fixed { .. }) {
            let looked = open.into_iter().map(|input| looked_at(input, self.settings));
            open = looked.collect::<Result<_, _>>()?;
        }
        // The length is not known: read until the end or until memory is used up.
        let most = (self.settings.budget() / 2 / room as u64).max(4) as usize;
        let pool = MemPool::new(most + 2, room)?;
        let source = StreamSource::new("input", open, format.clone(), pool.clone(), self.settings.partial);
        self.progress.enter(1, 0);
        let (mut held, mut bytes, mut count) = (VecDeque::new(), 0u64, 0u64);
        let mut over = false;
        // Where little memory has no room beside the threads' own, there are still some to take a sample of.
        let least = most / 2;
        while held.len() < most
            && (held.len() < least || fits(self.settings, bytes, density_of(bytes, count)))
        {
            self.progress.check()?;
            match source.pull()? {
                Some(buffer) => {
                    self.progress.add(buffer.len() as u64);
                    bytes += buffer.len() as u64;
                    count += buffer.records();
                    held.push_back(buffer);
                }
                None => {
                    over = true;
                    break;
                }
            }
        }
        let rest = || Ok(source.leftover());
        if over && fits(self.settings, bytes, density_of(bytes, count)) {
            let destination = self.open(target, bytes)?;
            let held = Held { held: Mutex::new(held), rest: None, edge: source.edge() };
            let flow = Flow { source: &held, pool: &pool, len: bytes, certain: bytes, rest: &rest };
            let sorted = self.in_memory(&flow, &destination, format, room)?;
            return self.conclude_in_memory(sorted, &flow, destination);
        }
        let destination = self.open(target, if over { bytes } else { 0 })?;
        let density = density_of(bytes, count);
        let more = (!over).then_some(&source as &dyn Source);
        let held = Held { held: Mutex::new(held), rest: more, edge: source.edge() };
        // Taken before anything is pulled.
        let sampler = |wanted: usize| {
            let held = held.held.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(sample_buffers(&held, &**format, wanted))
        };
        // As long as it turns out to be; partitions that are too large are divided again.
        let len = if over { bytes } else { bytes * 16 };
        let flow = Flow { source: &held, pool: &pool, len, certain: bytes, rest: &rest };
        self.two_passes(&flow, density, &sampler, destination, format, room)
    }

    fn open(&self, target: Target, len: u64) -> Result<Destination, Error> {
        Destination::open(target, len, self.settings)
    }

    fn in_memory(
        &self,
        flow: &Flow<'_>,
        destination: &Destination,
        format: &Arc<dyn RecordFormat>,
        room: usize,
    ) -> Result<Outcome, Error> {
        self.progress.enter(1, flow.len);
        let kernel = Kernel {
            order: &self.order,
            format: &**format,
            threads: if flow.len < 1 << 20 { 1 } else { self.settings.threads() },
            shift: room.next_power_of_two().trailing_zeros(),
            checksum: self.settings.checksum,
            sum_in: self.settings.checksum,
            unique: self.settings.unique,
            progress: self.progress,
            alone: true,
            one_bucket: self.settings.one_bucket,
        };
        kernel.run(&[flow.source], destination.sink(), &mut |_| Ok(0), ROOM)
    }

    fn conclude_in_memory(
        &self,
        outcome: Outcome,
        flow: &Flow<'_>,
        destination: Destination,
    ) -> Result<Report, Error> {
        let rest = (flow.rest)()?;
        self.conclude(outcome, destination, (1, 1), vec![flow.source.edge().counts()], rest)
    }

    fn two_passes(
        &self,
        flow: &Flow<'_>,
        density: f64,
        sampler: &dyn Fn(usize) -> Result<Vec<Vec<u8>>, Error>,
        destination: Destination,
        format: &Arc<dyn RecordFormat>,
        room: usize,
    ) -> Result<Report, Error> {
        let folders = match (&self.settings.tmp[..], destination.output()) {
            ([], Some(output)) => vec![output.folder().to_owned()],
            ([], None) => vec![std::env::temp_dir()],
            (folders, _) => folders.to_vec(),
        };
        let external = External {
            order: &self.order,
            format,
            settings: self.settings,
            progress: self.progress,
            folders,
            room,
            input: Some(flow.pool),
        };
        let len = (flow.len, flow.certain);
        let (outcome, partitions, mut edges) =
            external.run(&[flow.source], len, density, sampler, destination.sink(), &mut |_| Ok(0))?;
        let rest = (flow.rest)()?;
        edges.insert(0, flow.source.edge().counts());
        self.conclude(outcome, destination, (2, partitions), edges, rest)
    }

    /// Everything was written but `rest`, which goes behind it: the file gets its name.
    fn conclude(
        &self,
        mut outcome: Outcome,
        destination: Destination,
        (passes, partitions): (u32, usize),
        mut edges: Vec<viaduct_river::EdgeCounts>,
        rest: Vec<u8>,
    ) -> Result<Report, Error> {
        if !rest.is_empty() {
            let mut piece = Buffer::heap(rest.len());
            piece.push_record(&rest);
            piece.set_records(0);
            piece.set_position(outcome.bytes_out);
            destination.sink().put(piece)?;
            outcome.bytes_in += rest.len() as u64;
            outcome.bytes_out += rest.len() as u64;
        }
        edges.push(destination.conclude(outcome.bytes_out)?);
        Ok(Report::new(&outcome, self.settings, passes, partitions, edges, self.start.elapsed()))
    }
}

/// Inputs as streams.
fn opened(inputs: Vec<Input>) -> Result<Vec<Open>, Error> {
    let open = |input| match input {
        Input::Stream(name, stream) => Ok((name, stream)),
        Input::Path(path) => {
            let file = std::fs::File::open(&path);
            let file = file.map_err(|error| viaduct_river::Error::file("opening", &path, error))?;
            Ok((path, Box::new(file) as Box<dyn std::io::Read + Send>))
        }
    };
    inputs.into_iter().map(open).collect()
}

/// Buffers that were read already, then the rest of their stream.
struct Held<'a> {
    held: Mutex<VecDeque<Buffer>>,
    rest: Option<&'a dyn Source>,
    edge: &'a Edge,
}

impl Source for Held<'_> {
    fn pull(&self) -> Result<Option<Buffer>, viaduct_river::Error> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        match (held, self.rest) {
            (Some(buffer), _) => Ok(Some(buffer)),
            (None, Some(rest)) => rest.pull(),
            (None, None) => Ok(None),
        }
    }

    fn edge(&self) -> &Edge {
        self.edge
    }
}

/// Bytes of a record, on average.
pub(crate) fn density(volumes: &[Volume], format: &Arc<dyn RecordFormat>) -> Result<f64, Error> {
    if let Framing::Fixed(size) = format.framing() {
        return Ok(size as f64);
    }
    let (mut bytes, mut count) = (0, 0);
    let mut piece = vec![0; 64 << 10];
    for volume in volumes {
        for n in 0..16u64 {
            let got = volume.read_at(&mut piece, volume.len() / 16 * n)?;
            bytes += got as u64;
            count += format.count(&piece[..got]);
        }
    }
    Ok(density_of(bytes, count))
}

/// Whether records and pairs fit into memory: two pairs of 16 bytes a record while they are divided.
pub(crate) fn fits(settings: &Settings, len: u64, density: f64) -> bool {
    if settings.partition.is_some() {
        return false;
    }
    let pairs = len as f64 / density * 32.0;
    let fixed = (settings.threads() as u64 * 6 + 10) * ROOM as u64;
    len as f64 * 1.02 + pairs + fixed as f64 <= settings.budget() as f64
}

fn density_of(bytes: u64, count: u64) -> f64 {
    if count == 0 { 100.0 } else { (bytes as f64 / count as f64).max(1.0) }
}

/// Bytes of a buffer: as near to `wanted` as whole records and whole blocks allow.
pub(crate) fn room_for(framing: Framing, wanted: usize) -> usize {
    let Framing::Fixed(size) = framing else { return wanted };
    let mut step = size.max(1);
    // The least common multiple with a block.
    while !step.is_multiple_of(4096) && step <= wanted {
        step *= 2;
    }
    if step <= wanted { wanted / step * step } else { wanted.max(size).next_multiple_of(4096) }
}

/// Whether it can be read in pieces, by its length. Files of the kernel's say that they have none, and are read to their end.
fn is_file(path: &Path) -> bool {
    let has_bytes = || File::open(path).is_ok_and(|mut file| file.read(&mut [0]).is_ok_and(|len| len > 0));
    // What is not there is found out when it is opened, by name.
    std::fs::metadata(path)
        .map_or(true, |kind| kind.is_dir() || kind.is_file() && (kind.len() > 0 || !has_bytes()))
}

fn path_of(input: Input) -> Option<PathBuf> {
    match input {
        Input::Path(path) => Some(path),
        Input::Stream(..) => None,
    }
}

/// Records from places all over the input; another `seed` gives other places.
pub(crate) fn sample_files(
    source: &DiskSource,
    format: &dyn RecordFormat,
    wanted: usize,
    seed: u64,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut sample = Vec::with_capacity(wanted);
    let len = source.len();
    let mut piece = vec![0; 4096];
    // Steps of the golden ratio spread evenly whatever their number.
    let mut at = seed.wrapping_mul(0xD1B5_4A32_D192_ED03);
    for _ in 0..wanted.div_ceil(10) * 2 {
        at = at.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let offset = ((u128::from(at) * u128::from(len)) >> 64) as u64;
        match format.framing() {
            Framing::Fixed(size) => {
                piece.resize(10 * size, 0);
                let got = source.peek(&mut piece, offset / size as u64 * size as u64)?;
                sample.extend(piece[..got].chunks_exact(size).map(<[u8]>::to_vec));
            }
            _ => {
                let got = source.peek(&mut piece, offset)?;
                let whole = records(format, &piece[..got]).skip(usize::from(offset > 0)).take(10);
                sample.extend(whole.map(<[u8]>::to_vec));
            }
        }
        if sample.len() >= wanted {
            break;
        }
    }
    Ok(sample)
}

/// About `wanted` records from all over the buffers.
fn sample_buffers(held: &VecDeque<Buffer>, format: &dyn RecordFormat, wanted: usize) -> Vec<Vec<u8>> {
    let each = wanted.div_ceil(held.len().max(1)).max(1);
    let some = |buffer: &Buffer| {
        let step = (buffer.records() as usize).div_ceil(each).max(1);
        records(format, buffer.data()).step_by(step).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    held.iter().flat_map(some).collect()
}
