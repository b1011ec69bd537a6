//! The order of lines, with the rules of GNU sort in the C locale: fields, numbers, reverse, last resort.

use std::cmp::Ordering;

use crate::order::{Order, PIECE, PREFIX_BITS, ten};

/// A key of `-k`, with positions counted from zero as GNU does within.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextKey {
    /// Field where it begins.
    pub first_field: usize,
    /// Character in that field.
    pub first_char: usize,
    /// Field where it ends; `None` for the end of the line.
    pub last_field: Option<usize>,
    /// Characters of that field that belong to it; 0 for all.
    pub last_char: usize,
    /// Blanks before the beginning do not count.
    pub skip_start: bool,
    /// Blanks before the end do not count.
    pub skip_end: bool,
    /// Compared as a number.
    pub numeric: bool,
    /// Greater ones first.
    pub reverse: bool,
}

/// The order of lines.
#[derive(Clone, Debug)]
pub(crate) struct TextOrder {
    keys: Vec<TextKey>,
    tab: Option<u8>,
    /// Reverses the last resort, and whole lines if there is no key.
    reverse: bool,
    /// There is no last resort.
    stable: bool,
    mark: u8,
}

impl TextOrder {
    pub(crate) fn new(
        keys: Vec<TextKey>,
        tab: Option<u8>,
        reverse: bool,
        stable: bool,
        mark: u8,
    ) -> TextOrder {
        TextOrder { keys, tab, reverse, stable, mark }
    }

    /// The line without its end.
    fn line<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        record.strip_suffix(&[self.mark]).unwrap_or(record)
    }

    fn compare_keys(&self, a: &[u8], b: &[u8]) -> Ordering {
        for key in &self.keys {
            let (x, y) = (key.of(a, self.tab), key.of(b, self.tab));
            let order = if key.numeric { Number::of(x).cmp(&Number::of(y)) } else { x.cmp(y) };
            if order != Ordering::Equal {
                return if key.reverse { order.reverse() } else { order };
            }
        }
        Ordering::Equal
    }

    fn turned(&self, order: Ordering) -> Ordering {
        if self.reverse { order.reverse() } else { order }
    }
}

impl Order for TextOrder {
    #[inline]
    fn prefix(&self, record: &[u8], depth: usize) -> u128 {
        let (prefix, reverse) = match self.keys.first() {
            None => (text_prefix(self.line(record), depth), self.reverse),
            Some(key) if key.numeric => {
                (Number::of(key.of(self.line(record), self.tab)).prefix(), key.reverse)
            }
            Some(key) => (text_prefix(key.of(self.line(record), self.tab), depth), key.reverse),
        };
        if reverse { !prefix & ((1 << PREFIX_BITS) - 1) } else { prefix }
    }

    fn depths(&self) -> usize {
        if self.keys.first().is_some_and(|key| key.numeric) { 1 } else { 12 }
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let (a, b) = (self.line(a), self.line(b));
        match self.compare_keys(a, b) {
            Ordering::Equal if self.keys.is_empty() => self.turned(a.cmp(b)),
            Ordering::Equal if self.stable => Ordering::Equal,
            Ordering::Equal => self.turned(a.cmp(b)),
            order => order,
        }
    }

    fn same_key(&self, a: &[u8], b: &[u8]) -> bool {
        let (a, b) = (self.line(a), self.line(b));
        if self.keys.is_empty() { a == b } else { self.compare_keys(a, b) == Ordering::Equal }
    }
}

/// Ten bytes of the text, zeros behind its end.
#[inline]
fn text_prefix(text: &[u8], depth: usize) -> u128 {
    let rest = text.get(depth * PIECE..).unwrap_or_default();
    if let Some(piece) = rest.first_chunk::<PIECE>() {
        return ten(piece);
    }
    let mut piece = [0; PIECE];
    piece[..rest.len()].copy_from_slice(rest);
    ten(&piece)
}

impl TextKey {
    /// The whole line.
    pub fn whole(numeric: bool, reverse: bool) -> TextKey {
        TextKey {
            first_field: 0,
            first_char: 0,
            last_field: None,
            last_char: 0,
            skip_start: false,
            skip_end: false,
            numeric,
            reverse,
        }
    }

    /// The part of the line that is the key.
    fn of<'a>(&self, line: &'a [u8], tab: Option<u8>) -> &'a [u8] {
        let mut start = after_fields(line, self.first_field, tab, true);
        if self.skip_start {
            start = skip_blanks(line, start);
        }
        let start = (start + self.first_char).min(line.len());
        let Some(field) = self.last_field else { return &line[start..] };
        let end = if self.last_char == 0 {
            after_fields(line, field + 1, tab, false)
        } else {
            let mut end = after_fields(line, field, tab, true);
            if self.skip_end {
                end = skip_blanks(line, end);
            }
            (end + self.last_char).min(line.len())
        };
        &line[start..end.max(start)]
    }
}

