//! Reductions against the plain expression in Rust.

use super::*;

fn named(name: &str) -> Datatype {
    Datatype::predefined().iter().find(|kind| kind.name() == Some(name)).unwrap().clone()
}

fn bytes<const N: usize>(numbers: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
    numbers.into_iter().flatten().collect()
}

fn ints(op: Op, from: &[i32], into: &[i32]) -> Vec<i32> {
    let mut result = bytes(into.iter().map(|number| number.to_ne_bytes()));
    combine(op, &named("MPI_INT"), &mut result, &bytes(from.iter().map(|number| number.to_ne_bytes())))
        .unwrap();
    result.as_chunks().0.iter().map(|number| i32::from_ne_bytes(*number)).collect()
}

#[test]
fn integers_are_combined_one_by_one() {
    let (from, into) = ([1, -5, 7, i32::MAX], [3, 4, 0, 1]);
    assert_eq!(ints(Op::Sum, &from, &into), [4, -1, 7, i32::MIN]);
    assert_eq!(ints(Op::Max, &from, &into), [3, 4, 7, i32::MAX]);
    assert_eq!(ints(Op::Min, &from, &into), [1, -5, 0, 1]);
    assert_eq!(ints(Op::Prod, &from, &into), [3, -20, 0, i32::MAX]);
    assert_eq!(ints(Op::Land, &from, &into), [1, 1, 0, 1]);
    assert_eq!(ints(Op::Lxor, &from, &into), [0, 0, 1, 0]);
    assert_eq!(ints(Op::Bor, &from, &into), [3, -1, 7, i32::MAX]);
    assert_eq!(ints(Op::Replace, &from, &into), from);
    assert_eq!(ints(Op::NoOp, &from, &into), into);
}

#[test]
fn complex_numbers_are_multiplied() {
    let mut into = bytes([3.0f64, 4.0].map(f64::to_ne_bytes));
    combine(Op::Prod, &named("MPI_C_DOUBLE_COMPLEX"), &mut into, &bytes([1.0f64, 2.0].map(f64::to_ne_bytes)))
        .unwrap();
    assert_eq!(into, bytes([-5.0f64, 10.0].map(f64::to_ne_bytes)));
}

#[test]
fn of_equal_values_the_lower_index_wins() {
    let pair = |value: i16, index: i32| {
        let mut bytes = [0u8; 8];
        bytes[..2].copy_from_slice(&value.to_ne_bytes());
        bytes[4..].copy_from_slice(&index.to_ne_bytes());
        bytes
    };
    let kind = named("MPI_SHORT_INT");
    let mut into = bytes([pair(5, 9), pair(5, 9), pair(5, 9), pair(5, 2)]);
    let from = bytes([pair(4, 1), pair(6, 1), pair(5, 1), pair(5, 7)]);
    combine(Op::Minloc, &kind, &mut into, &from).unwrap();
    assert_eq!(into, bytes([pair(4, 1), pair(5, 9), pair(5, 1), pair(5, 2)]));
    combine(Op::Maxloc, &kind, &mut into, &from).unwrap();
    assert_eq!(into, bytes([pair(4, 1), pair(6, 1), pair(5, 1), pair(5, 2)]));
}

/// A small whole number as the x87 unit keeps it.
fn long_double(number: i64) -> [u8; 16] {
    let mut bytes = [0; 16];
    let size = number.unsigned_abs();
    if size > 0 {
        let shift = size.leading_zeros();
        bytes[..8].copy_from_slice(&(size << shift).to_le_bytes());
        let exponent = 16383 + 63 - shift as u16;
        bytes[8..10].copy_from_slice(&(exponent | u16::from(number < 0) << 15).to_le_bytes());
    }
    bytes
}

#[test]
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn long_doubles_are_combined_by_the_unit() {
    let kind = named("MPI_LONG_DOUBLE");
    let of = |op, one: i64, two: i64| {
        let mut into = long_double(two).to_vec();
        combine(op, &kind, &mut into, &long_double(one)).unwrap();
        into
    };
    assert_eq!(of(Op::Sum, 1 << 40, 3), long_double((1 << 40) + 3));
    assert_eq!(of(Op::Prod, -7, 6), long_double(-42));
    assert_eq!(of(Op::Max, -7, 6), long_double(6));
    assert_eq!(of(Op::Min, -7, -9), long_double(-9));
    assert_eq!(of(Op::Min, -7, -6), long_double(-7));
}

#[test]
fn operations_that_a_type_does_not_allow_are_refused() {
    for (op, name, good) in [
        (Op::Sum, "MPI_CHAR", false),
        (Op::Sum, "MPI_BYTE", false),
        (Op::Bxor, "MPI_BYTE", true),
        (Op::Band, "MPI_DOUBLE", false),
        (Op::Max, "MPI_C_FLOAT_COMPLEX", false),
        (Op::Sum, "MPI_C_FLOAT_COMPLEX", true),
        (Op::Land, "MPI_LOGICAL", true),
        (Op::Minloc, "MPI_INT", false),
        (Op::Minloc, "MPI_2REAL", true),
        (Op::Sum, "MPI_2INT", false),
        (Op::Sum, "MPI_AINT", true),
    ] {
        assert_eq!(check(op, &named(name)).is_ok(), good, "{op:?} {name}");
    }
    let derived = crate::datatype::build::contiguous(2, &named("MPI_INT")).unwrap();
    assert_eq!(check(Op::Sum, &derived).unwrap_err().class(), Class::Op);
}

/// Whatever is allowed runs: no hole in the tables.
#[test]
fn every_allowed_operation_computes() {
    for kind in Datatype::predefined() {
        for op in Op::ALL {
            if check(op, kind).is_ok() {
                let mut into = vec![1; 5 * kind.extent() as usize];
                combine(op, kind, &mut into, &vec![0; 5 * kind.extent() as usize]).unwrap();
            }
        }
    }
}
