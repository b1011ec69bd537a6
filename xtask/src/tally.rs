//! Counting tests by reading what libtest and nextest print.

use std::collections::BTreeMap;

/// The program that prints the results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Harness {
    #[default]
    Libtest,
    /// Shows what failed tests printed, libtest's results included, which therefore do not count.
    Nextest,
}

/// Tests counted in the output of a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) harness: Harness,
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    /// The tests that failed, once each.
    pub(crate) failures: Vec<String>,
    /// Tests that failed and passed when they were tried again.
    pub(crate) flaky: Vec<String>,
    /// Seconds that the tests of each package took, one test after the other.
    pub(crate) times: BTreeMap<String, f64>,
    /// With a filter nextest calls skipped what was not asked for.
    pub(crate) filtered: bool,
}

impl Tally {
    /// Looks at one line of output.
    pub(crate) fn read(&mut self, line: &str) {
        let line = without_colours(line);
        let line = line.trim();
        match self.harness {
            Harness::Libtest => self.read_libtest(line),
            Harness::Nextest => self.read_nextest(line),
        }
    }

    /// Adds another count to this one.
    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.failures.extend(other.failures.iter().cloned());
        self.flaky.extend(other.flaky.iter().cloned());
        for (package, seconds) in &other.times {
            *self.times.entry(package.clone()).or_default() += seconds;
        }
    }

    fn read_libtest(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("test result: ") {
            self.read_libtest_result(rest);
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.add_failure(name);
        }
    }

    fn read_nextest(&mut self, line: &str) {
        if let Some((_, rest)) = line.split_once("] ").filter(|_| line.starts_with("Summary [")) {
            self.read_nextest_summary(rest);
        } else if let Some(status) = NextestLine::parse(line) {
            self.read_nextest_line(&status);
        }
    }

    fn read_nextest_line(&mut self, line: &NextestLine) {
        if line.word == "FLAKY" {
            if !self.flaky.iter().any(|known| known == line.name) {
                self.flaky.push(line.name.to_owned());
            }
        } else if line.is_bad() {
            self.add_failure(line.name);
        } else if let ("PASS", Some(seconds)) = (line.word, line.seconds) {
            let package = line.name.split([':', ' ']).next().unwrap_or_default();
            *self.times.entry(package.to_owned()).or_default() += seconds;
        }
    }

    /// `ok. 5 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s`
    fn read_libtest_result(&mut self, result: &str) {
        let counts = result.split_once(". ").map_or(result, |(_, counts)| counts);
        for (number, what) in numbers(counts, ';') {
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }

    /// `52 tests run: 50 passed (1 slow), 1 failed, 1 timed out, 3 skipped`, or `7/52 tests run: ...` if cut short.
    fn read_nextest_summary(&mut self, summary: &str) {
        let Some((run, counts)) = summary.split_once(" run: ") else { return };
        let run = run.split(['/', ' ']).next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let mut passed = 0;
        for (number, what) in numbers(counts, ',') {
            match what.split(' ').next() {
                Some("passed") => passed = number,
                Some("skipped") if !self.filtered => self.ignored += number,
                _ => {}
            }
        }
        self.passed += passed;
        self.failed += u64::saturating_sub(run, passed);
    }

    fn add_failure(&mut self, name: &str) {
        if !self.failures.iter().any(|known| known == name) {
            self.failures.push(name.to_owned());
        }
    }
}

/// `FAIL [   0.2s] ( 9/52) package test`, with `TRY 3 ` in front or ` 2/3` behind the word where tests are tried again;
/// an attempt that is not the last has no number in the parentheses.
#[derive(Debug)]
struct NextestLine<'a> {
    word: &'a str,
    seconds: Option<f64>,
    last: bool,
    name: &'a str,
}

impl<'a> NextestLine<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (head, rest) = line.split_once(" [")?;
        let (word, attempts) = match head.split_once(' ') {
            None => (head, None),
            Some(("TRY", rest)) => rest.split_once(' ').map(|(number, word)| (word, Some(number)))?,
            Some((word, number)) => (word, Some(number)),
        };
        let is_word = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'/');
        if !is_word || !attempts.is_none_or(is_number) {
            return None;
        }
        let (time, name) = rest.split_once("] ")?;
        let time = time.trim_start_matches('>').trim().strip_suffix('s')?;
        let name = name.trim_start();
        let (place, name) = match name.strip_prefix('(').and_then(|rest| rest.split_once(") ")) {
            Some((place, name)) => (Some(place), name),
            None => (None, name),
        };
        let last = place.is_none_or(|place| place.contains('/'));
        Some(Self { word, seconds: time.parse().ok(), last, name })
    }

    /// Other words than FAIL are signals and time-outs.
    fn is_bad(&self) -> bool {
        const HARMLESS: [&str; 9] =
            ["PASS", "LEAK", "SLOW", "SKIP", "START", "SETUP", "TRY", "RETRY", "FLAKY"];
        self.last && !HARMLESS.contains(&self.word)
    }
}

