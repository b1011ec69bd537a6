//! What the parts of this host can do alone (Millennium Sort, table 1): memory, disk and network, and which bounds the sort. Beside
//! them the generator and the validator, which are to run at the speed of memory or disk.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use viaduct_providers::config::ShmConfig;
use viaduct_results::table::{Better, Table};
use viaduct_river::disk::{Direct, DiskSink, DiskSource, Partial, Volume};
use viaduct_river::net::{Port, TcpSink, TcpSource, ViaSink, ViaSource};
use viaduct_river::{Fixed, MemPool, Sink, Source, pump};
use viaduct_via::{NetAddress, Nic, SharedNic};

use super::{Bench, Emit};

type Failed = Box<dyn std::error::Error + Send + Sync>;

const BLOCK: usize = 256 << 10;

/// The tools, by the names of their rows.
const GEN: &str = "viaduct sort gen, no file";
const GEN_FILE: &str = "viaduct sort gen, to a file";
const CHECK: &str = "viaduct sort check";

/// Measures each part, peak and sustained.
///
/// # Errors
/// If a line cannot be put.
pub fn components(bench: &Bench, progress: &mut dyn FnMut(&str, f64), emit: Emit<'_>) -> io::Result<()> {
    let bytes: usize = if bench.quick { 8 << 20 } else { 1 << 30 };
    let table = Table::new("components", BTreeMap::from([("bytes".into(), bytes.to_string())]));
    let rounds = if bench.quick { 1 } else { 5 };
    type Measure<'a> = Box<dyn Fn() -> Result<f64, Failed> + 'a>;
    let threads = viaduct_os::cpu::count();
    let parts: Vec<(&str, Measure<'_>)> = vec![
        ("memory, one core", Box::new(move || copy(1, bytes))),
        ("memory, all cores", Box::new(move || copy(threads, bytes))),
        ("disk, write", Box::new(move || write(bench, 1, bytes))),
        ("disk, read", Box::new(move || read(bench, 1, bytes))),
        ("disk, striped over 4 files, write", Box::new(move || write(bench, 4, bytes))),
        ("disk, striped over 4 files, read", Box::new(move || read(bench, 4, bytes))),
        ("network, VIA on this host", Box::new(move || via(bench, bytes))),
        ("network, TCP on this host", Box::new(move || tcp(bytes))),
        (GEN, Box::new(move || tool(bench, bytes, &["gen", &(bytes / 100).to_string()]))),
        (
            GEN_FILE,
            Box::new(move || tool(bench, bytes, &["gen", &(bytes / 100).to_string(), "-o", "records"])),
        ),
        (CHECK, Box::new(move || checked(bench, bytes))),
    ];
    let mut sustained = Vec::new();
    for (n, (name, measure)) in parts.iter().enumerate() {
        progress(name, n as f64 / parts.len() as f64);
        let rates: Result<Vec<f64>, Failed> = (0..rounds).map(|_| measure()).collect();
        match rates {
            Ok(rates) => {
                let peak = rates.iter().copied().fold(0.0, f64::max);
                emit(table.cell(*name, "peak", "MB/s", Better::More).one(peak))?;
                emit(table.cell(*name, "sustained", "MB/s", Better::More).of(&rates))?;
                sustained.extend(viaduct_results::stats::median(&rates).map(|rate| (*name, rate)));
            }
            Err(why) => emit(table.cell(*name, "sustained", "MB/s", Better::More).missing(why.to_string()))?,
        }
    }
    for (name, part, column) in [
        (GEN, "memory, all cores", "times memory"),
        (GEN_FILE, "disk, write", "times disk"),
        (CHECK, "disk, read", "times disk"),
    ] {
        let of = |wanted: &str| sustained.iter().find(|(name, _)| *name == wanted).map(|(_, rate)| *rate);
        if let (Some(rate), Some(part)) = (of(name), of(part)) {
            emit(table.cell(name, column, "", Better::More).one(rate / part))?;
        }
    }
    // A record is read once and written once, crosses memory about four times and, between nodes, the network once.
    let uses = |name: &str| if name.starts_with("memory, all") { 0.25 } else { 1.0 };
    let bound = |(name, rate): &(&'static str, f64)| (*name, rate * uses(name));
    let used = |(name, _): &&(&str, f64)| {
        !name.contains("one core")
            && !name.contains("TCP")
            && !name.contains("striped")
            && !name.contains("sort")
    };
    let bounds = sustained.iter().filter(used).map(bound);
    match bounds.min_by(|a, b| a.1.total_cmp(&b.1)) {
        Some((name, rate)) => emit(
            table.cell(format!("bottleneck: {name}"), "bound of the sort", "MB/s", Better::More).one(rate),
        ),
        None => Ok(()),
    }
}

fn rate(bytes: usize, begun: Instant) -> f64 {
    bytes as f64 / 1e6 / begun.elapsed().as_secs_f64()
}

/// A whole run of a tool over so many bytes, with its launch.
fn tool(bench: &Bench, bytes: usize, words: &[&str]) -> Result<f64, Failed> {
    let _ = std::fs::remove_file(bench.path("records"));
    let begun = Instant::now();
    if !bench.command(words).status()?.success() {
        return Err(format!("viaduct sort {} failed", words[0]).into());
    }
    Ok(rate(bytes / 100 * 100, begun))
}

/// The validator on records of the generator, which are in no order: it reads and adds up all of them.
fn checked(bench: &Bench, bytes: usize) -> Result<f64, Failed> {
    let count = bytes / 100;
    bench.generate(count as u64, "records", &[])?;
    let begun = Instant::now();
    let seen = bench.records_of("records").ok_or("the validator failed")?;
    let rate = rate(count * 100, begun);
    if seen.count == count as u64 { Ok(rate) } else { Err("the validator did not count all records".into()) }
}

fn copy(threads: usize, bytes: usize) -> Result<f64, Failed> {
    let each = (bytes / threads / 4).max(1 << 20);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let (from, mut to) = (vec![1u8; each], vec![0u8; each]);
                for _ in 0..4 {
                    to.copy_from_slice(&from);
                    std::hint::black_box(&to);
                }
            });
        }
    });
    Ok(rate(4 * each * threads, begun))
}

