//! What is known of a run of records: count, checksum, order, first and last.
//!
//! Summaries of neighbouring runs join, which is how threads, files and nodes check together. A summary has the binary form of
//! valsort's partition summaries: 280 bytes.

use serde::Serialize;

use crate::{KEY, RECORD};

/// Bytes of a summary in a file.
pub const BYTES: usize = 280;

/// Where the key lies and how it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRule {
    /// Bytes of a record.
    pub record: usize,
    /// First byte of the key.
    pub offset: usize,
    /// Bytes of the key.
    pub len: usize,
    /// Letters are compared without their case.
    pub fold: bool,
}

impl Default for KeyRule {
    fn default() -> KeyRule {
        KeyRule { record: RECORD, offset: 0, len: KEY, fold: false }
    }
}

impl KeyRule {
    fn key<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        &record[self.offset..self.offset + self.len]
    }

    /// How the key of `a` lies to that of `b`.
    pub fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        let (a, b) = (self.key(a), self.key(b));
        if !self.fold {
            return a.cmp(b);
        }
        let lower = |bytes: &[u8]| bytes.to_ascii_lowercase();
        lower(a).cmp(&lower(b))
    }
}

/// What is known of a run of records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Number of the first record that is less than the one before it.
    pub first_unordered: u128,
    /// Records that are less than the one before them.
    pub unordered: u128,
    /// Records.
    pub records: u128,
    /// Records whose key equals that of the one before them.
    pub duplicates: u128,
    /// Sum of the CRC-32 of every record.
    pub checksum: u128,
    /// The first record.
    #[serde(skip)]
    pub first: Vec<u8>,
    /// The last record.
    #[serde(skip)]
    pub last: Vec<u8>,
}

/// What a check says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// All records are in order.
    Ordered,
    /// Some are not.
    Unordered {
        /// The first of them.
        first: u128,
        /// How many.
        count: u128,
    },
    /// There are no records.
    Empty,
}

impl Summary {
    /// Looks through a run of records.
    pub fn of(records: &[u8], rule: &KeyRule) -> Summary {
        let mut summary = Summary::default();
        let mut previous: Option<&[u8]> = None;
        for (number, record) in (0u128..).zip(records.chunks_exact(rule.record)) {
            summary.checksum += u128::from(crc32fast::hash(record));
            if let Some(previous) = previous {
                summary.pair(rule.compare(previous, record), number);
            }
            previous = Some(record);
        }
        summary.records = (records.len() / rule.record) as u128;
        summary.first = records.get(..rule.record).unwrap_or_default().to_vec();
        summary.last = previous.unwrap_or_default().to_vec();
        summary
    }

    /// Counts a neighbour that compares like `order`; `number` is its record.
    fn pair(&mut self, order: std::cmp::Ordering, number: u128) {
        match order {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => self.duplicates += 1,
            std::cmp::Ordering::Greater => {
                if self.unordered == 0 {
                    self.first_unordered = number;
                }
                self.unordered += 1;
            }
        }
    }

    /// Adds the run that follows this one.
    pub fn join(&mut self, next: &Summary, rule: &KeyRule) {
        if next.records == 0 {
            return;
        }
        if self.records == 0 {
            *self = next.clone();
            return;
        }
        self.pair(rule.compare(&self.last, &next.first), self.records);
        if self.unordered == 0 && next.unordered > 0 {
            self.first_unordered = self.records + next.first_unordered;
        }
        self.unordered += next.unordered;
        self.records += next.records;
        self.duplicates += next.duplicates;
        self.checksum += next.checksum;
        self.last.clone_from(&next.last);
    }

    /// What the check says.
    pub fn verdict(&self) -> Checked {
        if self.records == 0 {
            Checked::Empty
        } else if self.unordered > 0 {
            Checked::Unordered { first: self.first_unordered, count: self.unordered }
        } else {
            Checked::Ordered
        }
    }

    /// The form in files; only for records of the benchmark.
    pub fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let numbers = [self.first_unordered, self.unordered, self.records, self.duplicates, self.checksum];
        for (slot, number) in bytes.chunks_exact_mut(16).zip(numbers) {
            slot[..8].copy_from_slice(&((number >> 64) as u64).to_ne_bytes());
            slot[8..].copy_from_slice(&(number as u64).to_ne_bytes());
        }
        for (slot, record) in bytes[80..].chunks_exact_mut(RECORD).zip([&self.first, &self.last]) {
            let len = record.len().min(RECORD);
            slot[..len].copy_from_slice(&record[..len]);
        }
        bytes
    }

    /// Reads the form in files.
    pub fn from_bytes(bytes: &[u8; BYTES]) -> Summary {
        let number = |n: usize| {
            let half = |at: usize| {
                u64::from_ne_bytes(*bytes[at..].first_chunk().expect("a summary has five numbers"))
            };
            u128::from(half(16 * n)) << 64 | u128::from(half(16 * n + 8))
        };
        Summary {
            first_unordered: number(0),
            unordered: number(1),
            records: number(2),
            duplicates: number(3),
            checksum: number(4),
            first: bytes[80..180].to_vec(),
            last: bytes[180..280].to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(keys: &[u8]) -> Vec<u8> {
        keys.iter().flat_map(|&key| [key; RECORD]).collect()
    }

    #[test]
    fn joined_runs_say_what_the_whole_says() {
        let rule = KeyRule::default();
        let keys = *b"abbcaadz";
        let whole = Summary::of(&run(&keys), &rule);
        assert_eq!((whole.first_unordered, whole.unordered, whole.duplicates), (4, 1, 2));
        for cut in 0..=keys.len() {
            let mut left = Summary::of(&run(&keys[..cut]), &rule);
            left.join(&Summary::of(&run(&keys[cut..]), &rule), &rule);
            assert_eq!(left, whole, "cut at {cut}");
        }
    }

    #[test]
    fn the_form_in_files_comes_back() {
        let mut summary = Summary::of(&run(b"ab"), &KeyRule::default());
        summary.checksum |= 7 << 64;
        let bytes = summary.to_bytes();
        assert_eq!(bytes[64..72], 7u64.to_ne_bytes());
        assert_eq!(Summary::from_bytes(&bytes), summary);
    }

    #[test]
    fn case_can_be_ignored() {
        let fold = KeyRule { fold: true, ..KeyRule::default() };
        assert_eq!(Summary::of(&run(b"aBc"), &fold).verdict(), Checked::Ordered);
        let plain = Summary::of(&run(b"aBc"), &KeyRule::default());
        assert_eq!(plain.verdict(), Checked::Unordered { first: 1, count: 1 });
        assert_eq!(Summary::default().verdict(), Checked::Empty);
    }
}
