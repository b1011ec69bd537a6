//! A distributed word count: `viaduct launch -n 4 word_count in.%r out.%r`.
//!
//! Each node reads a text of its own and counts its words. A word belongs to the node that its hash says; counts travel there
//! as lines, are added up, and written in the order of words. `%r` in a name stands for the node's number.

#[path = "common.rs"]
mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use viaduct_river::disk::{Direct, DiskSource, Partial, Volume};
use viaduct_river::{Buffer, Delimited, MemPool, PartitionSink, RiverSink, Sink, Source, records};

type Counts = BTreeMap<Vec<u8>, u64>;

fn main() -> common::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [input, output] = &words[..] else { return Err("word_count INPUT OUTPUT".into()) };
    let (mut job, links) = common::join()?;
    let (rank, size) = (job.rank(), job.size());
    let name = |text: &str| std::path::PathBuf::from(text.replace("%r", &rank.to_string()));

    // Four messages may be posted and one in use for each other node; the same for what is sent.
    let receiving = links.pool(5 * size, 64 << 10, None)?;
    let sending = links.pool(6 * size, 64 << 10, None)?;
    let mesh = links.connect("words", &mut job, &receiving)?;
    let here = Arc::new(RiverSink::new("here", 4, 1));
    let lines = Arc::new(Delimited(b'\n'));

    let sinks = mesh.sinks.iter().map(|sink| sink.clone().unwrap_or_else(|| here.clone() as Arc<dyn Sink>));
    let rule = |line: &[u8]| hash(word_of(line)) as usize % size;
    let to_nodes = PartitionSink::new("nodes", lines.clone(), rule, sending, sinks.collect());
    let source = DiskSource::new(
        "text",
        vec![Volume::open(&name(input))?],
        lines.clone(),
        MemPool::new(4, 1 << 20)?,
        Direct::Auto,
        Partial::Refuse,
    )?;

    let total = Mutex::new(Counts::new());
    std::thread::scope(|scope| -> Result<(), viaduct_river::Error> {
        // One thread for each node that sends, this one among them, adds up what comes.
        let local: Arc<dyn Source> = here.clone();
        let sources = mesh.sources.iter().map(|source| source.clone().unwrap_or_else(|| local.clone()));
        let adding: Vec<_> = sources.map(|source| scope.spawn(|| add_up(source, &total))).collect();
        let sent = count(&source).and_then(|counts| send(&counts, &to_nodes));
        if let Err(error) = &sent {
            to_nodes.fail(error.clone());
        }
        adding.into_iter().try_for_each(|thread| thread.join().expect("an adder does not panic"))?;
        sent
    })?;

    let mut text = String::new();
    for (word, count) in total.into_inner()? {
        writeln!(text, "{} {count}", String::from_utf8_lossy(&word))?;
    }
    std::fs::write(name(output), text)?;
    job.barrier()?;
    job.finish()?;
    Ok(())
}

/// Counts the words of this node's text.
fn count(source: &dyn Source) -> Result<Counts, viaduct_river::Error> {
    let mut counts = Counts::new();
    while let Some(buffer) = source.pull()? {
        for word in buffer.data().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
            match counts.get_mut(word) {
                Some(count) => *count += 1,
                None => drop(counts.insert(word.to_vec(), 1)),
            }
        }
    }
    Ok(counts)
}

/// Sends a line for each word to its node.
fn send(counts: &Counts, nodes: &dyn Sink) -> Result<(), viaduct_river::Error> {
    let pool = MemPool::new(1, 64 << 10)?;
    let mut buffer = pool.take();
    for (word, count) in counts {
        let line = [word, format!(" {count}\n").as_bytes()].concat();
        if line.len() > pool.buffer_size() {
            // A word that no buffer of the pool holds has memory of its own, and travels in pieces.
            let mut long = Buffer::heap(line.len());
            long.push_record(&line);
            nodes.put(long)?;
            continue;
        }
        if buffer.free() < line.len() {
            nodes.put(buffer)?;
            buffer = pool.take();
        }
        buffer.push_record(&line);
    }
    nodes.put(buffer)?;
    nodes.finish()
}

fn add_up(source: Arc<dyn Source>, total: &Mutex<Counts>) -> Result<(), viaduct_river::Error> {
    while let Some(buffer) = source.pull()? {
        let mut total = total.lock().expect("no adder panics");
        for line in records(&Delimited(b'\n'), buffer.data()) {
            let word = word_of(line);
            let number = std::str::from_utf8(&line[word.len()..]).unwrap_or_default().trim();
            *total.entry(word.to_vec()).or_default() += number.parse().unwrap_or(0);
        }
    }
    Ok(())
}

/// The word of a line `word count`.
fn word_of(line: &[u8]) -> &[u8] {
    line.split(|&byte| byte == b' ').next().unwrap_or_default()
}

/// FNV-1a: every node finds the same node for a word.
fn hash(word: &[u8]) -> u64 {
    word.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
