//! The words of GNU sort for lines: `-k`, `-t` and what goes with them.

use std::num::IntErrorKind;

use anyhow::{Context, Result, bail};
use viaduct_sort::{Records, TextKey};

use crate::cli::sort::SortArgs;

/// Beyond the end of every line.
const FAR: usize = 1 << 60;

/// What the arguments say of lines.
pub(super) fn lines(args: &SortArgs) -> Result<Records> {
    let mark = if args.zero_terminated { 0 } else { b'\n' };
    let tab = args.field_separator.as_deref().map(separator).transpose()?;
    let mut keys = args.key.iter().map(|text| key(text, args)).collect::<Result<Vec<_>>>()?;
    if keys.is_empty() && (args.numeric_sort || args.ignore_leading_blanks) {
        let whole = TextKey::whole(args.numeric_sort, args.reverse);
        keys.push(TextKey { skip_start: args.ignore_leading_blanks, ..whole });
    }
    Ok(Records::Text { mark, keys, tab, reverse: args.reverse })
}

fn separator(text: &str) -> Result<u8> {
    match text.as_bytes() {
        [byte] => Ok(*byte),
        b"\\0" => Ok(0),
        b"\\t" => Ok(b'\t'),
        _ => bail!("-t {text:?}: a separator is one byte; hint: -t , or -t '\\t'"),
    }
}

/// Reads a key: `FIELD[.CHAR][OPTS][,FIELD[.CHAR][OPTS]]`.
fn key(text: &str, args: &SortArgs) -> Result<TextKey> {
    let wrong = || format!("-k {text}: not FIELD[.CHAR][nrb][,FIELD[.CHAR][nrb]], such as 2,2n");
    let (start, end) = match text.split_once(',') {
        Some((start, end)) => (start, Some(end)),
        None => (text, None),
    };
    let (first, letters) = position(start, true).with_context(wrong)?;
    let last = end.map(|end| position(end, false)).transpose().with_context(wrong)?;
    let (numbers, more) = last.unwrap_or(((0, 0), ""));
    let has = |letter: char| letters.contains(letter) || more.contains(letter);
    // A key without letters of its own takes those of the command.
    let inherits = letters.is_empty() && more.is_empty();
    Ok(TextKey {
        first_field: first.0 - 1,
        first_char: first.1.max(1) - 1,
        last_field: end.map(|_| numbers.0 - 1),
        last_char: numbers.1,
        skip_start: letters.contains('b') || inherits && args.ignore_leading_blanks,
        skip_end: more.contains('b') || inherits && args.ignore_leading_blanks,
        numeric: has('n') || inherits && args.numeric_sort,
        reverse: has('r') || inherits && args.reverse,
    })
}

/// Reads an end of a key, `FIELD[.CHAR][OPTS]`: both numbers, and the letters.
fn position(text: &str, is_start: bool) -> Result<((usize, usize), &str)> {
    let letters_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (numbers, letters) = text.split_at(letters_at);
    if let Some(letter) = letters.chars().find(|letter| !"nrb".contains(*letter)) {
        bail!("the letter {letter} of GNU sort is not there; n, r and b are");
    }
    let (field, char) = match numbers.split_once('.') {
        Some((field, char)) => (number(field)?, number(char)?),
        None => (number(numbers)?, usize::from(is_start)),
    };
    if field == 0 || is_start && char == 0 {
        bail!("fields and characters count from 1");
    }
    Ok(((field, char), letters))
}

/// A number of fields or characters. One beyond all numbers is beyond the end of every line, as for GNU sort.
fn number(text: &str) -> Result<usize> {
    match text.parse::<usize>() {
        Ok(number) => Ok(number.min(FAR)),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(FAR),
        Err(error) => Err(error.into()),
    }
}