fn numbers(counts: &str, separator: char) -> impl Iterator<Item = (u64, &str)> {
    counts.split(separator).filter_map(|part| {
        let (number, what) = part.trim().split_once(' ')?;
        Some((number.parse().ok()?, what))
    })
}

/// Drops terminal escape sequences that end with a letter.
fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        if char == '\u{1b}' {
            chars.find(char::is_ascii_alphabetic);
        } else {
            plain.push(char);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(harness: Harness, lines: &[&str]) -> Tally {
        let mut tally = Tally { harness, ..Tally::default() };
        lines.iter().for_each(|line| tally.read(line));
        tally
    }

    #[test]
    fn libtest_results_add_up() {
        let tally = read(
            Harness::Libtest,
            &[
                "test a::one ... ok",
                "test a::two ... FAILED",
                "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
                "test result: ok. 7 passed; 0 failed; 2 ignored; 0 measured; 9 filtered out; finished in 0.10s",
            ],
        );
        assert_eq!((tally.passed, tally.failed, tally.ignored), (8, 1, 2));
        assert_eq!(tally.failures, ["a::two"]);
    }

    #[test]
    fn nextest_summaries_count_every_bad_end() {
        let tally = read(
            Harness::Nextest,
            &[
                "        PASS [   0.005s] (1/5) pkg one",
                "        FAIL [   0.005s] (2/5) pkg::bin two",
                "    test two ... FAILED",
                "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.00s",
                "     SIGABRT [   0.005s] (3/5) pkg::bin three",
                "        SLOW [> 60.000s] pkg::bin four",
                "     Summary [   1.507s] 5 tests run: 3 passed (1 slow), 1 failed, 1 timed out, 4 skipped",
                "        FAIL [   0.005s] (2/5) pkg::bin two",
            ],
        );
        assert_eq!((tally.passed, tally.failed, tally.ignored), (3, 2, 4));
        assert_eq!(tally.failures, ["pkg::bin two", "pkg::bin three"]);
    }

    #[test]
    fn a_test_that_passes_when_tried_again_is_flaky_and_no_failure() {
        let tally = read(
            Harness::Nextest,
            &[
                "  TRY 1 FAIL [   0.234s] (───) pkg flaky",
                "  TRY 2 PASS [   0.006s] (2/4) pkg flaky",
                "  TRY 1 ABRT [   0.010s] (───) pkg crash",
                "  TRY 3 ABRT [   0.010s] (1/4) pkg crash",
                "     Summary [   0.626s] 2 tests run: 1 passed (1 flaky), 1 failed, 0 skipped",
                "   FLAKY 2/3 [   0.006s] (2/4) pkg flaky",
                "  TRY 3 ABRT [   0.010s] (1/4) pkg crash",
            ],
        );
        assert_eq!((tally.passed, tally.failed), (1, 1));
        assert_eq!(
            (tally.flaky, tally.failures),
            (vec!["pkg flaky".to_owned()], vec!["pkg crash".to_owned()])
        );
    }

    #[test]
    fn the_time_of_a_package_is_that_of_its_tests() {
        let lines = [
            "PASS [   1.500s] (1/3) pkg::main one",
            "PASS [   0.500s] (2/3) pkg two",
            "PASS [   2.000s] (3/3) other x",
        ];
        let times = read(Harness::Nextest, &lines).times;
        assert_eq!(
            times.into_iter().collect::<Vec<_>>(),
            [("other".to_owned(), 2.0), ("pkg".to_owned(), 2.0)]
        );
    }

    #[test]
    fn colours_do_not_matter() {
        let line = "\u{1b}[32;1m     Summary\u{1b}[0m [   0.5s] \u{1b}[1m2\u{1b}[0m tests run: \u{1b}[1m2\u{1b}[0m passed, 0 skipped";
        assert_eq!(read(Harness::Nextest, &[line]).passed, 2);
    }

    #[test]
    fn tests_that_a_filter_left_out_are_not_skipped() {
        let mut tally = Tally { harness: Harness::Nextest, filtered: true, ..Tally::default() };
        tally.read("     Summary [   0.5s] 2 tests run: 2 passed, 50 skipped");
        assert_eq!((tally.passed, tally.ignored), (2, 0));
    }

    #[test]
    fn other_lines_count_nothing() {
        let lines = ["running 5 tests", "test result: nonsense", "Summary", "ERROR [x] y", "warning: [a] b"];
        for harness in [Harness::Libtest, Harness::Nextest] {
            assert_eq!(read(harness, &lines), Tally { harness, ..Tally::default() });
        }
    }
}
