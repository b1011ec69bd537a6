//! MINLOC and MAXLOC: a value with an index. Of equal values the lower index wins.

use super::{Op, extended};
use crate::datatype::{Basic, Datatype, Kind, basic};

/// The value and the index of a pair type.
pub(super) fn halves(kind: &Datatype) -> Option<(Basic, Basic)> {
    let pair = basic::PAIRS.iter().find(|pair| Some(pair.handle) == kind.handle())?;
    Some((basic::find(pair.value)?, basic::find(pair.index)?))
}

/// The loop for a pair type.
pub(super) fn combine(op: Op, kind: &Datatype, into: &mut [u8], from: &[u8]) {
    let Some((value, index)) = halves(kind) else { return };
    let extent = kind.extent() as usize;
    let at = value.size.next_multiple_of(index.alignment());
    for (into, from) in into.chunks_exact_mut(extent).zip(from.chunks_exact(extent)) {
        if takes(op, &value, &index, at, from, into) {
            into[..value.size].copy_from_slice(&from[..value.size]);
            into[at..at + index.size].copy_from_slice(&from[at..at + index.size]);
        }
    }
}

/// Whether the pair of `from` replaces that of `into`.
fn takes(op: Op, value: &Basic, index: &Basic, at: usize, from: &[u8], into: &[u8]) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    match compare(value, from, into) {
        Some(Less) => op == Op::Minloc,
        Some(Greater) => op == Op::Maxloc,
        Some(Equal) => compare(index, &from[at..], &into[at..]) == Some(Less),
        None => false,
    }
}

/// Compares two numbers of a type that pairs are made of. None: one of them is not a number.
fn compare(basic: &Basic, one: &[u8], two: &[u8]) -> Option<std::cmp::Ordering> {
    macro_rules! numbers {
        ($type:ty) => {{
            let read = |bytes: &[u8]| bytes.first_chunk().map(|bytes| <$type>::from_ne_bytes(*bytes));
            read(one)?.partial_cmp(&read(two)?)
        }};
    }
    match (basic.kind, basic.size) {
        (Kind::Signed, 2) => numbers!(i16),
        (Kind::Signed, 4) => numbers!(i32),
        (Kind::Signed, 8) => numbers!(i64),
        (Kind::Float, 4) => numbers!(f32),
        (Kind::Float, 8) => numbers!(f64),
        (Kind::Extended, _) => extended::compare(one.first_chunk()?, two.first_chunk()?),
        _ => None,
    }
}