fn names(bench: &Bench, files: usize) -> Vec<std::path::PathBuf> {
    (0..files).map(|n| bench.path(&format!("stripe-{files}-{n}"))).collect()
}

fn write(bench: &Bench, files: usize, bytes: usize) -> Result<f64, Failed> {
    let paths = names(bench, files);
    let open = |path: &std::path::PathBuf| Ok((path.clone(), std::fs::File::create(path)?));
    let files = paths.iter().map(open).collect::<io::Result<Vec<_>>>()?;
    let mut volume = Volume::of_files(files, 1 << 20);
    volume.use_direct();
    let sink = DiskSink::new("written", volume);
    let pool = MemPool::new(16, 1 << 20)?;
    // Bytes that a disk cannot take for a hole.
    let mut buffers: Vec<_> = (0..pool.count()).map(|_| pool.take()).collect();
    buffers.iter_mut().for_each(|buffer| buffer.room_mut().fill(7));
    drop(buffers);
    fill(&sink, &Blocks::new(pool, bytes))
}

/// As the sort writes: a thread puts buffers, and several are on their way to the disk.
fn fill(sink: &DiskSink, blocks: &Blocks) -> Result<f64, Failed> {
    let begun = Instant::now();
    pump(blocks, sink)?;
    sink.volume().sync()?;
    Ok(rate(usize::try_from(sink.whole()?)?, begun))
}

fn read(bench: &Bench, files: usize, bytes: usize) -> Result<f64, Failed> {
    let volume = Volume::open_striped(&names(bench, files), 1 << 20)?;
    let pool = MemPool::new(16, 1 << 20)?;
    let source =
        DiskSource::new("read", vec![volume], Arc::new(Fixed(1)), pool, Direct::On, Partial::Refuse)?;
    let begun = Instant::now();
    while source.pull()?.is_some() {}
    Ok(rate(bytes, begun))
}

/// Whole buffers of one pool, one behind the other, so many bytes in all.
struct Blocks {
    pool: MemPool,
    count: usize,
    next: std::sync::Mutex<usize>,
    edge: viaduct_river::Edge,
}

