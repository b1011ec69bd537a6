//! How far a sort is, on standard error: a bar on a terminal, or lines.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use viaduct_sort::Progress;

use crate::cli::sort::ProgressArg;
use crate::output::progress::Progress as Bar;

/// How often the sort is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// How often a line is written.
const LINE: Duration = Duration::from_secs(1);

/// Does `work` and shows how far it is; `name` stands before each line.
pub(super) fn during<R>(how: ProgressArg, name: &str, progress: &Progress, work: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let shower = match how {
            ProgressArg::Auto if io::stderr().is_terminal() => Some(scope.spawn(|| bar(progress, &done))),
            ProgressArg::Lines => Some(scope.spawn(|| lines(name, progress, &done))),
            _ => None,
        };
        let result = work();
        done.store(true, Ordering::Relaxed);
        if let Some(shower) = shower {
            shower.thread().unpark();
        }
        result
    })
}

/// The phase that a sort is in, and since when.
struct Phase {
    name: &'static str,
    since: Instant,
}

impl Phase {
    fn new() -> Phase {
        Phase { name: "", since: Instant::now() }
    }

    /// Phase, MB/s, and how much of it is done, from 0 to 1.
    fn look(&mut self, progress: &Progress) -> (&'static str, f64, f64) {
        let (phase, bytes, total) = progress.look();
        if self.name != phase {
            *self = Phase { name: phase, since: Instant::now() };
        }
        let rate = bytes as f64 / 1e6 / self.since.elapsed().as_secs_f64().max(1e-3);
        (phase, rate, if total == 0 { 0.0 } else { (bytes as f64 / total as f64).min(1.0) })
    }
}

fn bar(progress: &Progress, done: &AtomicBool) {
    let mut bar = Bar::new("sort");
    let mut phase = Phase::new();
    while !done.load(Ordering::Relaxed) {
        let (name, rate, part) = phase.look(progress);
        bar.show(&format!("{name}, {rate:.0} MB/s"), part);
        std::thread::park_timeout(LOOK);
    }
    bar.clear();
}

fn lines(name: &str, progress: &Progress, done: &AtomicBool) {
    let (begun, mut phase, mut next) = (Instant::now(), Phase::new(), Instant::now() + LINE);
    while !done.load(Ordering::Relaxed) {
        let seen = phase.look(progress);
        if Instant::now() >= next {
            next = Instant::now() + LINE;
            say(&format!("{name}: {}", told(seen, phase.since.elapsed())));
        }
        std::thread::park_timeout(LOOK);
    }
    say(&format!(
        "{name}: ended after {:.1} s in the phase {}",
        begun.elapsed().as_secs_f64(),
        phase.look(progress).0
    ));
}

/// Phase, part, rate, and the time that the rest of the phase will take.
fn told((phase, rate, part): (&str, f64, f64), spent: Duration) -> String {
    if part == 0.0 {
        return format!("{phase}, {rate:.0} MB/s");
    }
    let left = spent.as_secs_f64() * (1.0 - part) / part;
    format!("{phase}, {:.0} %, {rate:.0} MB/s, {left:.0} s left", part * 100.0)
}

/// A reader that is gone is no reason to stop.
fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_phase_rate_and_the_time_left() {
        let line = told(("distribute", 500.0, 0.25), Duration::from_secs(3));
        assert_eq!(line, "distribute, 25 %, 500 MB/s, 9 s left");
        assert_eq!(told(("read", 10.0, 0.0), Duration::from_secs(3)), "read, 10 MB/s");
    }
}
