//! Hostile input on the stable compiler: a parser gets bytes that look nearly right, many of them, from a seed that a
//! failure names.
//!
//! Blind where `cargo fuzz` sees which branches were taken, so it starts from messages that are right and spoils them in
//! the ways that parsers trip over: lengths, signs, ends, pieces of another message. A quick run has some thousand
//! inputs, a full one a minute of them; `VIADUCT_FUZZ_SEED` repeats a run.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::effort::full;

/// The variable that repeats a run.
pub const SEED: &str = "VIADUCT_FUZZ_SEED";

/// Inputs of a quick run.
const QUICK: u64 = 20_000;
/// What a full run takes.
const LONG: Duration = Duration::from_secs(60);
/// Longest input.
const LONGEST: usize = 1 << 16;

/// Gives `parse` right messages that were spoiled; it must not panic.
///
/// ```
/// viaduct_kit::fuzz::spoil(&[b"12".to_vec()], |bytes| {
///     let _ = std::str::from_utf8(bytes).map(str::parse::<u32>);
/// });
/// ```
///
/// # Panics
///
/// If `parse` does, after having said with which input and seed.
pub fn spoil(right: &[Vec<u8>], parse: impl Fn(&[u8])) {
    let seed = env::var(SEED).ok().map_or_else(fresh, |text| text.parse().expect("a number is wanted"));
    let mut random = Random(seed | 1);
    let start = Instant::now();
    let mut count = 0;
    while if full() { start.elapsed() < LONG } else { count < QUICK } {
        let input = random.spoiled(right);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| parse(&input))) {
            eprintln!("{SEED}={seed}, input {count}: {}", hex(&input));
            resume_unwind(panic);
        }
        count += 1;
    }
    eprintln!("{count} inputs from seed {seed}");
}

fn fresh() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Marsaglia's xorshift: the same numbers from the same seed, everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`, or 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 11) as usize % end.max(1)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// One of the right messages with a few things wrong, and now and then nothing but noise.
    fn spoiled(&mut self, right: &[Vec<u8>]) -> Vec<u8> {
        if right.is_empty() || self.below(16) == 0 {
            let len = self.below(2048);
            return self.bytes(len);
        }
        let mut input = right[self.below(right.len())].clone();
        for _ in 0..=self.below(6) {
            self.spoil_once(&mut input, right);
        }
        input.truncate(LONGEST);
        input
    }

    fn spoil_once(&mut self, input: &mut Vec<u8>, right: &[Vec<u8>]) {
        const EDGES: [u64; 8] = [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, 1 << 63, u64::MAX];
        let at = self.below(input.len());
        match self.below(6) {
            0 => input.truncate(at),
            1 => {
                let more = self.below(300);
                let more = self.bytes(more);
                input.extend(more);
            }
            2 => {
                let edge = EDGES[self.below(EDGES.len())].to_le_bytes();
                let width = 1 << self.below(4);
                input.iter_mut().skip(at).zip(&edge[..width]).for_each(|(byte, edge)| *byte = *edge);
            }
            3 => {
                let other = &right[self.below(right.len())];
                let from = self.below(other.len());
                input
                    .iter_mut()
                    .skip(at)
                    .zip(&other[from..])
                    .take(32)
                    .for_each(|(byte, other)| *byte = *other);
            }
            4 => input.iter_mut().skip(at).take(1).for_each(|byte| *byte = self.next() as u8),
            _ => input.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (self.next() % 8)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_parser_that_trusts_a_length_is_found_out() {
        let trusting = |bytes: &[u8]| {
            if let Some((len, rest)) = bytes.split_first() {
                let _ = rest[..usize::from(*len)].len();
            }
        };
        let caught = catch_unwind(|| spoil(&[vec![3, 1, 2, 3]], trusting));
        assert!(caught.is_err());
    }

    #[test]
    fn a_seed_repeats_its_inputs() {
        let right = [b"abcdefgh".to_vec(), vec![0; 40]];
        let inputs = |seed| {
            let mut random = Random(seed);
            (0..100).map(|_| random.spoiled(&right)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(7), inputs(7));
        assert_ne!(inputs(7), inputs(9));
    }

    #[test]
    fn right_messages_and_short_ones_are_among_the_inputs() {
        let (same, empty) = (Cell::new(0), Cell::new(0));
        spoil(&[vec![9; 4]], |bytes| {
            same.set(same.get() + u32::from(bytes.starts_with(&[9, 9])));
            empty.set(empty.get() + u32::from(bytes.is_empty()));
        });
        assert!(same.get() > 100 && empty.get() > 100, "{} and {}", same.get(), empty.get());
    }
}
