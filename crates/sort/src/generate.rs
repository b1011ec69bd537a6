//! Records of the sort benchmark, byte for byte those of gensort 1.5, on all cores.
//!
//! Record n is made of ten successive values of a 128-bit linear congruential generator, from the n-th on. The generator can
//! jump to any place, so that each buffer is filled independently. The skewed form replaces the beginning of three quarters
//! of the keys, so that keys crowd around a few values.

use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use viaduct_river::disk::{DiskSink, Output, StreamSink, Volume};
use viaduct_river::{Buffer, Edge, MemPool, Sink, Source, pump_with};

use crate::destination::DIRECT_FROM;
use crate::{Error, KEY, RECORD};

const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;
const INCREMENT: u128 = 0x4a69_6d47_7261_7952_4950_2020_2020_2001;

/// What each tenth of a binary record is combined with, so that its parts look different.
const MASKS: [u128; 10] = [
    0,
    0xF0E8_E4E2_E1D8_D4D2_D1CC,
    0xCAC9_C6C5_C3B8_B4B2_B1AC,
    0xAAA9_A6A5_A39C_9A99_9695,
    0x938E_8D8B_8778_7472_716C,
    0x6A69_6665_635C_5A59_5655,
    0x534E_4D4B_473C_3A39_3635,
    0x332E_2D2B_271E_1D1B_170F,
    0xC8C4_C2C1_9894_9291_8CE0,
    0x170F_332E_2D2B_271E_1D1B,
];

/// Records of a buffer: a whole number of blocks.
const BATCH: u64 = 10_240;

/// How records look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// All bytes occur.
    #[default]
    Binary,
    /// Printable, one record a line (CR LF). Keys may contain spaces.
    Ascii,
}

/// A generator of records.
#[derive(Clone, Debug)]
pub struct Generator {
    style: Style,
    /// Beginnings of skewed keys, by bit length of the record number; empty without skew.
    heads: Vec<[u8; 6]>,
}

impl Generator {
    /// Records with keys that are spread evenly.
    pub fn new(style: Style) -> Generator {
        Generator { style, heads: Vec::new() }
    }

    /// Records with keys that crowd.
    pub fn skewed(style: Style) -> Generator {
        let even = Generator::new(style);
        let head = |n: u128| {
            let mut record = [0; RECORD];
            even.fill(n, &mut record);
            *record.first_chunk().expect("a record is longer than that")
        };
        Generator { style, heads: (0..=128).map(head).collect() }
    }

    /// Fills `records`, a multiple of 100 bytes, with the records from number `first` on.
    pub fn fill(&self, first: u128, records: &mut [u8]) {
        let mut values = [0u128; 10];
        let mut value = nth(first);
        for slot in &mut values {
            *slot = value;
            value = step(value);
        }
        let mut oldest = 0;
        for (number, record) in (first..).zip(records.chunks_exact_mut(RECORD)) {
            match self.style {
                Style::Binary => binary(record, &values, oldest),
                Style::Ascii => ascii(record, number, values[oldest]),
            }
            if !self.heads.is_empty() {
                self.skew(record, number, values[oldest]);
            }
            values[oldest] = value;
            value = step(value);
            oldest = if oldest == 9 { 0 } else { oldest + 1 };
        }
    }

    fn skew(&self, record: &mut [u8], number: u128, value: u128) {
        let head = &self.heads[(128 - number.leading_zeros()) as usize];
        let chance = (value as u64) >> 32;
        match self.style {
            Style::Binary => {
                let bits = (chance & 63) as usize;
                if bits <= 48 {
                    let (whole, rest) = (bits / 8, bits % 8);
                    record[..whole].copy_from_slice(&head[..whole]);
                    if rest > 0 {
                        let mask = 0xFFu8 << (8 - rest);
                        record[whole] = head[whole] & mask | record[whole] & !mask;
                    }
                }
            }
            Style::Ascii => {
                let bytes = (chance & 7) as usize;
                if bytes <= 6 {
                    record[..bytes].copy_from_slice(&head[..bytes]);
                }
            }
        }
    }

    /// Writes `count` records from number `first` on to a file, which has its name once it is complete. Returns their checksum.
    /// Long files are written past the page cache.
    pub fn to_file(&self, first: u128, count: u64, path: &Path, threads: usize) -> Result<u128, Error> {
        self.to_volume(first, count, path, threads, count * RECORD as u64 >= DIRECT_FROM)
    }

    fn to_volume(
        &self,
        first: u128,
        count: u64,
        path: &Path,
        threads: usize,
        direct: bool,
    ) -> Result<u128, Error> {
        let output = Output::create(path)?;
        let len = count * RECORD as u64;
        output.reserve(len)?;
        let mut volume = Volume::of_files(vec![(path.to_owned(), output.file()?)], u64::MAX);
        if direct {
            volume.use_direct();
        }
        let sum = self.to_sink(first, count, &DiskSink::new("output", volume), threads)?;
        output.commit(len)?;
        Ok(sum)
    }

