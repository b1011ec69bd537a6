//! How hard a run tries: long or short, and on how slow a machine.
//!
//! Two environment variables say it, both set by `cargo xtask test` or by hand:
//! `VIADUCT_TEST_FULL=1` asks for the long form of every suite, `VIADUCT_TEST_SCALE=4` makes every time limit of the
//! kit four times as long (valgrind, an emulator, a machine with other work to do).

use std::env;
use std::time::Duration;

/// The variable that multiplies time limits.
pub const SCALE: &str = "VIADUCT_TEST_SCALE";

/// The variable that asks for the long suites.
pub const FULL: &str = "VIADUCT_TEST_FULL";

/// Whether the long form of the suites was asked for.
pub fn full() -> bool {
    is_yes(env::var(FULL).ok().as_deref())
}

/// The number of rounds for this run: `long` in a full run, else `quick`.
pub fn rounds(quick: u64, long: u64) -> u64 {
    if full() { long } else { quick }
}

/// A time limit, stretched by the scale of this run.
pub fn scaled(limit: Duration) -> Duration {
    stretch(limit, env::var(SCALE).ok().as_deref())
}

fn is_yes(value: Option<&str>) -> bool {
    matches!(value.map(str::trim), Some(value) if !matches!(value, "" | "0" | "no" | "false"))
}

/// A scale that is no positive number is a mistake of the user, and is said at once.
fn stretch(limit: Duration, scale: Option<&str>) -> Duration {
    let Some(text) = scale.map(str::trim).filter(|text| !text.is_empty()) else { return limit };
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => limit.mul_f64(factor),
        _ => panic!("{SCALE}={text}: a positive number is wanted, such as 4 or 0.5"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_stands_without_a_scale() {
        assert_eq!(stretch(Duration::from_secs(3), None), Duration::from_secs(3));
        assert_eq!(stretch(Duration::from_secs(3), Some(" ")), Duration::from_secs(3));
    }

    #[test]
    fn a_scale_stretches_and_shrinks() {
        assert_eq!(stretch(Duration::from_secs(3), Some("4")), Duration::from_secs(12));
        assert_eq!(stretch(Duration::from_secs(3), Some("0.5")), Duration::from_millis(1500));
    }

    #[test]
    #[should_panic(expected = "a positive number is wanted")]
    fn a_bad_scale_is_said() {
        stretch(Duration::from_secs(3), Some("fast"));
    }

    #[test]
    fn yes_has_several_spellings() {
        assert!(is_yes(Some("1")) && is_yes(Some("yes")));
        assert!(!is_yes(None) && !is_yes(Some("0")) && !is_yes(Some("")) && !is_yes(Some("no")));
    }
}