impl Blocks {
    fn new(pool: MemPool, bytes: usize) -> Blocks {
        let count = bytes / pool.buffer_size();
        Blocks { pool, count, next: std::sync::Mutex::new(0), edge: viaduct_river::Edge::new("blocks") }
    }
}

impl Source for Blocks {
    fn pull(&self) -> Result<Option<viaduct_river::Buffer>, viaduct_river::Error> {
        let mut next = self.next.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *next == self.count {
            return Ok(None);
        }
        let mut buffer = self.pool.take();
        buffer.set_window(0, self.pool.buffer_size());
        buffer.set_position((*next * self.pool.buffer_size()) as u64);
        *next += 1;
        Ok(Some(buffer))
    }

    fn edge(&self) -> &viaduct_river::Edge {
        &self.edge
    }
}

/// Everything goes over the edge, and every byte is there at the other end.
fn over(sink: &dyn Sink, source: &dyn Source, blocks: &Blocks, bytes: usize) -> Result<f64, Failed> {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| pump(blocks, sink));
        let mut got = 0;
        while let Some(buffer) = source.pull()? {
            got += buffer.len();
        }
        sent.join().map_err(|_| "the sender panicked")??;
        if got == bytes / BLOCK * BLOCK { Ok(rate(got, begun)) } else { Err("bytes were lost".into()) }
    })
}

fn via(bench: &Bench, bytes: usize) -> Result<f64, Failed> {
    let port = || -> Result<Port, Failed> {
        let config = ShmConfig { runtime_dir: Some(bench.folder.join("run")), ..ShmConfig::default() };
        Ok(Port::new(SharedNic::new(Nic::open(viaduct_providers::shm::open(config)?)?))?)
    };
    viaduct_os::runtime_dir::runtime_dir(Some(&bench.folder.join("run")))?;
    let (here, there) = (port()?, port()?);
    let address = NetAddress::local(&format!("components-{}", std::process::id()))?;
    let listener = there.nic().try_lock()?.listen(&address, 1)?;
    let limit = Duration::from_secs(20);
    let (here, address) = (&here, &address);
    let (sink, source) = std::thread::scope(|scope| -> Result<_, Failed> {
        let sink = scope.spawn(|| ViaSink::connect("out", here, 1, address, BLOCK, limit));
        let request = there.nic().wait_until(Some(limit), |nic| nic.poll_listener(listener).transpose())?;
        let pool = MemPool::registered(&there, 8, BLOCK, None)?;
        let source = ViaSource::accept("in", &there, 0, request, pool)?;
        Ok((sink.join().map_err(|_| "the sender panicked")??, source))
    })?;
    over(&sink, &source, &Blocks::new(MemPool::registered(here, 8, BLOCK, None)?, bytes), bytes)
}

fn tcp(bytes: usize) -> Result<f64, Failed> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let client = std::net::TcpStream::connect(listener.local_addr()?)?;
    let (sink, source) = (
        TcpSink::new("out", 1, client),
        TcpSource::new("in", 0, listener.accept()?.0, MemPool::new(8, BLOCK)?),
    );
    over(&sink, &source, &Blocks::new(MemPool::new(8, BLOCK)?, bytes), bytes)
}

#[cfg(test)]
mod tests {
    use viaduct_kit::tempdir::TempDir;

    use super::*;

    #[test]
    fn the_disk_is_written_as_the_sort_writes() {
        let folder = TempDir::new("components-disk");
        let path = folder.join("written");
        let mut volume =
            Volume::of_files(vec![(path.clone(), std::fs::File::create(&path).unwrap())], 1 << 20);
        volume.use_direct();
        let sink = DiskSink::new("written", volume);
        if !sink.is_ahead() {
            viaduct_kit::skip!(
                "no writes through io_uring past the page cache in the folder for temporary files"
            );
        }
        let blocks = Blocks::new(MemPool::new(4, 64 << 10).unwrap(), 3 << 20);
        assert!(fill(&sink, &blocks).unwrap() > 0.0);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 3 << 20);
        let counts = sink.edge().counts();
        assert_eq!(
            (counts.bytes, counts.buffers, counts.work_ns),
            (3 << 20, 48, 0),
            "not by the thread that puts"
        );
    }
}
