//! `long double` of C on x86: the 80 bits of the x87 unit, which Rust has no type for.
//!
//! Sums and products are computed by the unit itself. On other machines `long double` is software: no operation there.

use std::cmp::Ordering;

use super::Op;
use crate::datatype::{Basic, Kind};

/// A number as it lies in memory: 10 bytes and padding.
type Number = [u8; 16];

/// The loop for `long double` and its complex form.
pub(super) fn combine(op: Op, basic: &Basic, into: &mut [u8], from: &[u8]) {
    if basic.kind == Kind::ExtendedComplex && op == Op::Prod {
        let pairs = into.as_chunks_mut::<32>().0.iter_mut();
        return pairs.zip(from.as_chunks::<32>().0).for_each(|(into, from)| complex_product(into, from));
    }
    for (into, from) in into.as_chunks_mut::<16>().0.iter_mut().zip(from.as_chunks::<16>().0) {
        *into = match op {
            Op::Sum => add(from, into),
            Op::Prod => multiply(from, into),
            Op::Max if compare(from, into) == Some(Ordering::Greater) => *from,
            Op::Min if compare(from, into) == Some(Ordering::Less) => *from,
            _ => *into,
        };
    }
}

fn complex_product(into: &mut [u8; 32], from: &[u8; 32]) {
    let halves = |bytes: &[u8; 32]| {
        let both = bytes.as_chunks::<16>().0;
        (both[0], both[1])
    };
    let ((a, b), (c, d)) = (halves(from), halves(into));
    let real = add(&multiply(&a, &c), &negate(multiply(&b, &d)));
    let imaginary = add(&multiply(&a, &d), &multiply(&b, &c));
    into[..16].copy_from_slice(&real);
    into[16..].copy_from_slice(&imaginary);
}

fn negate(mut number: Number) -> Number {
    number[9] ^= 0x80;
    number
}

fn add(one: &Number, two: &Number) -> Number {
    super::raw::x87_add(one, two)
}

fn multiply(one: &Number, two: &Number) -> Number {
    super::raw::x87_multiply(one, two)
}

/// Compares two numbers. None: one of them is not a number.
pub(super) fn compare(one: &Number, two: &Number) -> Option<Ordering> {
    let key = |number: &Number| {
        let mantissa = u64::from_le_bytes(*number.first_chunk::<8>()?);
        let head = u16::from_le_bytes([number[8], number[9]]);
        let (negative, exponent) = (head & 0x8000 != 0, head & 0x7fff);
        let nan = exponent == 0x7fff && mantissa << 1 != 0;
        let size = i128::from(exponent) << 64 | i128::from(mantissa);
        (!nan).then_some(if negative { -size } else { size })
    };
    Some(key(one)?.cmp(&key(two)?))
}
