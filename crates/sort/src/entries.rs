//! Pairs of prefix and place, gathered while records are read and divided into buckets before they are sorted.
//!
//! A pair is one number: 80 bits of the key above 48 bits of place. A place is the number of a buffer's slot and an offset in
//! it, and grows with the input, so that pairs with equal prefixes sort into the order of the input.

use viaduct_os::arena::Numbers;
use viaduct_river::{Buffer, Framing, RecordFormat, records};

use crate::Error;
use crate::order::Order;

/// Bits of a place.
pub(crate) const PLACE_BITS: u32 = 48;

const PLACE: u128 = (1 << PLACE_BITS) - 1;

/// Pairs of a block: 2 MiB, a huge page.
const BLOCK: usize = 1 << 17;

/// What one worker has read.
pub(crate) struct Gathered {
    pub(crate) buffers: Vec<Buffer>,
    blocks: Vec<Numbers>,
    filled: usize,
    pub(crate) count: usize,
    pub(crate) bytes: u64,
    pub(crate) sum: u128,
    least: u128,
    most: u128,
}

impl Gathered {
    pub(crate) fn new() -> Gathered {
        Gathered {
            buffers: Vec::new(),
            blocks: Vec::new(),
            filled: BLOCK,
            count: 0,
            bytes: 0,
            sum: 0,
            least: u128::MAX,
            most: 0,
        }
    }

    /// Takes the records of a buffer in. `shift` is the number of bits of an offset.
    pub(crate) fn add<O: Order>(
        &mut self,
        buffer: Buffer,
        order: &O,
        format: &dyn RecordFormat,
        shift: u32,
        sum: bool,
    ) -> Result<(), Error> {
        let data = buffer.data();
        let mut place = buffer.sequence() << shift;
        if (buffer.sequence() + (data.len() as u64 >> shift)) >> (PLACE_BITS - shift) != 0 {
            return Err(Error::Usage("more input than a place can name; hint: sort it in two passes".into()));
        }
        match format.framing() {
            Framing::Fixed(size) => {
                for record in data.chunks_exact(size) {
                    self.push(order.prefix(record, 0), place)?;
                    if sum {
                        self.sum += u128::from(crc32fast::hash(record));
                    }
                    place += size as u64;
                }
            }
            _ => {
                for record in records(format, data) {
                    self.push(order.prefix(record, 0), place)?;
                    if sum {
                        self.sum += u128::from(crc32fast::hash(record));
                    }
                    place += record.len() as u64;
                }
            }
        }
        self.bytes += data.len() as u64;
        if !data.is_empty() {
            self.buffers.push(buffer);
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, prefix: u128, place: u64) -> Result<(), Error> {
        if self.filled == BLOCK {
            self.blocks.push(Numbers::new(BLOCK).map_err(memory)?);
            self.filled = 0;
        }
        self.least = self.least.min(prefix);
        self.most = self.most.max(prefix);
        if let Some(block) = self.blocks.last_mut() {
            block[self.filled] = prefix << PLACE_BITS | u128::from(place);
        }
        self.filled += 1;
        self.count += 1;
        Ok(())
    }

    /// The least and the greatest prefix, if there are any.
    pub(crate) fn range(&self) -> Option<(u128, u128)> {
        (self.count > 0).then_some((self.least, self.most))
    }

    /// Divides the pairs into buckets; the unsorted ones are freed. The records stay.
    pub(crate) fn divide(&mut self, buckets: &Buckets) -> Result<Divided, Error> {
        let blocks = std::mem::take(&mut self.blocks);
        let last = blocks.len().wrapping_sub(1);
        let filled = self.filled;
        let part = |n: usize, block: &Numbers| if n == last { filled } else { block.len() };
        let mut ends = vec![0usize; buckets.count];
        for (n, block) in blocks.iter().enumerate() {
            block[..part(n, block)].iter().for_each(|&pair| ends[buckets.of(pair)] += 1);
        }
        let mut start = 0;
        for end in &mut ends {
            (*end, start) = (start, start + *end);
        }
        let mut pairs = Numbers::new(self.count).map_err(memory)?;
        for (n, block) in blocks.iter().enumerate() {
            for &pair in &block[..part(n, block)] {
                let end = &mut ends[buckets.of(pair)];
                pairs[*end] = pair;
                *end += 1;
            }
        }
        self.filled = BLOCK;
        Ok(Divided { pairs, ends })
    }
}

/// Bits that the numbers of one source's buffers have, where there are several sources; the source stands above them.
pub(crate) const SOURCE_BITS: u32 = 20;

/// Makes the numbers of all buffers dense, in their order: a table is as long as its greatest number. The numbers of each source
/// are dense already.
pub(crate) fn renumber(gathered: &mut [Gathered], shift: u32) {
    let mut buffers: Vec<(u64, usize)> = Vec::new();
    for buffer in gathered.iter().flat_map(|part| &part.buffers) {
        buffers.push((buffer.sequence(), buffer.len().div_ceil(1 << shift).max(1)));
    }
    buffers.sort_unstable();
    // For each source the new number of each of its old ones.
    let mut numbers: Vec<Vec<u64>> = Vec::new();
    let mut next = 0;
    for (sequence, count) in buffers {
        let (source, old) = ((sequence >> SOURCE_BITS) as usize, (sequence & SEQUENCES) as usize);
        numbers.resize_with(numbers.len().max(source + 1), Vec::new);
        numbers[source].resize(old, 0);
        numbers[source].extend(next..next + count as u64);
        next += count as u64;
    }
    let new = |old: u64| numbers[(old >> SOURCE_BITS) as usize][(old & SEQUENCES) as usize];
    for part in gathered {
        let (last, filled) = (part.blocks.len().wrapping_sub(1), part.filled);
        for (n, block) in part.blocks.iter_mut().enumerate() {
            let end = if n == last { filled } else { block.len() };
            for pair in &mut block[..end] {
                let place = (*pair & PLACE) as u64;
                let moved = new(place >> shift) << shift | place & ((1 << shift) - 1);
                *pair = *pair & !PLACE | u128::from(moved);
            }
        }
        for buffer in &mut part.buffers {
            buffer.set_sequence(new(buffer.sequence()));
        }
    }
}

const SEQUENCES: u64 = (1 << SOURCE_BITS) - 1;

fn memory(error: viaduct_os::error::OsError) -> Error {
    Error::River(viaduct_river::Error::Memory(error.to_string()))
}

/// How prefixes are divided: evenly between the least and the greatest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buckets {
    least: u128,
    shift: u32,
    pub(crate) count: usize,
}

