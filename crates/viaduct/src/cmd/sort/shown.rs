//! How far a sort is, on standard error: a bar on a terminal, or lines, as text or as JSON.

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
            ProgressArg::Lines => Some(scope.spawn(|| lines(progress, &done, &|at| say(&text(name, at))))),
            ProgressArg::Json => Some(scope.spawn(|| lines(progress, &done, &|at| say(&json(name, at))))),
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

/// How far a sort is at one moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    phase: &'static str,
    /// Bytes of the phase: done, and in all (0 if that is not known).
    bytes: (u64, u64),
    /// How long the phase has taken.
    spent: Duration,
    /// How long the whole has taken, if it has ended.
    ended: Option<Duration>,
}

impl Moment {
    /// MB/s in this phase.
    fn rate(&self) -> f64 {
        self.bytes.0 as f64 / 1e6 / self.spent.as_secs_f64().max(1e-3)
    }

    /// How much of the phase is done, from 0 to 1.
    fn part(&self) -> f64 {
        if self.bytes.1 == 0 { 0.0 } else { (self.bytes.0 as f64 / self.bytes.1 as f64).min(1.0) }
    }

    /// Seconds that the rest of the phase will take, if that can be said.
    fn left(&self) -> Option<f64> {
        let part = self.part();
        (part > 0.0).then(|| self.spent.as_secs_f64() * (1.0 - part) / part)
    }
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

    fn look(&mut self, progress: &Progress) -> Moment {
        let (phase, bytes, total) = progress.look();
        if self.name != phase {
            *self = Phase { name: phase, since: Instant::now() };
        }
        Moment { phase, bytes: (bytes, total), spent: self.since.elapsed(), ended: None }
    }
}

fn bar(progress: &Progress, done: &AtomicBool) {
    let mut bar = Bar::new("sort");
    let mut phase = Phase::new();
    while !done.load(Ordering::Relaxed) {
        let at = phase.look(progress);
        bar.show(&format!("{}, {:.0} MB/s", at.phase, at.rate()), at.part());
        std::thread::park_timeout(LOOK);
    }
    bar.clear();
}

/// Tells every second how far it is, and once more at the end.
fn lines(progress: &Progress, done: &AtomicBool, tell: &dyn Fn(&Moment)) {
    let (begun, mut phase, mut next) = (Instant::now(), Phase::new(), Instant::now() + LINE);
    while !done.load(Ordering::Relaxed) {
        let at = phase.look(progress);
        if Instant::now() >= next {
            next = Instant::now() + LINE;
            tell(&at);
        }
        std::thread::park_timeout(LOOK);
    }
    tell(&Moment { ended: Some(begun.elapsed()), ..phase.look(progress) });
}

/// Phase, part, rate, and the time that the rest of the phase will take.
fn text(name: &str, at: &Moment) -> String {
    let (phase, rate) = (at.phase, at.rate());
    match (at.ended, at.left()) {
        (Some(all), _) => format!("{name}: ended after {:.1} s in the phase {phase}", all.as_secs_f64()),
        (None, None) => format!("{name}: {phase}, {rate:.0} MB/s"),
        (None, Some(left)) => {
            format!("{name}: {phase}, {:.0} %, {rate:.0} MB/s, {left:.0} s left", at.part() * 100.0)
        }
    }
}

fn json(name: &str, at: &Moment) -> String {
    let (done, total) = at.bytes;
    serde_json::json!({
        "of": name,
        "phase": at.phase,
        "bytes": done,
        "total": total,
        "mb_per_s": at.rate().round(),
        "seconds_left": at.left().map(f64::round),
        "ended_after": at.ended.map(|all| all.as_secs_f64()),
    })
    .to_string()
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
        let spent = Duration::from_secs(3);
        let at = Moment { phase: "distribute", bytes: (1_500_000_000, 6_000_000_000), spent, ended: None };
        assert_eq!(text("sort", &at), "sort: distribute, 25 %, 500 MB/s, 9 s left");
        let line: serde_json::Value = serde_json::from_str(&json("sort", &at)).unwrap();
        assert_eq!((&line["mb_per_s"], &line["seconds_left"]), (&500.0.into(), &9.0.into()));
        assert_eq!(
            (&line["total"], &line["ended_after"]),
            (&6_000_000_000u64.into(), &serde_json::Value::Null)
        );
        let unknown = Moment { phase: "read", bytes: (30_000_000, 0), ..at };
        assert_eq!(text("sort", &unknown), "sort: read, 10 MB/s");
        let ended = Moment { ended: Some(Duration::from_secs(4)), ..at };
        assert_eq!(text("node 0", &ended), "node 0: ended after 4.0 s in the phase distribute");
    }
}
