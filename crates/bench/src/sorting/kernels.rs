//! Buckets by the top of the key against comparison, on one core (Millennium Sort, section 4.2: radix sort against quicksort).
//!
//! The sort's own kernel sorts the records of the file, as it always does and with all of its pairs in one bucket, where
//! comparison is all that is left. Beside it stands the idea alone, on keys in memory: that is not the sort's code.

use std::io;
use std::time::Instant;

use viaduct_results::rng::Rng;
use viaduct_results::table::{Better, Table};

use viaduct_sort::{Input, Progress, Settings, Target};

use super::{Bench, Emit};

const ROUNDS: usize = 5;

/// A name, and what sorts a copy of the keys; it says whether they are in order then.
type Sorter = (&'static str, fn(&[u128]) -> bool);

/// The sort's own kernel, and then the idea alone.
pub(super) fn lines(bench: &Bench, records: usize, table: &Table, emit: Emit<'_>) -> io::Result<()> {
    own(bench, records, table, emit)?;
    ideas(records, table, emit)
}

/// Sorts the file `in` with the sort's kernel, in buckets and in one, by turns: what the kernel takes a record, and the whole sort.
fn own(bench: &Bench, records: usize, table: &Table, emit: Emit<'_>) -> io::Result<()> {
    let rows = ["viaduct sort, in buckets", "viaduct sort, in one bucket by comparison"];
    let (mut kernels, mut wholes) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let mut wrong: [Option<String>; 2] = [None, None];
    let input = bench.records_of("in");
    for _ in 0..bench.rounds.max(1) {
        for (n, one_bucket) in [false, true].into_iter().enumerate() {
            let settings = Settings { threads: 1, one_bucket, checksum: false, ..Settings::default() };
            let (from, to) = (Input::Path(bench.path("in")), Target::Path(bench.path("out")));
            match viaduct_sort::sort(vec![from], to, &settings, &Progress::default()) {
                Ok(report) => {
                    let phases = report.nodes.iter().map(|node| node.phases.sort);
                    kernels[n].push(1e9 * phases.sum::<f64>() / records as f64);
                    wholes[n].push(report.seconds);
                }
                Err(error) => wrong[n] = Some(error.to_string()),
            }
            let good = bench.records_of("out").zip(input.as_ref()).is_some_and(|(output, input)| {
                output.ordered && (output.count, &output.sum) == (input.count, &input.sum)
            });
            if !good {
                wrong[n].get_or_insert_with(|| "its output is not the input in order".into());
            }
        }
    }
    for (n, row) in rows.into_iter().enumerate() {
        let cell = table.cell(row, "time", "ns a record", Better::Less);
        if let Some(why) = &wrong[n] {
            emit(cell.wrong(why.clone()))?;
            continue;
        }
        emit(cell.of(&kernels[n]))?;
        emit(table.cell(row, "whole sort", "s", Better::Less).of(&wholes[n]))?;
    }
    let paper = "Millennium Sort, section 4.2";
    emit(
        table.cell("paper, radix sort on 16 nodes", "whole sort", "s", Better::Less).from_paper(paper, 1.18),
    )?;
    emit(table.cell("paper, quicksort on 16 nodes", "whole sort", "s", Better::Less).from_paper(paper, 1.3))
}

/// Nanoseconds a record of three ways to sort the same keys.
fn ideas(records: usize, table: &Table, emit: Emit<'_>) -> io::Result<()> {
    let mut rng = Rng::new(1);
    let pairs: Vec<u128> = (0..records)
        .map(|n| (u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())) >> 48 << 48 | n as u128)
        .collect();
    let ways: [Sorter; 3] = [
        ("buckets, then pairs", by_buckets),
        ("pairs by comparison", by_comparison),
        ("whole records by comparison", whole),
    ];
    for (name, way) in ways {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let good = way(&pairs);
            times.push(begun.elapsed().as_nanos() as f64 / records as f64);
            if !good {
                return emit(table.cell(name, "time", "ns a record", Better::Less).wrong("not sorted"));
            }
        }
        emit(table.cell(name, "time", "ns a record", Better::Less).of(&times))?;
    }
    Ok(())
}

fn by_buckets(pairs: &[u128]) -> bool {
    const BITS: u32 = 11;
    let of = |pair: u128| (pair >> (128 - BITS)) as usize;
    let mut ends = vec![0usize; 1 << BITS];
    pairs.iter().for_each(|&pair| ends[of(pair)] += 1);
    let mut start = 0;
    for end in &mut ends {
        (*end, start) = (start, start + *end);
    }
    let mut sorted = vec![0; pairs.len()];
    for &pair in pairs {
        sorted[ends[of(pair)]] = pair;
        ends[of(pair)] += 1;
    }
    let mut from = 0;
    for end in ends {
        sorted[from..end].sort_unstable();
        from = end;
    }
    sorted.is_sorted()
}

fn by_comparison(pairs: &[u128]) -> bool {
    let mut pairs = pairs.to_vec();
    pairs.sort_unstable();
    pairs.is_sorted()
}

fn whole(pairs: &[u128]) -> bool {
    let mut records: Vec<[u8; 100]> = pairs
        .iter()
        .map(|pair| {
            let mut record = [0; 100];
            record[..16].copy_from_slice(&pair.to_be_bytes());
            record
        })
        .collect();
    records.sort_unstable_by(|a, b| a[..10].cmp(&b[..10]));
    records.is_sorted_by(|a, b| a[..10] <= b[..10])
}