    /// Writes records to a stream.
    pub fn to_stream(
        &self,
        first: u128,
        count: u64,
        path: &Path,
        stream: Box<dyn std::io::Write + Send>,
        threads: usize,
    ) -> Result<u128, Error> {
        self.to_sink(first, count, &StreamSink::new("output", path, stream), threads)
    }

    /// The checksum of records, without writing them.
    pub fn checksum(&self, first: u128, count: u64, threads: usize) -> Result<u128, Error> {
        self.to_sink(first, count, &Nowhere(Edge::new("nowhere")), threads)
    }

    fn to_sink(&self, first: u128, count: u64, sink: &dyn Sink, threads: usize) -> Result<u128, Error> {
        // Every thread fills one; several may be on their way to a disk.
        let pool = MemPool::new(threads + 8, BATCH as usize * RECORD)?;
        let (next, sum) = (AtomicU64::new(0), Mutex::new(0));
        let source = Records { generator: self, first, count, next, pool, sum, edge: Edge::new("generator") };
        pump_with(threads, &source, sink)?;
        Ok(source.sum.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The generator as a source.
struct Records<'a> {
    generator: &'a Generator,
    first: u128,
    count: u64,
    next: AtomicU64,
    pool: MemPool,
    sum: Mutex<u128>,
    edge: Edge,
}

impl Source for Records<'_> {
    fn pull(&self) -> Result<Option<Buffer>, viaduct_river::Error> {
        // The buffer comes first: a thread that has a number then never waits for those that are behind it.
        let mut buffer = self.pool.take();
        let start = self.next.fetch_add(BATCH, Ordering::Relaxed);
        if start >= self.count {
            return Ok(None);
        }
        let records = BATCH.min(self.count - start);
        let len = records as usize * RECORD;
        let bytes = &mut buffer.room_mut()[..len];
        self.generator.fill(self.first + u128::from(start), bytes);
        let sum = checksum(bytes);
        *self.sum.lock().unwrap_or_else(PoisonError::into_inner) += sum;
        buffer.set_window(0, len);
        buffer.set_records(records);
        buffer.set_position(start * RECORD as u64);
        buffer.set_sequence(start / BATCH);
        self.edge.carried(len, records);
        Ok(Some(buffer))
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}

/// A sink that only counts.
struct Nowhere(Edge);

impl Sink for Nowhere {
    fn put(&self, buffer: Buffer) -> Result<(), viaduct_river::Error> {
        self.0.carried(buffer.len(), buffer.records());
        Ok(())
    }

    fn finish(&self) -> Result<(), viaduct_river::Error> {
        Ok(())
    }

    fn fail(&self, _error: viaduct_river::Error) {}

    fn edge(&self) -> &Edge {
        &self.0
    }
}

/// The benchmark's checksum: the sum of the CRC-32 of every record.
pub fn checksum(records: &[u8]) -> u128 {
    records.chunks(RECORD).map(|record| u128::from(crc32fast::hash(record))).sum()
}

fn step(value: u128) -> u128 {
    value.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT)
}

/// The value number `n`, from 0 on: n + 1 steps from zero, by squaring.
fn nth(n: u128) -> u128 {
    let (mut multiplier, mut increment) = (MULTIPLIER, INCREMENT);
    // One step is always made; the others are those of n.
    let mut value = INCREMENT;
    let mut left = n;
    while left > 0 {
        if left & 1 == 1 {
            value = value.wrapping_mul(multiplier).wrapping_add(increment);
        }
        increment = increment.wrapping_mul(multiplier.wrapping_add(1));
        multiplier = multiplier.wrapping_mul(multiplier);
        left >>= 1;
    }
    value
}

fn binary(record: &mut [u8], values: &[u128; 10], oldest: usize) {
    for (i, (piece, mask)) in record.chunks_exact_mut(KEY).zip(MASKS).enumerate() {
        let at = if oldest + i >= 10 { oldest + i - 10 } else { oldest + i };
        let bits = (values[at] >> 48) ^ mask;
        piece.copy_from_slice(&bits.to_be_bytes()[6..]);
    }
}

fn ascii(record: &mut [u8], number: u128, value: u128) {
    let (mut high, mut low) = ((value >> 64) as u64, value as u64);
    let nibbles = low;
    for byte in &mut record[..8] {
        *byte = b' ' + (high % 95) as u8;
        high /= 95;
    }
    for byte in &mut record[8..10] {
        *byte = b' ' + (low % 95) as u8;
        low /= 95;
    }
    record[10..12].fill(b' ');
    for (i, byte) in record[12..44].iter_mut().enumerate() {
        *byte = digit((number >> (124 - 4 * i)) as u8);
    }
    record[44..46].fill(b' ');
    for (i, group) in record[46..98].chunks_exact_mut(4).enumerate() {
        group.fill(digit((nibbles >> (48 - 4 * i)) as u8));
    }
    record[98..].copy_from_slice(b"\r\n");
}

fn digit(nibble: u8) -> u8 {
    b"0123456789ABCDEF"[usize::from(nibble & 15)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(generator: &Generator, first: u128, count: u64) -> String {
        format!("{:x}", generator.checksum(first, count, 2).unwrap())
    }

    #[test]
    fn a_file_past_the_page_cache_is_the_same() {
        let folder = viaduct_kit::tempdir::TempDir::new("gen-direct");
        let generator = Generator::new(Style::Binary);
        let make = |name: &str, direct| {
            let path = folder.join(name);
            let sum = generator.to_volume(7, 41_234, &path, 3, direct).unwrap();
            (sum, std::fs::read(path).unwrap())
        };
        assert!(make("cached", false) == make("direct", true));
    }

    #[test]
    fn the_known_checksums_come_out() {
        let (plain, skewed) = (Generator::new(Style::Binary), Generator::skewed(Style::Binary));
        let (text, skewed_text) = (Generator::new(Style::Ascii), Generator::skewed(Style::Ascii));
        assert_eq!(sum(&plain, 0, 10), "55fea8a1a");
        assert_eq!(sum(&plain, 1_000_000, 1000), "1f912af9809");
        assert_eq!(sum(&plain, 0, 1_000_000), "7a0e0d4868cd4");
        assert_eq!(sum(&text, 0, 10), "469302dca");
        assert_eq!(sum(&text, 0, 1_000_000), "7a19cff467438");
        assert_eq!(sum(&skewed, 0, 10), "5d95519b3");
        assert_eq!(sum(&skewed, 0, 1000), "1e96301166b");
        assert_eq!(sum(&skewed_text, 0, 1000), "1eef17d1cac");
    }

    #[test]
    fn the_known_checksums_of_large_inputs_come_out() {
        if !viaduct_kit::effort::full() {
            viaduct_kit::packages::skip("minutes without optimisation: only the long form has them");
            return;
        }
        let plain = Generator::new(Style::Binary);
        let (text, skewed) = (Generator::new(Style::Ascii), Generator::skewed(Style::Binary));
        assert_eq!(sum(&plain, 0, 10_000_000), "4c4e32cca7d315");
        assert_eq!(sum(&text, 0, 10_000_000), "4c48a881c779d5");
        assert_eq!(sum(&skewed, 0, 10_000_000), "4c478a4199c9fe");
        assert_eq!(sum(&plain, 0, 30_000_000), "e4e3e6d2a7614d");
        assert_eq!(sum(&plain, 0, 100_000_000), "2faf4162801872c");
        assert_eq!(sum(&plain, 0, 200_000_000), "5f5f60b23024285");
    }

    /// What valsort says of the benchmark's 10 million skewed records.
    #[test]
    fn the_skewed_input_has_the_known_duplicates() {
        if !viaduct_kit::effort::full() {
            viaduct_kit::packages::skip("a gigabyte to sort: only the long form does");
            return;
        }
        let folder = viaduct_kit::tempdir::TempDir::new("gen-skewed");
        let (from, to) = (folder.join("from"), folder.join("to"));
        let sum = Generator::skewed(Style::Binary).to_file(0, 10_000_000, &from, 2).unwrap();
        let input = vec![crate::Input::Path(from)];
        let settings = crate::Settings { memory: Some(512 << 20), ..crate::Settings::default() };
        crate::sort(input, crate::Target::Path(to.clone()), &settings, &crate::Progress::default()).unwrap();
        let check = crate::check::Check::default().files(&[to]).unwrap();
        assert_eq!((check.verdict(), check.records), (crate::check::Checked::Ordered, 10_000_000));
        assert_eq!((check.duplicates, check.checksum), (4, sum));
        assert_eq!(format!("{sum:x}"), "4c478a4199c9fe");
    }

    #[test]
    fn the_first_key_is_a_name_and_lines_are_lines() {
        let mut record = [0; RECORD];
        Generator::new(Style::Binary).fill(0, &mut record);
        assert_eq!(&record[..KEY], b"JimGrayRIP");
        let mut line = [0; RECORD];
        Generator::new(Style::Ascii).fill(0xAB, &mut line);
        assert_eq!(&line[10..46], b"  000000000000000000000000000000AB  ");
        assert_eq!(&line[98..], b"\r\n");
    }

    #[test]
    fn a_piece_is_what_the_whole_has_there() {
        let generator = Generator::skewed(Style::Ascii);
        let mut whole = vec![0; 300 * RECORD];
        generator.fill(1000, &mut whole);
        let mut piece = vec![0; 7 * RECORD];
        generator.fill(1123, &mut piece);
        assert_eq!(piece, whole[123 * RECORD..130 * RECORD]);
    }
}
