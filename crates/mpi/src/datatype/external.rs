//! The representation external32 of MPI 3.1, 13.5.2: big-endian, with sizes that all machines agree about.
//!
//! `long` has 4 bytes there, `wchar_t` 2, and `long double` is IEEE binary128. A long that needs more loses its upper half, as the
//! standard has it.

use super::Datatype;
use super::basic::{Basic, Kind};

/// The handles of types that are shorter than here.
const LONG: u32 = 0x4c00_0807;
const UNSIGNED_LONG: u32 = 0x4c00_0808;
const WCHAR: u32 = 0x4c00_040e;

/// The bytes of one element of a type in external32.
pub fn size(kind: &Datatype) -> usize {
    let mut bytes = 0;
    kind.signature().each(&mut |basic| bytes += numbers(&basic) * width(&basic));
    bytes
}

/// Turns packed elements of a type into external32.
pub fn encode(kind: &Datatype, mut packed: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(packed.len());
    while !packed.is_empty() {
        let before = packed.len();
        kind.signature().each(&mut |basic| {
            let (element, rest) = packed.split_at(basic.size);
            element.chunks_exact(basic.number().max(1)).for_each(|number| write(&basic, number, &mut out));
            packed = rest;
        });
        assert!(packed.len() < before, "a type with bytes has elements");
    }
    out
}

/// Turns external32 into packed elements of a type.
pub fn decode(kind: &Datatype, mut external: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(external.len());
    while !external.is_empty() {
        let before = external.len();
        kind.signature().each(&mut |basic| {
            let (element, rest) = external.split_at(numbers(&basic) * width(&basic));
            element.chunks_exact(width(&basic).max(1)).for_each(|number| read(&basic, number, &mut out));
            external = rest;
        });
        assert!(external.len() < before, "a type with bytes has elements");
    }
    out
}

/// How many numbers a basic element has: a complex one has two.
fn numbers(basic: &Basic) -> usize {
    basic.size.checked_div(basic.number()).unwrap_or(0)
}

/// The bytes of one number.
fn width(basic: &Basic) -> usize {
    match basic.handle {
        LONG | UNSIGNED_LONG => 4,
        WCHAR => 2,
        _ => basic.number(),
    }
}

fn is_extended(basic: &Basic) -> bool {
    matches!(basic.kind, Kind::Extended | Kind::ExtendedComplex)
}

fn write(basic: &Basic, number: &[u8], out: &mut Vec<u8>) {
    if is_extended(basic) {
        out.extend_from_slice(&quad(number).to_be_bytes());
    } else {
        out.extend(number[..width(basic)].iter().rev());
    }
}

fn read(basic: &Basic, number: &[u8], out: &mut Vec<u8>) {
    if is_extended(basic) {
        out.extend_from_slice(&extended(u128::from_be_bytes(number.try_into().expect("16 bytes"))));
        return;
    }
    out.extend(number.iter().rev());
    let negative = basic.kind == Kind::Signed && number[0] >= 0x80;
    out.extend(std::iter::repeat_n(if negative { 0xff } else { 0 }, basic.number() - number.len()));
}

/// Bits of the fraction that binary128 has and x87 has not.
const FINER: u32 = 112 - 63;

/// An x87 number as binary128, which has all of its values.
fn quad(number: &[u8]) -> u128 {
    let mantissa = u64::from_le_bytes(number[..8].try_into().expect("16 bytes"));
    let top = u16::from_le_bytes([number[8], number[9]]);
    let (sign, exponent) = (top >> 15, top & 0x7fff);
    // The one before the point is written down in x87 alone; with the least exponent it counts for one more.
    let exponent = if exponent == 0 { (mantissa >> 63) as u16 } else { exponent };
    u128::from(sign) << 127 | u128::from(exponent) << 112 | u128::from(mantissa << 1 >> 1) << FINER
}

