//! Bytes as hexadecimal digits and back.

use std::fmt;

pub(crate) fn write(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
}

/// None if a character is no digit or one is left over.
pub(crate) fn parse(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16);
    digits.chunks_exact(2).map(|pair| Some((value(pair[0])? << 4 | value(pair[1])?) as u8)).collect()
}
