//! How records are ordered: a short prefix that decides most comparisons, and a comparison that decides all.
//!
//! The sort works on pairs of a prefix and a place (AlphaSort's idea): 80 bits of the normalised key travel with the record's
//! place in memory, and records themselves move once. A prefix is weakly monotone: if it is less, the record comes first;
//! if it is equal, the next piece of the key is looked at, and in the end [`Order::compare`] decides.

use std::cmp::Ordering;

use viaduct_river::KeyRange;

use crate::text::TextOrder;

/// Bits of a prefix.
pub(crate) const PREFIX_BITS: u32 = 80;

/// Bytes of a prefix.
pub(crate) const PIECE: usize = 10;

/// An order of records.
pub(crate) trait Order: Send + Sync {
    /// Piece `depth` of the normalised key, in the lowest 80 bits.
    fn prefix(&self, record: &[u8], depth: usize) -> u128;

    /// Pieces after which only [`Order::compare`] helps.
    fn depths(&self) -> usize;

    /// Which of two records comes first. `Equal` means that their order is that of the input, or does not matter.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;

    /// Whether two records have equal keys, so that only the first is kept where keys are to be unique.
    fn same_key(&self, a: &[u8], b: &[u8]) -> bool;
}

/// The order of records of one size: fields one after the other, then the whole record unless the sort is stable.
#[derive(Clone, Debug)]
pub(crate) struct FieldsOrder {
    fields: Vec<KeyRange>,
    key_len: usize,
    /// One ascending field of ten bytes: the benchmark's own.
    plain: Option<usize>,
    stable: bool,
}

impl FieldsOrder {
    pub(crate) fn new(fields: Vec<KeyRange>, stable: bool) -> FieldsOrder {
        let key_len = fields.iter().map(|field| field.len).sum();
        let plain = match fields[..] {
            [KeyRange { offset, len, descending: false }] if len >= PIECE => Some(offset),
            _ => None,
        };
        FieldsOrder { fields, key_len, plain, stable }
    }

    /// The bytes of the key from `from` on, up to ten, zeros behind them.
    fn piece(&self, record: &[u8], from: usize) -> [u8; PIECE] {
        let mut piece = [0; PIECE];
        let (mut filled, mut skip) = (0, from);
        for field in &self.fields {
            if skip >= field.len {
                skip -= field.len;
                continue;
            }
            let len = (field.len - skip).min(PIECE - filled);
            let bytes = &record[field.offset + skip..][..len];
            for (slot, &byte) in piece[filled..].iter_mut().zip(bytes) {
                *slot = if field.descending { !byte } else { byte };
            }
            (filled, skip) = (filled + len, 0);
            if filled == PIECE {
                return piece;
            }
        }
        if !self.stable && skip < record.len() {
            let len = (record.len() - skip).min(PIECE - filled);
            piece[filled..filled + len].copy_from_slice(&record[skip..skip + len]);
        }
        piece
    }
}

impl Order for FieldsOrder {
    #[inline]
    fn prefix(&self, record: &[u8], depth: usize) -> u128 {
        if depth == 0
            && let Some(offset) = self.plain
            && let Some(key) = record[offset..].first_chunk::<PIECE>()
        {
            return ten(key);
        }
        ten(&self.piece(record, depth * PIECE))
    }

    fn depths(&self) -> usize {
        // Long keys are looked at as far as eight pieces; comparing is as good from there on.
        self.key_len.div_ceil(PIECE).min(8)
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        for field in &self.fields {
            let order = field.compare(a, b);
            if order != Ordering::Equal {
                return order;
            }
        }
        if self.stable { Ordering::Equal } else { a.cmp(b) }
    }

    fn same_key(&self, a: &[u8], b: &[u8]) -> bool {
        self.fields.iter().all(|field| field.compare(a, b).is_eq())
    }
}

/// One of the orders, chosen once per sort.
#[derive(Clone, Debug)]
pub(crate) enum AnyOrder {
    Fields(FieldsOrder),
    Text(TextOrder),
}

/// Ten bytes as a number.
#[inline]
pub(crate) fn ten(bytes: &[u8; PIECE]) -> u128 {
    let (high, low) = bytes.split_at(8);
    let high = u64::from_be_bytes(*high.first_chunk().expect("eight of ten bytes"));
    let low = u16::from_be_bytes([low[0], low[1]]);
    u128::from(high) << 16 | u128::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_agree_with_comparisons() {
        let field = |offset, len, descending| KeyRange { offset, len, descending };
        let orders = [
            FieldsOrder::new(vec![field(0, 10, false)], false),
            FieldsOrder::new(vec![field(3, 4, true), field(0, 2, false)], false),
            FieldsOrder::new(vec![field(1, 13, false)], true),
        ];
        let mut state = 7u64;
        let mut record = || -> Vec<u8> {
            let mut next = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                (state >> 62) as u8
            };
            (0..16).map(|_| next()).collect()
        };
        for _ in 0..2000 {
            let (a, b) = (record(), record());
            for order in &orders {
                let pieces = |r: &[u8]| (0..4).map(|depth| order.prefix(r, depth)).collect::<Vec<_>>();
                let (by_piece, by_compare) = (pieces(&a).cmp(&pieces(&b)), order.compare(&a, &b));
                assert!(by_piece == by_compare || by_piece == Ordering::Equal, "{a:?} {b:?} {order:?}");
                assert_eq!(order.compare(&b, &a), by_compare.reverse());
            }
        }
    }
}
