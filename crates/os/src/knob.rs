//! Settings that can be changed from outside: one type for those of every crate, and one way to read numbers, sizes, times
//! and choices.
//!
//! A crate keeps a table of [`Knob`]s over its own configuration; the programs on top read the environment and hand it down
//! as a function ([`read`]), and `viaduct config` lists every table. Nothing here reads the environment.

use std::fmt;
use std::time::Duration;

/// One setting of the configuration `C`.
pub struct Knob<C> {
    /// Its name, as `viaduct config` lists it.
    pub name: &'static str,
    /// The environment variable that sets it.
    pub env: &'static str,
    /// What it does.
    pub help: &'static str,
    /// What it is there for.
    pub purpose: Purpose,
    /// Its value as text that [`set`](Self::set) takes, or `automatic`.
    pub show: fn(&C) -> String,
    /// Sets it from text; the error says what is allowed.
    pub set: fn(&mut C, &str) -> Result<(), String>,
}

/// What a setting is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Users may want another value.
    Use,
    /// Users may set it, and its value is shown nowhere, not even when it is wrong.
    Secret,
    /// Tests and figures of papers need it; other values are slower or less safe.
    Figures,
}

impl Purpose {
    /// As `viaduct config` writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Purpose::Use | Purpose::Secret => "use",
            Purpose::Figures => "tests and figures",
        }
    }
}

/// A variable with a value that is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadKnob {
    /// The variable.
    pub env: &'static str,
    /// Its value, or a sign in its place if it is secret.
    pub given: String,
    /// The setting.
    pub name: &'static str,
    /// What it may be.
    pub allowed: String,
}

impl fmt::Display for BadKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadKnob { env, given, name, allowed } = self;
        write!(f, "{env}={given} is not understood; {name}: {allowed}")
    }
}

impl std::error::Error for BadKnob {}

impl<C> Knob<C> {
    /// Sets it from the text of its variable.
    pub fn take(&self, config: &mut C, text: &str) -> Result<(), BadKnob> {
        (self.set)(config, text.trim()).map_err(|allowed| {
            // A secret that is wrong may be the right one with a slip.
            let given = if self.purpose == Purpose::Secret { "…" } else { text };
            BadKnob { env: self.env, given: given.to_owned(), name: self.name, allowed }
        })
    }
}

/// Sets every knob whose variable has a value; `variable` gives the value of one.
///
/// # Errors
/// For the first value that is not understood.
pub fn read<C>(
    knobs: &[Knob<C>],
    config: &mut C,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(), BadKnob> {
    for knob in knobs {
        if let Some(text) = variable(knob.env) {
            knob.take(config, &text)?;
        }
    }
    Ok(())
}

/// Names and values of the knobs that differ between two configurations, for the record of a run.
pub fn changed<'a, C>(
    knobs: &'a [Knob<C>],
    config: &'a C,
    defaults: &'a C,
) -> impl Iterator<Item = (&'static str, String)> + 'a {
    knobs.iter().filter_map(|knob| {
        let value = (knob.show)(config);
        (value != (knob.show)(defaults)).then_some((knob.name, value))
    })
}

/// A whole number.
pub fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "a whole number".to_owned())
}

/// A whole number within limits.
pub fn number_in(text: &str, allowed: std::ops::RangeInclusive<usize>) -> Result<usize, String> {
    let says = || format!("a whole number from {} to {}", allowed.start(), allowed.end());
    text.parse().ok().filter(|n| allowed.contains(n)).ok_or_else(says)
}

/// A number of bytes, with an optional suffix K, M or G.
pub fn bytes(text: &str) -> Result<u64, String> {
    let bad = || "a number of bytes, such as 65536, 64K, 16M or 2G".to_owned();
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_uppercase) {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let n: u64 = digits.trim_end().parse().map_err(|_| bad())?;
    n.checked_mul(1 << shift).ok_or_else(bad)
}

/// Units of time, the longest first.
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// A time with its unit, such as 200us, 5ms, 1.5s or 10m; without one, in the unit that is given.
pub fn time(text: &str, unit: &str) -> Result<Duration, String> {
    let bad = || format!("a time, such as 200us, 5ms, 3s or 10m; a number alone is in {unit}");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let given = Some(&text[digits.len()..]).filter(|given| !given.is_empty()).unwrap_or(unit);
    let (_, nanos) = UNITS.into_iter().find(|(name, _)| *name == given).ok_or_else(bad)?;
    let digits = digits.trim_end();
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(nanos).map(Duration::from_nanos).ok_or_else(bad);
    }
    let part: f64 = digits.parse().map_err(|_| bad())?;
    let all = part * nanos as f64;
    if !(0.0..1e18).contains(&all) {
        return Err(bad());
    }
    Ok(Duration::from_nanos(all.round() as u64))
}