/// Where the line goes on behind `count` fields; with `over`, behind the separator of the last of them, too.
fn after_fields(line: &[u8], count: usize, tab: Option<u8>, over: bool) -> usize {
    let mut at = 0;
    match tab {
        Some(tab) => {
            for n in (0..count).rev() {
                if at >= line.len() {
                    break;
                }
                match memchr::memchr(tab, &line[at..]) {
                    Some(found) => at += found + usize::from(over || n > 0),
                    None => at = line.len(),
                }
            }
        }
        None => {
            for _ in 0..count {
                if at >= line.len() {
                    break;
                }
                at = skip_blanks(line, at);
                at += line[at..].iter().position(|&byte| is_blank(byte)).unwrap_or(line.len() - at);
            }
        }
    }
    at
}

fn skip_blanks(line: &[u8], at: usize) -> usize {
    at + line[at..].iter().position(|&byte| !is_blank(byte)).unwrap_or(line.len() - at)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n')
}

/// A decimal number at the start of a text, of any length.
#[derive(Clone, Copy, Debug)]
struct Number<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a [u8],
    /// Digits behind the point, without trailing zeros.
    fraction: &'a [u8],
}

impl<'a> Number<'a> {
    fn of(text: &'a [u8]) -> Number<'a> {
        let text = &text[skip_blanks(text, 0)..];
        let (negative, text) = match text.split_first() {
            Some((b'-', rest)) => (true, rest),
            _ => (false, text),
        };
        let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (whole, rest) = text.split_at(digits(text));
        let zeros = whole.iter().take_while(|&&byte| byte == b'0').count();
        let whole = &whole[zeros..];
        let fraction = rest.strip_prefix(b".").map_or(&[][..], |rest| &rest[..digits(rest)]);
        let kept = fraction.iter().rposition(|&byte| byte != b'0').map_or(0, |last| last + 1);
        let fraction = &fraction[..kept];
        // There is one zero.
        let negative = negative && !(whole.is_empty() && fraction.is_empty());
        Number { negative, whole, fraction }
    }

    fn cmp(&self, other: &Number<'_>) -> Ordering {
        let size = |a: &Number<'_>, b: &Number<'_>| {
            (a.whole.len(), a.whole, a.fraction).cmp(&(b.whole.len(), b.whole, b.fraction))
        };
        match (self.negative, other.negative) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => size(self, other),
            (true, true) => size(other, self),
        }
    }

    /// Sign, number of digits, and the first eighteen digits.
    fn prefix(&self) -> u128 {
        let mut piece = [0; PIECE];
        let length = self.whole.len().min(0x7F);
        piece[0] = 0x80 | length as u8;
        if length < 0x7F {
            let digits = self.whole.iter().chain(self.fraction).take(2 * (PIECE - 1));
            for (n, digit) in digits.enumerate() {
                let nibble = digit - b'0';
                piece[1 + n / 2] |= if n % 2 == 0 { nibble << 4 } else { nibble };
            }
        }
        let prefix = ten(&piece);
        if self.negative { !prefix & ((1 << PREFIX_BITS) - 1) } else { prefix }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_as_numbers_and_their_prefixes_agree() {
        let texts = [
            "-1000",
            "-10.5",
            "-10.49",
            "-0.001",
            "0",
            "0.0009",
            "0.1",
            " 1",
            "1.5",
            "2",
            "10",
            "12x",
            "100",
            "99999999999999999999",
            "100000000000000000000.1",
        ];
        for (i, a) in texts.iter().enumerate() {
            for (j, b) in texts.iter().enumerate() {
                let (x, y) = (Number::of(a.as_bytes()), Number::of(b.as_bytes()));
                assert_eq!(x.cmp(&y), i.cmp(&j), "{a} {b}");
                assert!(x.prefix().cmp(&y.prefix()) == i.cmp(&j) || x.prefix() == y.prefix(), "{a} {b}");
            }
        }
        for (a, b) in [("-0", "0"), ("abc", "0"), ("007", "7.00"), ("", "x"), ("+5", "0")] {
            assert_eq!(Number::of(a.as_bytes()).cmp(&Number::of(b.as_bytes())), Ordering::Equal, "{a} {b}");
        }
    }

    #[test]
    fn fields_are_cut_like_those_of_sort() {
        let key = |text: (usize, usize, Option<usize>, usize), skip| TextKey {
            first_field: text.0,
            first_char: text.1,
            last_field: text.2,
            last_char: text.3,
            skip_start: skip,
            skip_end: skip,
            ..TextKey::whole(false, false)
        };
        let line = b"one  two three";
        assert_eq!(key((1, 0, Some(1), 0), false).of(line, None), b"  two");
        assert_eq!(key((1, 0, Some(1), 0), true).of(line, None), b"two");
        assert_eq!(key((1, 0, None, 0), false).of(line, None), b"  two three");
        assert_eq!(key((1, 1, Some(1), 2), true).of(line, None), b"w");
        assert_eq!(key((7, 0, None, 0), false).of(line, None), b"");
        let line = b"a:bc::d";
        assert_eq!(key((1, 0, Some(1), 0), false).of(line, Some(b':')), b"bc");
        assert_eq!(key((2, 0, Some(2), 0), false).of(line, Some(b':')), b"");
        assert_eq!(key((1, 1, Some(3), 1), false).of(line, Some(b':')), b"c::d");
        assert_eq!(key((3, 0, None, 0), false).of(line, Some(b':')), b"d");
    }
}
