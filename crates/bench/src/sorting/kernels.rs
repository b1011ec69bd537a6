//! The idea of the sort's kernel alone, on one core: buckets by the top of the key, against comparison. Not the sort's own code, whose
//! buckets depend on the keys and which works on all cores.

use std::io;
use std::time::Instant;

use viaduct_results::rng::Rng;
use viaduct_results::table::{Better, Table};

use super::Emit;

const ROUNDS: usize = 5;

/// A name, and what sorts a copy of the keys; it says whether they are in order then.
type Way = (&'static str, fn(&[u128]) -> bool);

/// Nanoseconds a record of three ways to sort the same keys.
pub(super) fn lines(records: usize, table: &Table, emit: Emit<'_>) -> io::Result<()> {
    let mut rng = Rng::new(1);
    let pairs: Vec<u128> = (0..records)
        .map(|n| (u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())) >> 48 << 48 | n as u128)
        .collect();
    let ways: [Way; 3] = [
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
