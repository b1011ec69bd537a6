//! How `viaduct sort` compares: with a copy, with rivals, with itself on skewed keys, in little memory, on lines and on nodes.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use viaduct_results::rng::Rng;
use viaduct_results::table::Table;

use super::contest::{Contender, Put, lines, play};
use super::{Bench, Emit, rivals};

/// Ours as a user calls it, and without the proof of the output.
const OURS: &str = "viaduct sort";
const PLAIN: &str = "viaduct sort --checksum off";

/// Columns of ratios.
const BY_OURS: [(&str, &str); 2] = [("times ours", OURS), ("times --checksum off", PLAIN)];

fn config(bench: &Bench, what: &str, value: impl ToString) -> BTreeMap<String, String> {
    BTreeMap::from([(what.into(), value.to_string()), ("rounds".into(), bench.rounds.to_string())])
}

/// Records in memory: `million` of them in millions, or a few where it is to be quick.
///
/// # Errors
/// If an input cannot be written, or a line cannot be put.
pub fn records(
    bench: &Bench,
    million: u64,
    progress: &mut dyn FnMut(&str, f64),
    emit: Emit<'_>,
) -> io::Result<()> {
    let records = if bench.quick { 20_000 } else { million * 1_000_000 };
    bench.generate(records, "in", &[])?;
    bench.generate(records, "lines", &["-a"])?;
    bench.generate(records, "skewed", &["-s"])?;
    let skewed = "viaduct sort, skewed keys";
    let mut contenders = vec![
        Contender::ours(bench, OURS, &[], "in", Put::Records),
        Contender::ours(bench, PLAIN, &["--checksum", "off"], "in", Put::Records),
        Contender::ours(bench, skewed, &[], "skewed", Put::Records),
    ];
    contenders.extend(rivals::all());
    play(bench, &mut contenders, records, progress);
    let table = Table::new(format!("sort-{million}m"), config(bench, "records", records));
    lines(&contenders, &[&BY_OURS[..], &[("times cp", rivals::FLOOR)]].concat(), &table, emit)
}

/// More records than fit into memory.
///
/// # Errors
/// If an input cannot be written, or a line cannot be put.
pub fn memory(bench: &Bench, progress: &mut dyn FnMut(&str, f64), emit: Emit<'_>) -> io::Result<()> {
    let (records, most, words) = if bench.quick { (200_000, 16, "16M") } else { (10_000_000, 256, "256M") };
    bench.generate(records, "in", &[])?;
    bench.generate(records, "lines", &["-a"])?;
    let mut contenders = vec![
        Contender::ours(bench, OURS, &["--memory", words], "in", Put::Records),
        Contender::ours(bench, PLAIN, &["--memory", words, "--checksum", "off"], "in", Put::Records),
    ];
    contenders.extend(rivals::with_memory(most, if bench.quick { 100 } else { 300 }));
    play(bench, &mut contenders, records, progress);
    let table = Table::new("sort-memory", config(bench, "memory", words));
    lines(&contenders, &BY_OURS, &table, emit)?;
    if bench.quick {
        return Ok(());
    }
    // Ten times the memory, once: that it is done at all.
    std::fs::remove_file(bench.path("lines"))?;
    bench.generate(50_000_000, "in", &[])?;
    let name = "viaduct sort, 5 GB in 512 MB";
    let mut large = [Contender::ours(bench, name, &["--memory", "512M"], "in", Put::Records)];
    let once = Bench { rounds: 1, ..bench.clone() };
    play(&once, &mut large, 50_000_000, progress);
    lines(&large, &[], &table, emit)
}

/// Lines of 5 to 120 bytes.
///
/// # Errors
/// If the input cannot be written, or a line cannot be put.
pub fn text(bench: &Bench, progress: &mut dyn FnMut(&str, f64), emit: Emit<'_>) -> io::Result<()> {
    let bytes = if bench.quick { 2_000_000 } else { 1_000_000_000 };
    let count = write_lines(bench, bytes)?;
    let (put, names) = (Put::Lines(1), [OURS, PLAIN]);
    let mut contenders = vec![
        Contender::ours(bench, names[0], &["--lines"], "lines", put),
        Contender::ours(bench, names[1], &["--lines", "--checksum", "off"], "lines", put),
    ];
    contenders.extend(rivals::of_lines(put, &[]));
    play(bench, &mut contenders, count, progress);
    let table = Table::new("sort-lines", config(bench, "bytes", bytes));
    lines(&contenders, &BY_OURS, &table, emit)
}

/// Nodes of this host against one process.
///
/// # Errors
/// If the input cannot be written, or a line cannot be put.
pub fn nodes(bench: &Bench, progress: &mut dyn FnMut(&str, f64), emit: Emit<'_>) -> io::Result<()> {
    let records = if bench.quick { 20_000 } else { 10_000_000 };
    bench.generate(records, "in", &[])?;
    let four = |name: &str, words: &[&str]| {
        Contender::ours(bench, name, &[&["--nodes", "4"], words].concat(), "in", Put::Records)
    };
    let mut contenders = vec![
        Contender::ours(bench, OURS, &[], "in", Put::Records),
        four("4 nodes over shm", &["--transport", "shm"]),
        four("4 nodes over shm, windows of 1 MB", &["--transport", "shm", "--window", "1M"]),
        four("4 nodes over TCP", &["--transport", "tcp"]),
    ];
    play(bench, &mut contenders, records, progress);
    let table = Table::new("sort-nodes", config(bench, "records", records));
    lines(&contenders, &BY_OURS[..1], &table, emit)
}

/// Writes random lines into `lines`. Gives how many.
fn write_lines(bench: &Bench, bytes: u64) -> io::Result<u64> {
    let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(bench.path("lines"))?);
    let (mut rng, mut written, mut count) = (Rng::new(17), 0, 0);
    let mut line = Vec::with_capacity(128);
    while written < bytes {
        // With its end.
        let len = 5 + rng.below(116) as usize;
        line.clear();
        while line.len() + 1 < len {
            // Eight printable letters at a time: two bits are cleared so that none is a control letter.
            let word = rng.next_u64() & 0x1f1f_1f1f_1f1f_1f1f | 0x4040_4040_4040_4040;
            line.extend_from_slice(&word.to_le_bytes()[..8.min(len - 1 - line.len())]);
        }
        line.push(b'\n');
        file.write_all(&line)?;
        written += line.len() as u64;
        count += 1;
    }
    file.flush()?;
    Ok(count)
}
