//! Every node's file goes to its neighbour, all at once: `viaduct launch --hosts node[1-4] parallel_copy data.%r copy.%r`.
//!
//! Node r reads `data.r`, and the node behind it (the last one's is the first) writes that as `copy.r`. Both ends work out a
//! checksum of what they read and wrote; a copy gets its name only if they agree. Blocks say where they belong, so readers and
//! writers need not keep their order.

#[path = "common.rs"]
mod common;

use std::path::PathBuf;
use std::sync::Arc;

use viaduct_river::disk::{Direct, DiskSink, DiskSource, Output, Partial, Volume};
use viaduct_river::{Buffer, Fixed, Sink, Source};

const BLOCK: usize = 256 << 10;

/// Bytes and a sum that does not depend on the order of blocks.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    bytes: u64,
    sum: u64,
}

impl Seen {
    fn add(&mut self, buffer: &Buffer) {
        self.bytes += buffer.len() as u64;
        // FNV-1a over the place and the bytes of the block.
        let place = buffer.position().unwrap_or_default().to_le_bytes();
        let hash = place.iter().chain(buffer.data()).fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        self.sum = self.sum.wrapping_add(hash);
    }
}

fn main() -> common::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = &words[..] else { return Err("parallel_copy FROM TO".into()) };
    let (mut job, links) = common::join()?;
    let (rank, size) = (job.rank(), job.size());
    let name = |text: &str, node: usize| PathBuf::from(text.replace("%r", &node.to_string()));
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);

    // What is read from the disk leaves for the neighbour from where it lies.
    let (reading, receiving) = (links.pool(16, BLOCK, None)?, links.pool(5 * size, BLOCK, None)?);
    let mesh = links.connect("copy", &mut job, &receiving)?;
    let volume = Volume::open(&name(from, rank))?;
    let source =
        DiskSource::new("file", vec![volume], Arc::new(Fixed(1)), reading, Direct::Auto, Partial::Refuse)?;
    let output = Output::create(&name(to, before))?;
    let written = Volume::of_files(vec![(output.path().to_owned(), output.file()?)], u64::MAX);
    let sink = DiskSink::new("copy", written);

    // A single node is its own neighbour.
    let (read, wrote) = if size == 1 {
        let read = move_all(&source, &sink)?;
        (read, read)
    } else {
        let (Some(edge), Some(arriving)) = (&mesh.sinks[next], &mesh.sources[before]) else {
            return Err("a node without neighbours".into());
        };
        std::thread::scope(|scope| -> Result<_, viaduct_river::Error> {
            let sending = scope.spawn(|| {
                let read = move_all(&source, &**edge);
                match &read {
                    Ok(_) => edge.finish()?,
                    Err(error) => edge.fail(error.clone()),
                }
                read
            });
            let wrote = move_all(&**arriving, &sink)?;
            Ok((sending.join().expect("a sender does not panic")?, wrote))
        })?
    };
    sink.finish()?;
    let len = sink.whole()?;
    drop(sink);

    let told = [read.bytes.to_le_bytes(), read.sum.to_le_bytes()].concat();
    let all = job.exchange(&told)?;
    let word = |at: usize| all[before][at..].first_chunk::<8>().map_or(0, |eight| u64::from_le_bytes(*eight));
    if (Seen { bytes: word(0), sum: word(8) }) != wrote {
        return Err(format!("the copy of node {before}'s file is not what it read").into());
    }
    output.commit(len)?;
    println!("node {rank}: {} bytes of node {before}, sum {:016x}", wrote.bytes, wrote.sum);
    job.barrier()?;
    job.finish()?;
    Ok(())
}

fn move_all(source: &dyn Source, sink: &dyn Sink) -> Result<Seen, viaduct_river::Error> {
    let mut seen = Seen::default();
    while let Some(buffer) = source.pull()? {
        seen.add(&buffer);
        sink.put(buffer)?;
    }
    Ok(seen)
}
