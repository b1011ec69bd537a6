//! What a node does, from the first connection to the name of its output.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use viaduct_job::Job;
use viaduct_river::disk::{DiskSource, Volume};
use viaduct_river::net::Mesh;
use viaduct_river::{EdgeCounts, MemPool, RiverSink, Sink, Source};

use super::target::{Target, prove_places};
use super::work::{BLOCK, HERE, Moved, Running};
use super::{Node, names};
use crate::Error;
use crate::engine::{self, room_for};
use crate::kernel::Outcome;
use crate::lookout::refuse_text;
use crate::order::Order;
use crate::report::{EdgeReport, NodeReport, Overhead, Phases, Report};
use crate::sort::{Progress, Settings};

/// What a node read.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Read {
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) sum: u128,
}

/// What a node tells the others in the end.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    read: Read,
    written: Read,
    /// Where in the output.
    place: (u64, u64),
    passes: u32,
    partitions: u64,
    report: NodeReport,
}

pub(super) fn run<O: Order>(
    node: Node<'_>,
    order: &O,
    inputs: &[PathBuf],
    output: &Path,
    settings: &Settings,
    progress: &Progress,
) -> Result<Option<Report>, Error> {
    let start = Instant::now();
    let Node { job, links, transport, window, since, joined, opened } = node;
    let before_start = since + joined + opened;
    let mut overhead = Overhead {
        launch: since.as_secs_f64(),
        barrier: joined.as_secs_f64(),
        connect: opened.as_secs_f64(),
        ..Overhead::default()
    };
    let mut lap = Lap(start);
    let (rank, size) = (job.rank(), job.size());
    let neighbours = job.neighbours()?.len().max(1) as u64;
    overhead.barrier += lap.seconds();
    // Nodes of one host share its memory and its cores.
    let memory = settings.memory.unwrap_or(settings.budget() / neighbours);
    let threads = match settings.threads {
        0 => (viaduct_os::cpu::count() / neighbours as usize).max(1),
        said => said,
    };
    let settings = Settings { memory: Some(memory), threads, ..settings.clone() };
    let format = settings.format();
    let own = names::all_own(inputs)?;
    let paths: Vec<PathBuf> = inputs.iter().map(|path| names::of_node(path, rank)).collect();
    // Files of this node's own, which the launcher has not seen.
    paths.iter().try_for_each(|path| refuse_text(path, &settings))?;
    let volumes = paths.iter().map(|path| Volume::open(path)).collect::<Result<Vec<_>, _>>()?;
    let density = engine::density(&volumes, &format)?;
    let room = room_for(format.framing(), BLOCK);
    overhead.sample = lap.seconds();
    let reading = MemPool::new(settings.threads() + 10, room)?;
    overhead.memory = lap.seconds();
    let source =
        DiskSource::new("input", volumes, format.clone(), reading, settings.direct, settings.partial)?;
    overhead.sample += lap.seconds();
    let (len, total) = lengths(job, source.len(), own)?;
    let source = if own { source } else { source.part(rank as u64, size as u64) };
    overhead.barrier += lap.seconds();

    let mut running = Running { order, settings, progress, format, rank, size, density, total };
    let receiving = links.pool(running.receiving(), BLOCK, window)?;
    let sending = links.pool(running.sending(), BLOCK, window)?;
    overhead.memory += lap.seconds();
    let mesh = links.connect("sort", job, &receiving)?;
    overhead.connect += lap.seconds();
    let (ranges, sample) = running.ranges(&source, &mesh, len)?;
    let before = counts(&mesh);
    let share = (ranges.share(rank) * total as f64) as u64;
    let target = Target::open(output, job, total, share, &running.settings)?;
    overhead.sample += lap.seconds();

    let ready = start.elapsed() + before_start;
    let one_pass = engine::fits(&running.settings, share + share / 8, density);
    if !one_pass {
        // The second pass has what the edges do not use.
        let used = ((running.receiving() + running.sending()) * BLOCK) as u64;
        running.settings.memory = Some(running.settings.budget().saturating_sub(used));
    }
    let here = Arc::new(RiverSink::new("here", HERE, 1));
    let moved = Moved { mesh: &mesh, here: &here, receiving: &receiving, share, one_pass };
    let folders = if running.settings.tmp.is_empty() {
        vec![Target::folder(output, rank)]
    } else {
        running.settings.tmp.iter().map(|path| names::of_node(path, rank)).collect()
    };
    let (read, sorted) = std::thread::scope(|scope| {
        let distributing = scope.spawn(|| running.distribute(&source, &ranges, &moved, sending));
        let sorted = running.sort(&moved, &target, job, folders, sample);
        if sorted.is_err() {
            // Threads that wait for this node to take something give up.
            progress.stop();
            here.fail(viaduct_river::Error::Stopped);
            mesh.sources.iter().flatten().cloned().for_each(take_in_vain);
        }
        let read = distributing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (read, sorted)
    });
    let (read, (outcome, partitions, spilled)) = match (read, sorted) {
        (Ok(read), Ok(sorted)) => (read, sorted),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => return Err(error),
        // The one that says more.
        (Err(one), Err(other)) => {
            return Err(if one.is_stopped() || one.is_of_another_node() { other } else { one });
        }
    };
    running.prove_range(&outcome, &ranges)?;
    target.sink.finish()?;
    let place = target.stretch()?;
    if running.settings.durable {
        // Each node its part: the first gives the file its name when all have theirs on the disk.
        target.sink.volume().sync()?;
    }
    let mut edges = vec![source.edge().counts()];
    edges.extend(since_then(counts(&mesh), &before));
    edges.push(Sink::edge(&*here).counts());
    edges.extend(spilled);
    edges.push(target.sink.edge().counts());
    let report = running.report(&outcome, overhead, ready.as_secs_f64(), edges);
    let written = Read { records: outcome.records_out, bytes: outcome.bytes_out, sum: outcome.sum_out };
    let passes = if one_pass { 1 } else { 2 };
    let place = (place.start, place.end);
    let told = Told { read, written, place, passes, partitions: partitions as u64, report };
    let all = tell(job, &told)?;
    running.prove(&all)?;
    let places = all.iter().map(|told| (told.written.bytes, told.place.0..told.place.1));
    prove_places(target.shared, places)?;
    target.commit(all.iter().map(|told| told.written.bytes).sum(), told.written.bytes)?;
    // Success is said once every node has it; edges stay until all are done.
    job.barrier()?;
    drop(mesh);
    let elapsed = start.elapsed() + before_start;
    Ok((rank == 0).then(|| running.join(all, transport, elapsed.as_secs_f64())))
}