/// A binary128 number as x87, rounded to the nearest, of two to the even one.
fn extended(quad: u128) -> [u8; 16] {
    let magnitude = quad & (u128::MAX >> 1);
    let infinite = 0x7fff_u128 << 112;
    let mut kept = magnitude >> FINER;
    if magnitude > infinite {
        // A quiet one, which stays one if its lower bits are lost.
        kept |= 1 << 62;
    } else {
        let (lost, half) = (magnitude & ((1 << FINER) - 1), 1 << (FINER - 1));
        kept += u128::from(lost > half || lost == half && kept & 1 == 1);
    }
    let exponent = (kept >> 63) as u16;
    let mantissa = u64::from(exponent > 0) << 63 | (kept as u64) << 1 >> 1;
    let mut out = [0; 16];
    out[..8].copy_from_slice(&mantissa.to_le_bytes());
    out[8..10].copy_from_slice(&(exponent | ((quad >> 127) as u16) << 15).to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::super::{basic, build};
    use super::*;

    fn kind(name: &str) -> Datatype {
        let found = basic::BASICS.iter().find(|basic| basic.name == name);
        Datatype::of_basic(*found.expect(name))
    }

    fn there_and_back(name: &str, packed: &[u8], external: &[u8]) {
        assert_eq!(size(&kind(name)), external.len(), "{name}");
        assert_eq!(encode(&kind(name), packed), external, "{name}");
        assert_eq!(decode(&kind(name), external), packed, "{name}");
    }

    #[test]
    fn sizes_are_those_of_the_standard() {
        for basic in basic::BASICS {
            let wanted = match basic.name {
                "MPI_LONG" | "MPI_UNSIGNED_LONG" => 4,
                "MPI_WCHAR" => 2,
                _ => basic.size,
            };
            assert_eq!(size(&Datatype::of_basic(*basic)), wanted, "{}", basic.name);
        }
    }

    #[test]
    fn long_integers_are_shortened_and_keep_their_sign() {
        there_and_back("MPI_LONG", &(-5i64).to_le_bytes(), &(-5i32).to_be_bytes());
        there_and_back("MPI_UNSIGNED_LONG", &0xdead_beef_u64.to_le_bytes(), &0xdead_beef_u32.to_be_bytes());
        there_and_back("MPI_LONG_LONG_INT", &(-5i64).to_le_bytes(), &(-5i64).to_be_bytes());
        there_and_back("MPI_WCHAR", &0xfffe_u32.to_le_bytes(), &[0xff, 0xfe]);
        there_and_back("MPI_SHORT", &[1, 2], &[2, 1]);
    }

    #[test]
    fn the_numbers_of_a_complex_one_are_turned_one_by_one() {
        let numbers = [1.5f64.to_le_bytes(), (-2.0f64).to_le_bytes()].concat();
        let turned = [1.5f64.to_be_bytes(), (-2.0f64).to_be_bytes()].concat();
        there_and_back("MPI_C_DOUBLE_COMPLEX", &numbers, &turned);
    }

    #[test]
    fn several_elements_of_a_structure_keep_their_order() {
        let parts = [(1, 0, kind("MPI_LONG")), (2, 8, kind("MPI_SHORT"))];
        let (lengths, places): (Vec<i32>, Vec<i64>) = parts.iter().map(|(n, at, _)| (*n, *at)).unzip();
        let kinds: Vec<Datatype> = parts.iter().map(|(.., kind)| kind.clone()).collect();
        let both = build::structure(&lengths, &places, &kinds).unwrap();
        let mut packed = Vec::new();
        for value in [-1i64, 7] {
            packed.extend(value.to_le_bytes());
            packed.extend([1, 0, 2, 0]);
        }
        let external = encode(&both, &packed);
        assert_eq!(external, [255, 255, 255, 255, 0, 1, 0, 2, 0, 0, 0, 7, 0, 1, 0, 2]);
        assert_eq!((size(&both), decode(&both, &external)), (8, packed));
    }

    /// An x87 number of its parts.
    fn x87(top: u16, mantissa: u64) -> Vec<u8> {
        let mut bytes = mantissa.to_le_bytes().to_vec();
        bytes.extend(top.to_le_bytes());
        bytes.extend([0; 6]);
        bytes
    }

    #[test]
    fn x87_numbers_are_binary128_outside() {
        for (top, mantissa, upper, lower) in [
            (0x3fff, 1 << 63, 0x3fff_0000_0000_0000_u64, 0), // 1
            (0xc000, 0xc000_0000_0000_0000, 0xc000_8000_0000_0000, 0u64), // -3
            (0x3fff, u64::MAX, 0x3fff_ffff_ffff_ffff, 0xfffe_0000_0000_0000),
            (0, 0, 0, 0),
            (0x8000, 0, 0x8000_0000_0000_0000, 0),
            (0x7fff, 1 << 63, 0x7fff_0000_0000_0000, 0), // infinite
            (0x7fff, 3 << 62, 0x7fff_8000_0000_0000, 0), // no number
            (0, 1, 0, 2 << 48),                          // the least
        ] {
            let external: u128 = u128::from(upper) << 64 | u128::from(lower);
            there_and_back("MPI_LONG_DOUBLE", &x87(top, mantissa), &external.to_be_bytes());
        }
        // One that x87 writes in two ways.
        assert_eq!(quad(&x87(0, 1 << 63)), 1 << 112);
    }

    #[test]
    fn finer_numbers_are_rounded() {
        let one = 0x3fff_u128 << 112;
        let half = 1u128 << (FINER - 1);
        let lowest = |number: u128| u64::from_le_bytes(extended(number)[..8].try_into().unwrap()) & 3;
        assert_eq!([half - 1, half, half + 1, 3 * half].map(|more| lowest(one + more)), [0, 0, 1, 2]);
        // Up to the next power of two, and to the infinite.
        assert_eq!(extended((0x4000 << 112) - 1)[..], x87(0x4000, 1 << 63));
        assert_eq!(extended((0x7fff << 112) - 1)[..], x87(0x7fff, 1 << 63));
        // What is no number stays none.
        assert_eq!(extended((0x7fff << 112) + 1)[..], x87(0x7fff, 3 << 62));
    }
}
