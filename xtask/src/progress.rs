//! Lines that say what is going on, with the time since the start.

use std::fmt::Display;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

static START: OnceLock<Instant> = OnceLock::new();

/// Starts the clock; called first of all.
pub(crate) fn start() {
    START.get_or_init(Instant::now);
}

/// Says a line on standard error.
pub(crate) fn say(line: impl Display) {
    let elapsed = START.get_or_init(Instant::now).elapsed();
    eprintln!("[{:>8}] {line}", seconds(elapsed));
}

/// A duration for people: `12.3 s`.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
