//! Loops over numbers of 1 to 8 bytes. The elements may lie at any address, so they are read and written as bytes; the
//! compiler makes vector instructions of that.

use super::Op;
use crate::datatype::{Basic, Kind};

/// Applies `f` to each pair of elements: the left operand is `from`'s.
macro_rules! each {
    ($type:ty, $into:expr, $from:expr, $f:expr) => {{
        const SIZE: usize = size_of::<$type>();
        let f = $f;
        for (into, from) in $into.as_chunks_mut::<SIZE>().0.iter_mut().zip($from.as_chunks::<SIZE>().0) {
            *into = f(<$type>::from_ne_bytes(*from), <$type>::from_ne_bytes(*into)).to_ne_bytes();
        }
    }};
}

/// Loops for one integer type. Sums and products wrap, as they do on every machine that MPI runs on.
macro_rules! integers {
    ($type:ty, $op:expr, $into:expr, $from:expr) => {
        match $op {
            Op::Max => each!($type, $into, $from, |a: $type, b: $type| a.max(b)),
            Op::Min => each!($type, $into, $from, |a: $type, b: $type| a.min(b)),
            Op::Sum => each!($type, $into, $from, |a: $type, b: $type| a.wrapping_add(b)),
            Op::Prod => each!($type, $into, $from, |a: $type, b: $type| a.wrapping_mul(b)),
            Op::Land => each!($type, $into, $from, |a: $type, b: $type| <$type>::from(a != 0 && b != 0)),
            Op::Lor => each!($type, $into, $from, |a: $type, b: $type| <$type>::from(a != 0 || b != 0)),
            Op::Lxor => each!($type, $into, $from, |a: $type, b: $type| <$type>::from((a != 0) != (b != 0))),
            Op::Band => each!($type, $into, $from, |a: $type, b: $type| a & b),
            Op::Bor => each!($type, $into, $from, |a: $type, b: $type| a | b),
            Op::Bxor => each!($type, $into, $from, |a: $type, b: $type| a ^ b),
            Op::Minloc | Op::Maxloc | Op::Replace | Op::NoOp => {}
        }
    };
}

macro_rules! floats {
    ($type:ty, $op:expr, $into:expr, $from:expr) => {
        match $op {
            Op::Max => each!($type, $into, $from, |a: $type, b: $type| if a > b { a } else { b }),
            Op::Min => each!($type, $into, $from, |a: $type, b: $type| if a < b { a } else { b }),
            Op::Sum => each!($type, $into, $from, |a: $type, b: $type| a + b),
            Op::Prod => each!($type, $into, $from, |a: $type, b: $type| a * b),
            _ => {}
        }
    };
}

macro_rules! complexes {
    ($type:ty, $op:expr, $into:expr, $from:expr) => {
        match $op {
            Op::Sum => floats!($type, Op::Sum, $into, $from),
            Op::Prod => complex_product!($type, $into, $from),
            _ => {}
        }
    };
}

macro_rules! complex_product {
    ($type:ty, $into:expr, $from:expr) => {{
        const SIZE: usize = size_of::<$type>();
        let pairs = $into.as_chunks_mut::<{ 2 * SIZE }>().0.iter_mut();
        for (into, from) in pairs.zip($from.as_chunks::<{ 2 * SIZE }>().0) {
            let half = |bytes: &[u8; 2 * SIZE], index: usize| {
                <$type>::from_ne_bytes(bytes.as_chunks::<SIZE>().0[index])
            };
            let (a, b) = (half(from, 0), half(from, 1));
            let (c, d) = (half(into, 0), half(into, 1));
            into[..SIZE].copy_from_slice(&(a * c - b * d).to_ne_bytes());
            into[SIZE..].copy_from_slice(&(a * d + b * c).to_ne_bytes());
        }
    }};
}

/// The loop for a basic type; the operation is one that it allows.
pub(super) fn combine(op: Op, basic: &Basic, into: &mut [u8], from: &[u8]) {
    match (basic.kind, basic.size) {
        (Kind::Signed, 1) => integers!(i8, op, into, from),
        (Kind::Signed, 2) => integers!(i16, op, into, from),
        (Kind::Signed, 4) => integers!(i32, op, into, from),
        (Kind::Signed, 8) => integers!(i64, op, into, from),
        (Kind::Unsigned | Kind::Byte | Kind::Bool, 1) => integers!(u8, op, into, from),
        (Kind::Unsigned, 2) => integers!(u16, op, into, from),
        (Kind::Unsigned | Kind::Logical, 4) => integers!(u32, op, into, from),
        (Kind::Unsigned, 8) => integers!(u64, op, into, from),
        (Kind::Float, 4) => floats!(f32, op, into, from),
        (Kind::Float, 8) => floats!(f64, op, into, from),
        (Kind::Complex, 8) => complexes!(f32, op, into, from),
        (Kind::Complex, 16) => complexes!(f64, op, into, from),
        (kind, size) => unreachable!("{kind:?} of {size} bytes is not in the table of basic types"),
    }
}