impl Buckets {
    /// Buckets for `records` whose prefixes lie in `range`.
    pub(crate) fn new(records: usize, range: (u128, u128)) -> Buckets {
        // About 2,000 pairs each, which the nearest caches hold.
        let wanted = (records / 2048).clamp(1, 1 << 14).next_power_of_two();
        let span = range.1 - range.0;
        let bits = u128::BITS - span.leading_zeros();
        let shift = bits.saturating_sub(wanted.trailing_zeros());
        let count = (span >> shift) as usize + 1;
        Buckets { least: range.0, shift, count }
    }

    #[inline]
    fn of(&self, pair: u128) -> usize {
        (((pair >> PLACE_BITS) - self.least) >> self.shift) as usize
    }
}

/// Pairs in buckets, each in the order of the input.
pub(crate) struct Divided {
    pairs: Numbers,
    ends: Vec<usize>,
}

impl Divided {
    pub(crate) fn bucket(&self, number: usize) -> &[u128] {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.pairs[start..self.ends[number]]
    }
}

/// Finds records by place.
pub(crate) struct Table<'a> {
    slots: Vec<&'a [u8]>,
    shift: u32,
    mask: u64,
}

impl<'a> Table<'a> {
    /// A table of everything that was gathered.
    pub(crate) fn new(gathered: &'a [Gathered], shift: u32) -> Table<'a> {
        let mut slots: Vec<&[u8]> = Vec::new();
        for buffer in gathered.iter().flat_map(|part| &part.buffers) {
            let first = buffer.sequence() as usize;
            // A record that is longer than a slot reaches into the next numbers, which no other buffer has.
            for (n, at) in (0..buffer.len()).step_by(1 << shift).enumerate() {
                if slots.len() <= first + n {
                    slots.resize(first + n + 1, &[]);
                }
                if n == 0 || slots[first + n].is_empty() {
                    slots[first + n] = &buffer.data()[at..];
                }
            }
        }
        Table { slots, shift, mask: (1 << shift) - 1 }
    }

    /// The bytes from the place of a pair on: its record and what lies behind it.
    #[inline]
    pub(crate) fn at(&self, pair: u128) -> &'a [u8] {
        let place = (pair & PLACE) as u64;
        &self.slots[(place >> self.shift) as usize][(place & self.mask) as usize..]
    }
}
