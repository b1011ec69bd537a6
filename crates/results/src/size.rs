//! Message sizes as people write them: `8`, `64K`, `1M`, and lists of them.
//!
//! K, M and G are powers of 1,024, as everywhere in message benchmarks. Rates are in MB/s of 10^6 bytes.

use crate::error::{Error, Result};

/// Parses one size.
pub fn parse(text: &str) -> Result<usize> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match &lower[digits.len()..] {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(malformed(text)),
    };
    let number: usize = digits.parse().map_err(|_| malformed(text))?;
    number.checked_mul(1 << shift).ok_or_else(|| malformed(text))
}

/// Parses a comma-separated list, keeps its order, drops repetitions.
pub fn parse_list(text: &str) -> Result<Vec<usize>> {
    let mut sizes = Vec::new();
    for part in text.split(',') {
        let size = parse(part)?;
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    Ok(sizes)
}

/// The shortest way to write `bytes` so that it parses back: 65536 as `64K`.
pub fn show(bytes: usize) -> String {
    for (shift, suffix) in [(30, "G"), (20, "M"), (10, "K")] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{suffix}", bytes >> shift);
        }
    }
    bytes.to_string()
}

fn malformed(text: &str) -> Error {
    Error::new(
        format!("`{text}` is not a size"),
        "write bytes, with K, M or G for powers of 1,024: 8 or 64K or 1M",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_and_print() {
        for (text, bytes) in
            [("8", 8), ("0", 0), ("64K", 65536), ("1m", 1 << 20), ("2GiB", 2 << 30), (" 4kb", 4096)]
        {
            assert_eq!(parse(text).unwrap(), bytes, "{text}");
        }
        assert_eq!(
            [0, 8, 1000, 1024, 1536, 65536, 1 << 20, 3 << 30].map(show),
            ["0", "8", "1000", "1K", "1536", "64K", "1M", "3G"]
        );
        assert_eq!(parse_list("8,64K,8").unwrap(), [8, 65536]);
    }

    #[test]
    fn bad_sizes_are_refused() {
        for text in ["", "K", "-1", "1.5K", "8X", "99999999999999999999", "99999999999G", "8 8"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse_list("8,,9").is_err());
    }
}
