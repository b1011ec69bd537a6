//! `cargo xtask steady N`: the default test run N times in a row beside a busy loop on each core, where a test that passes at the
//! second try has failed. Tests that count on a quiet machine are found so.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::progress::say;
use crate::summary::{Outcome, Row};
use crate::test::{self, Wanted};
use crate::workspace::Workspace;

/// Whether all runs passed, with no test flaky.
pub(crate) fn run(workspace: &Workspace, times: u32) -> Result<bool> {
    let wanted = Wanted { install: true, strict: true, ..Wanted::default() };
    let mut runs = Vec::new();
    for time in 1..=times {
        say(format_args!("run {time} of {times}, with every core kept busy"));
        let outcome = beside_load(|| test::run(workspace, &wanted))?;
        crate::summary::print(&outcome);
        runs.push(line(time, &outcome));
    }
    println!("\n{}", runs.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join("\n"));
    Ok(runs.iter().all(|(_, good)| *good))
}

/// What a run came to, and whether it passed.
fn line(time: u32, outcome: &Outcome) -> (String, bool) {
    let good = outcome.rows.iter().all(Row::is_good);
    let took: Duration = outcome.rows.iter().map(|row| row.took).sum();
    let flaky: Vec<&str> =
        outcome.rows.iter().flat_map(|row| row.tally.flaky.iter().map(String::as_str)).collect();
    let passed: u64 = outcome.rows.iter().map(|row| row.tally.passed).sum();
    let told =
        if flaky.is_empty() { "none flaky".to_owned() } else { format!("flaky: {}", flaky.join(", ")) };
    let verdict = if good { "passed" } else { "FAILED" };
    (format!("run {time}: {verdict} after {} s, {passed} tests, {told}", took.as_secs()), good)
}

/// Ends the load when it goes, also while a panic unwinds: the scope waits for every thread of the load.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs `work` while as many threads as there are cores do nothing but turn.
fn beside_load<R>(work: impl FnOnce() -> R) -> R {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let _end = End(&over);
        work()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Verdict;
    use viaduct_kit::watchdog::Watchdog;

    #[test]
    fn a_run_is_told_in_one_line() {
        let mut row = Row::new("tests", Verdict::Passed, Duration::from_secs(61), None);
        row.tally.passed = 7;
        let outcome = Outcome { rows: vec![row], turns: Vec::new() };
        assert_eq!(line(2, &outcome), ("run 2: passed after 61 s, 7 tests, none flaky".to_owned(), true));
        let mut row = Row::new("tests", Verdict::Failed("1 flaky tests".to_owned()), Duration::ZERO, None);
        row.tally.flaky = vec!["pkg one".to_owned()];
        let (text, good) = line(1, &Outcome { rows: vec![row], turns: Vec::new() });
        assert!(!good && text.contains("FAILED") && text.ends_with("flaky: pkg one"), "{text}");
    }

    #[test]
    fn the_load_ends_with_the_work() {
        assert_eq!(beside_load(|| 7), 7);
    }

    #[test]
    fn the_load_ends_when_the_work_panics() {
        let _watchdog = Watchdog::arm(Duration::from_secs(60), "a load whose work panicked");
        assert!(std::panic::catch_unwind(|| beside_load(|| panic!("as meant"))).is_err());
    }
}
