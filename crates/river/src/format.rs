//! How records lie in a stream of bytes.

use std::cmp::Ordering;
use std::fmt;

use crate::error::Error;

/// How the records of a stream can be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// All have this many bytes.
    Fixed(usize),
    /// Each ends with this byte.
    Delimited(u8),
    /// The end of a record is known only from its beginning, so that a stream is read from the front.
    Chained,
}

/// A format of records. Implement it for formats of your own.
pub trait RecordFormat: Send + Sync + fmt::Debug {
    /// How records can be told apart.
    fn framing(&self) -> Framing;

    /// Length of the record at the start of `bytes`, with its delimiter; `None` if its end is not among them.
    fn record_len(&self, bytes: &[u8]) -> Option<usize>;

    /// Which of two records comes first: by their keys, or as a whole where the format has none.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }

    /// Records in `bytes`, which hold whole ones.
    fn count(&self, bytes: &[u8]) -> u64 {
        records(self, bytes).count() as u64
    }
}

/// The records in `bytes`, each with its delimiter. A piece of a record at the end is left out.
pub fn records<'a, F: RecordFormat + ?Sized>(
    format: &'a F,
    bytes: &'a [u8],
) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let len = if rest.is_empty() { None } else { format.record_len(rest) }?;
        let (record, behind) = rest.split_at(len);
        rest = behind;
        Some(record)
    })
}

/// Records of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed(pub usize);

impl RecordFormat for Fixed {
    fn framing(&self) -> Framing {
        Framing::Fixed(self.0)
    }

    fn record_len(&self, bytes: &[u8]) -> Option<usize> {
        (bytes.len() >= self.0).then_some(self.0)
    }

    fn count(&self, bytes: &[u8]) -> u64 {
        (bytes.len() / self.0) as u64
    }
}

/// Bytes of a record that are its key, or a part of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// First byte.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
    /// Greater values first.
    pub descending: bool,
}

impl KeyRange {
    /// Whether it lies in records of `size` bytes and has any.
    pub fn is_in(&self, size: usize) -> bool {
        self.len > 0 && self.offset.checked_add(self.len).is_some_and(|end| end <= size)
    }

    /// Which of two records comes first by this range.
    #[inline]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let range = self.offset..self.offset + self.len;
        let order = a[range.clone()].cmp(&b[range]);
        if self.descending { order.reverse() } else { order }
    }
}

/// Records of one size that have keys: ranges, the most important first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    size: usize,
    keys: Vec<KeyRange>,
}

impl Keyed {
    /// Records of `size` bytes with these keys.
    ///
    /// # Errors
    /// If a key does not lie in them.
    pub fn new(size: usize, keys: Vec<KeyRange>) -> Result<Keyed, Error> {
        match keys.iter().find(|key| !key.is_in(size)) {
            None => Ok(Keyed { size, keys }),
            Some(KeyRange { offset, len, .. }) => {
                Err(Error::Format(format!("the key {offset}:{len} does not lie in records of {size} bytes")))
            }
        }
    }

    /// The keys.
    pub fn keys(&self) -> &[KeyRange] {
        &self.keys
    }
}

impl RecordFormat for Keyed {
    fn framing(&self) -> Framing {
        Fixed(self.size).framing()
    }

    fn record_len(&self, bytes: &[u8]) -> Option<usize> {
        Fixed(self.size).record_len(bytes)
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let orders = self.keys.iter().map(|key| key.compare(a, b));
        orders.reduce(Ordering::then).unwrap_or(Ordering::Equal)
    }

    fn count(&self, bytes: &[u8]) -> u64 {
        Fixed(self.size).count(bytes)
    }
}

/// Records that end with one byte: lines with `\n`, names with `\0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delimited(pub u8);

impl RecordFormat for Delimited {
    fn framing(&self) -> Framing {
        Framing::Delimited(self.0)
    }

    fn record_len(&self, bytes: &[u8]) -> Option<usize> {
        memchr::memchr(self.0, bytes).map(|at| at + 1)
    }

    fn count(&self, bytes: &[u8]) -> u64 {
        memchr::memchr_iter(self.0, bytes).count() as u64
    }
}

/// Records that begin with their length, four bytes with the lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixed;

impl RecordFormat for Prefixed {
    fn framing(&self) -> Framing {
        Framing::Chained
    }

    fn record_len(&self, bytes: &[u8]) -> Option<usize> {
        let head = bytes.first_chunk::<4>()?;
        let len = 4 + u32::from_le_bytes(*head) as usize;
        (len <= bytes.len()).then_some(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(format: &dyn RecordFormat, bytes: &[u8]) -> Vec<Vec<u8>> {
        records(format, bytes).map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn every_format_finds_its_records_and_leaves_a_piece() {
        assert_eq!(split(&Fixed(3), b"abcdefgh"), [b"abc", b"def"]);
        assert_eq!(split(&Delimited(b'\n'), b"a\n\nbc\nd"), [&b"a\n"[..], b"\n", b"bc\n"]);
        assert_eq!(split(&Delimited(0), b"a\0"), [b"a\0"]);
        assert_eq!(split(&Prefixed, b"\x01\0\0\0x\0\0\0\0\x02\0\0\0y"), [&b"\x01\0\0\0x"[..], b"\0\0\0\0"]);
        let key = |offset, len, descending| KeyRange { offset, len, descending };
        let keyed = Keyed::new(3, vec![key(2, 1, true), key(0, 1, false)]).unwrap();
        assert_eq!(split(&keyed, b"abcdefgh"), [b"abc", b"def"]);
        assert!(keyed.compare(b"a.z", b"a.y").is_lt() && keyed.compare(b"a.z", b"b.z").is_lt());
        assert!(keyed.compare(b"a1z", b"a2z").is_eq() && Fixed(3).compare(b"a1z", b"a2z").is_lt());
        assert!(
            Keyed::new(3, vec![key(2, 2, false)]).is_err() && Keyed::new(3, vec![key(0, 0, false)]).is_err()
        );
        assert_eq!(Delimited(b'\n').count(b"a\nb\n"), 2);
        assert_eq!((Fixed(3).count(b"abcdef"), Prefixed.count(b"\0\0\0\0")), (2, 1));
    }
}