/// Divides time among its causes: what one has not got belongs to the next.
struct Lap(Instant);

impl Lap {
    /// Seconds since it was asked before.
    fn seconds(&mut self) -> f64 {
        let now = Instant::now();
        now.duration_since(std::mem::replace(&mut self.0, now)).as_secs_f64()
    }
}

/// Takes what comes from another node and leaves it. A node that has failed still sends until it sees that it is to stop; were it
/// to take nothing itself, two that failed would wait for each other's credit. The thread ends with the edge or the process.
fn take_in_vain(source: Arc<dyn Source>) {
    let take = move || while let Ok(Some(_)) = source.pull() {};
    let _ = std::thread::Builder::new().name("sort-in-vain".to_owned()).spawn(take);
}

/// What this node reads, and what all nodes read.
fn lengths(job: &mut Job, seen: u64, own: bool) -> Result<(u64, u64), Error> {
    let all = numbers(job, seen)?;
    if own {
        return Ok((seen, all.iter().sum()));
    }
    if let Some(node) = all.iter().position(|len| *len != all[0]) {
        return Err(Error::Usage(format!(
            "node 0 sees {} bytes of input and node {node} {}; hint: write {} in the name of files that each node has for itself",
            all[0],
            all[node],
            names::MARK
        )));
    }
    Ok((seen / job.size() as u64, seen))
}

