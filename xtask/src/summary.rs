//! The end of a run: what each suite came to, which tests were skipped and why, and the counts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::progress::seconds;
use crate::suites::LAYER;
use crate::tally::Tally;

/// What became of a suite.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
    NotYet(String),
    NotNeeded(String),
}

/// A line of the closing table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
    pub(crate) took: Duration,
    pub(crate) budget: Option<Duration>,
    pub(crate) tally: Tally,
    /// Tests that skipped themselves, with their reasons.
    pub(crate) skips: BTreeMap<String, Vec<String>>,
}

/// The counts of the last line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Row {
    /// A line for something that is no test.
    pub(crate) fn new(name: &str, verdict: Verdict, took: Duration, budget: Option<Duration>) -> Self {
        Self { name: name.to_owned(), verdict, took, budget, tally: Tally::default(), skips: BTreeMap::new() }
    }

    pub(crate) fn is_good(&self) -> bool {
        !matches!(self.verdict, Verdict::Failed(_))
    }

    fn is_over_budget(&self) -> bool {
        self.budget.is_some_and(|budget| self.took > budget)
    }

    /// Takes the tests out that skipped themselves, for another suite to run them.
    pub(crate) fn hand_on_skips(&mut self) -> Vec<String> {
        let skips = std::mem::take(&mut self.skips);
        self.tally.passed = self.tally.passed.saturating_sub(skips.len() as u64);
        skips.into_keys().collect()
    }

    /// A test that skipped itself returned early, which its harness calls passed. A failure outside of tests, such as
    /// a build that broke or a binary that crashed, counts as one.
    fn counts(&self) -> Counts {
        let skipped_themselves = self.skips.len() as u64;
        let whole = u64::from(matches!(self.verdict, Verdict::Skipped(_)));
        let failed = if self.is_good() { self.tally.failed } else { self.tally.failed.max(1) };
        Counts {
            passed: self.tally.passed.saturating_sub(skipped_themselves),
            failed,
            skipped: self.tally.ignored + skipped_themselves + whole,
        }
    }

    fn cells(&self) -> [String; 5] {
        let result = match &self.verdict {
            Verdict::Passed => "passed".to_owned(),
            Verdict::Failed(why) => format!("FAILED: {why}"),
            Verdict::Skipped(why) => format!("SKIPPED: {why}"),
            Verdict::NotYet(why) => format!("not there yet: {why}"),
            Verdict::NotNeeded(why) => format!("not needed: {why}"),
        };
        let Counts { passed, failed, skipped } = self.counts();
        let counts = if (passed, failed, skipped) == (0, 0, 0) {
            "-".to_owned()
        } else {
            format!("{passed}/{failed}/{skipped}")
        };
        let budget = self.budget.map_or_else(|| "-".to_owned(), told);
        let over = if self.is_over_budget() { " OVER" } else { "" };
        [self.name.clone(), counts, seconds(self.took), format!("{budget}{over}"), result]
    }
}

impl Counts {
    pub(crate) fn of(rows: &[Row]) -> Self {
        rows.iter().map(Row::counts).fold(Self::default(), |sum, row| Self {
            passed: sum.passed + row.passed,
            failed: sum.failed + row.failed,
            skipped: sum.skipped + row.skipped,
        })
    }
}

/// All that a run came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) rows: Vec<Row>,
    /// What took turns, and which of it was in this run.
    pub(crate) turns: Vec<String>,
}

/// Packages whose tests are about several layers; every other one has the time of a layer.
const WIDE: [&str; 3] = ["viaduct", "viaduct-conformance", "viaduct-faults"];

/// Prints everything; the counts are the last line.
pub(crate) fn print(outcome: &Outcome) {
    print!("{}", text(outcome));
}

/// A budget as one says it.
pub(crate) fn told(budget: Duration) -> String {
    match budget.as_secs() {
        short if !short.is_multiple_of(60) => format!("{short} s"),
        long => format!("{} min", long / 60),
    }
}

/// Packages that took more than a layer may: by the clock, their tests side by side as all are.
fn over_quota(row: &Row) -> Vec<String> {
    let all: f64 = row.tally.times.values().sum();
    let share = |seconds: &f64| row.took.mul_f64(if all > 0.0 { seconds / all } else { 0.0 });
    let layers = row.tally.times.iter().filter(|(package, _)| !WIDE.contains(&package.as_str()));
    let over = layers.map(|(package, seconds)| (package, share(seconds))).filter(|(_, share)| *share > LAYER);
    over.map(|(package, share)| format!("{package}: {}, and {} is the quota", seconds(share), told(LAYER)))
        .collect()
}