/// A time as [`time`] takes it: in the longest unit of which it is a whole number.
pub fn show_time(time: Duration) -> String {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let fits = |(_, unit): &&(&str, u64)| nanos.is_multiple_of(*unit);
    match UNITS.iter().find(fits) {
        Some((name, unit)) if nanos > 0 => format!("{}{name}", nanos / unit),
        _ => "0".to_owned(),
    }
}

/// As [`switch`] reads it.
pub fn show_switch(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}

/// On or off.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("on or off".to_owned()),
    }
}

/// One of several words.
pub fn choose<T: Copy>(text: &str, all: &[(&str, T)]) -> Result<T, String> {
    let names = || all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or ");
    all.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(names)
}

/// The word of a value, for [`choose`].
pub fn chosen<T: PartialEq>(value: &T, all: &[(&'static str, T)]) -> String {
    all.iter().find(|(_, other)| other == value).map_or("", |(name, _)| name).to_owned()
}

/// A text that is not empty.
pub fn filled(text: &str, what: &str) -> Result<String, String> {
    if text.is_empty() { Err(what.to_owned()) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Config {
        size: u64,
        limit: Duration,
        key: String,
    }

    const KNOBS: &[Knob<Config>] = &[
        Knob {
            name: "a.size",
            env: "A_SIZE",
            help: "",
            purpose: Purpose::Use,
            show: |c| c.size.to_string(),
            set: |c, text| bytes(text).map(|n| c.size = n),
        },
        Knob {
            name: "a.limit",
            env: "A_LIMIT",
            help: "",
            purpose: Purpose::Figures,
            show: |c| show_time(c.limit),
            set: |c, text| time(text, "ms").map(|t| c.limit = t),
        },
        Knob {
            name: "a.key",
            env: "A_KEY",
            help: "",
            purpose: Purpose::Secret,
            show: |_| "given".into(),
            set: |c, text| {
                if text.len() != 4 {
                    return Err("four letters".into());
                }
                c.key = text.into();
                Ok(())
            },
        },
    ];

    fn config() -> Config {
        Config { size: 1, limit: Duration::ZERO, key: String::new() }
    }

    #[test]
    fn variables_set_knobs_and_changes_are_listed() {
        let mut given = config();
        let variables = [("A_SIZE", " 32K "), ("A_LIMIT", "2.5s"), ("A_KEY", "open")];
        let variable =
            |env: &str| variables.iter().find(|(name, _)| *name == env).map(|(_, v)| (*v).to_owned());
        read(KNOBS, &mut given, variable).unwrap();
        assert_eq!(
            (given.size, given.limit, given.key.as_str()),
            (32 << 10, Duration::from_millis(2500), "open")
        );
        let listed: Vec<_> = changed(KNOBS, &given, &config()).collect();
        assert_eq!(listed, [("a.size", "32768".to_owned()), ("a.limit", "2500ms".to_owned())]);
    }

    #[test]
    fn a_bad_value_names_its_variable_and_a_secret_stays_one() {
        let bad = read(KNOBS, &mut config(), |env| (env == "A_SIZE").then(|| "12Q".into())).unwrap_err();
        assert_eq!(
            bad.to_string(),
            "A_SIZE=12Q is not understood; a.size: a number of bytes, such as 65536, 64K, 16M or 2G"
        );
        let bad = read(KNOBS, &mut config(), |env| (env == "A_KEY").then(|| "opens".into())).unwrap_err();
        assert!(!bad.to_string().contains("opens"), "{bad}");
    }

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!((bytes("16m"), bytes("3"), bytes("2G")), (Ok(16 << 20), Ok(3), Ok(2 << 30)));
        for text in ["", "K", "-1", "1.5K", "99999999999G", "64KB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        for (text, nanos) in [
            ("7", 7_000_000),
            ("200us", 200_000),
            ("0", 0),
            ("1.5s", 1_500_000_000),
            ("10m", 600_000_000_000),
            ("3 s", 3_000_000_000),
        ] {
            let read = time(text, "ms").unwrap();
            assert_eq!(read.as_nanos(), nanos, "{text}");
            assert_eq!(time(&show_time(read), "ms").unwrap(), read, "{text}");
        }
        for text in ["", "s", "-3s", "5 parsecs", "1e400", "nan", "99999999999h"] {
            assert!(time(text, "ms").is_err(), "{text}");
        }
    }

    #[test]
    fn choices_are_words() {
        let all = [("one", 1), ("two", 2)];
        assert_eq!((choose("two", &all), chosen(&2, &all)), (Ok(2), "two".to_owned()));
        assert_eq!(choose("three", &all), Err("one or two".to_owned()));
        assert!(switch("on").unwrap() && !switch("no").unwrap() && switch("").is_err());
        assert!(
            number_in("7", 1..=8).is_ok() && number_in("9", 1..=8).is_err() && filled("", "a name").is_err()
        );
    }
}