/// A number of each node.
pub(super) fn numbers(job: &mut Job, ours: u64) -> Result<Vec<u64>, Error> {
    let all = job.exchange(&ours.to_le_bytes())?;
    let number = |bytes: Vec<u8>| bytes.first_chunk::<8>().map_or(0, |eight| u64::from_le_bytes(*eight));
    Ok(all.into_iter().map(number).collect())
}

fn tell(job: &mut Job, told: &Told) -> Result<Vec<Told>, Error> {
    let nonsense = |error: postcard::Error| {
        Error::River(viaduct_river::Error::Network(format!("what a node told at the end: {error}")))
    };
    let all = job.exchange(&postcard::to_stdvec(told).map_err(nonsense)?)?;
    all.iter().map(|bytes| postcard::from_bytes(bytes).map_err(nonsense)).collect()
}

fn counts(mesh: &Mesh) -> Vec<EdgeCounts> {
    let sent = mesh.sinks.iter().flatten().map(|sink| sink.edge().counts());
    sent.chain(mesh.sources.iter().flatten().map(|source| source.edge().counts())).collect()
}

/// What edges carried after `before`: records without the sample.
fn since_then(now: Vec<EdgeCounts>, before: &[EdgeCounts]) -> Vec<EdgeCounts> {
    let less = |(mut now, before): (EdgeCounts, &EdgeCounts)| {
        now.bytes -= before.bytes;
        now.records -= before.records;
        now.buffers -= before.buffers;
        now
    };
    now.into_iter().zip(before).map(less).collect()
}

impl<O: Order> Running<'_, O> {
    fn report(
        &self,
        outcome: &Outcome,
        overhead: Overhead,
        before: f64,
        edges: Vec<EdgeCounts>,
    ) -> NodeReport {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let phases = Phases {
            overhead: before,
            read: seconds(outcome.read_ns),
            sort: seconds(outcome.sort_ns),
            write: seconds(outcome.write_ns),
        };
        let edges = edges.into_iter().map(EdgeReport::of).collect();
        NodeReport { node: self.rank as u32, phases, overhead, records: outcome.records_out, edges }
    }

    /// All nodes together wrote what all read.
    fn prove(&self, all: &[Told]) -> Result<(), Error> {
        let sum = |of: fn(&Told) -> Read| {
            all.iter().map(of).fold(Read::default(), |sum, one| Read {
                records: sum.records + one.records,
                bytes: sum.bytes + one.bytes,
                sum: sum.sum + one.sum,
            })
        };
        let (read, written) = (sum(|told| told.read), sum(|told| told.written));
        if self.settings.unique {
            return Ok(());
        }
        if (read.records, read.bytes) != (written.records, written.bytes) {
            let (read, written) = (read.records, written.records);
            return Err(Error::Proof(format!("nodes read {read} records and wrote {written}")));
        }
        if self.settings.checksum && read.sum != written.sum {
            return Err(Error::Proof(
                "the checksum of what nodes wrote is not that of what they read".into(),
            ));
        }
        Ok(())
    }

    fn join(&self, all: Vec<Told>, transport: String, seconds: f64) -> Report {
        let sum = |of: fn(&Told) -> u64| all.iter().map(of).sum();
        Report {
            records: sum(|told| told.read.records),
            bytes: sum(|told| told.read.bytes),
            records_out: sum(|told| told.written.records),
            bytes_out: sum(|told| told.written.bytes),
            checksum: self
                .settings
                .checksum
                .then(|| format!("{:x}", all.iter().map(|told| told.read.sum).sum::<u128>())),
            passes: all.iter().map(|told| told.passes).max().unwrap_or(1),
            partitions: sum(|told| told.partitions) as usize,
            memory: self.settings.budget(),
            transport: Some(transport),
            nodes: all.into_iter().map(|told| told.report).collect(),
            seconds,
        }
    }
}