fn text(outcome: &Outcome) -> String {
    let rows = &outcome.rows;
    let mut text = format!("\n{}", table(rows));
    for row in rows.iter().filter(|row| !row.tally.failures.is_empty()) {
        text += &format!("\nfailed in {}:\n", row.name);
        text.extend(row.tally.failures.iter().map(|test| format!("  {test}\n")));
    }
    for row in rows.iter().filter(|row| !row.skips.is_empty()) {
        text += &format!("\nskipped in {}:\n", row.name);
        text.extend(row.skips.iter().map(|(test, reasons)| format!("  {test}: {}\n", reasons.join("; "))));
    }
    for row in rows.iter().filter(|row| row.tally.ignored > 0) {
        text += &format!("\nignored by attribute in {}: {}\n", row.name, row.tally.ignored);
    }
    for row in rows.iter().filter(|row| !row.tally.flaky.is_empty()) {
        text += &format!("\nFLAKY in {} (failed, then passed):\n", row.name);
        text.extend(row.tally.flaky.iter().map(|test| format!("  {test}\n")));
    }
    for row in rows {
        text.extend(
            over_quota(row)
                .iter()
                .map(|line| format!("\nOVER THE QUOTA of a layer in {}: {line}\n", row.name)),
        );
    }
    if !outcome.turns.is_empty() {
        text += "\nwhat takes turns (a full run has all of it):\n";
        text.extend(outcome.turns.iter().map(|line| format!("  {line}\n")));
    }
    let Counts { passed, failed, skipped } = Counts::of(rows);
    text + &format!("\n{passed} passed, {failed} failed, {skipped} skipped\n")
}

fn table(rows: &[Row]) -> String {
    let head = ["suite", "pass/fail/skip", "time", "budget", "result"].map(str::to_owned);
    let lines: Vec<[String; 5]> = std::iter::once(head).chain(rows.iter().map(Row::cells)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3].map(width);
    let mut text = String::new();
    for [name, counts, time, budget, result] in &lines {
        let [a, b, c, d] = widths;
        text += &format!("{name:<a$}  {counts:>b$}  {time:>c$}  {budget:<d$}  {result}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(verdict: Verdict, passed: u64, failed: u64) -> Row {
        let mut row = Row::new("tests", verdict, Duration::from_secs(61), Some(Duration::from_secs(60)));
        row.tally = Tally { passed, failed, ..Tally::default() };
        row
    }

    #[test]
    fn a_test_that_skipped_itself_is_not_passed() {
        let mut row = row(Verdict::Passed, 5, 0);
        row.tally.ignored = 1;
        row.skips.insert("a::b".to_owned(), vec!["no strace".to_owned(), "no gcc".to_owned()]);
        assert_eq!(Counts::of(&[row]), Counts { passed: 4, failed: 0, skipped: 2 });
    }

    #[test]
    fn a_failure_without_failed_tests_counts_as_one() {
        let rows =
            [row(Verdict::Failed("exit 101".to_owned()), 3, 0), row(Verdict::Failed(String::new()), 0, 2)];
        assert_eq!(Counts::of(&rows), Counts { passed: 3, failed: 3, skipped: 0 });
        assert!(rows.iter().all(|row| !row.is_good()));
    }

    #[test]
    fn a_skipped_suite_counts_as_one_and_is_good() {
        let rows =
            [row(Verdict::Skipped("no Miri".to_owned()), 0, 0), row(Verdict::NotYet(String::new()), 0, 0)];
        assert_eq!(Counts::of(&rows), Counts { passed: 0, failed: 0, skipped: 1 });
        assert!(rows.iter().all(Row::is_good));
    }

    #[test]
    fn the_last_line_is_the_counts_and_over_budget_is_said() {
        let mut row = row(Verdict::Passed, 5, 0);
        row.skips.insert("a::b".to_owned(), vec!["no strace".to_owned()]);
        let text = text(&Outcome { rows: vec![row], turns: vec!["loom: not in this run".to_owned()] });
        assert!(text.contains("  loom: not in this run\n"), "{text}");
        assert!(text.ends_with("\n4 passed, 0 failed, 1 skipped\n"), "{text}");
        assert!(text.contains("OVER") && text.contains("a::b: no strace"), "{text}");
    }

    #[test]
    fn tests_that_another_suite_runs_are_not_counted_here() {
        let mut row = row(Verdict::Passed, 5, 0);
        row.skips.insert("a::b".to_owned(), vec!["needs root".to_owned()]);
        assert_eq!(row.hand_on_skips(), ["a::b"]);
        assert_eq!(Counts::of(&[row]), Counts { passed: 4, failed: 0, skipped: 0 });
    }

    #[test]
    fn a_layer_that_takes_too_long_is_named() {
        let mut row = row(Verdict::Passed, 5, 0);
        row.took = Duration::from_secs(100);
        let times = [("viaduct-slow", 180.0), ("viaduct-quick", 10.0), ("viaduct", 190.0)];
        row.tally.times = times.map(|(package, time)| (package.to_owned(), time)).into();
        let over = over_quota(&row);
        assert_eq!(over.len(), 1);
        assert!(over[0].starts_with("viaduct-slow: 47"), "{over:?}");
    }

    #[test]
    fn budgets_are_said_in_minutes_where_they_are_whole() {
        assert_eq!(
            (told(Duration::from_secs(120)), told(Duration::from_secs(45))),
            ("2 min".to_owned(), "45 s".to_owned())
        );
    }
}
