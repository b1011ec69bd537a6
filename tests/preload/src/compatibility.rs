//! The table of programs in the book: a line for each that was run, made from what the tests found.
//!
//! A test that has compared a program with and without Viaduct [`note`]s the outcome. It must be what the book says, so
//! that the book cannot promise what the tests do not see; `cargo xtask compatibility` runs the tests and writes the page.

use std::env;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write;

use crate::apps::source;

/// Names the file to which each test adds its line, instead of comparing with the book.
pub const LOG: &str = "VIADUCT_TEST_COMPATIBILITY";

/// The page in the book.
pub const PAGE: &str = "../../docs/book/src/compatibility.md";

/// What became of a program under Viaduct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It behaves as without, and connections were upgraded.
    Works,
    /// It behaves as without, on plain TCP.
    FallsBack,
    /// It does not run, and says why.
    Refused,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Works => "works",
            Outcome::FallsBack => "falls back",
            Outcome::Refused => "refused",
        })
    }
}

/// A line of the table.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The program or suite.
    pub program: &'a str,
    /// What it was run with, or what was run of it.
    pub with: &'a str,
    /// What became of it.
    pub outcome: Outcome,
    /// Connections that were upgraded.
    pub upgraded: usize,
    /// Why, where it does not simply work.
    pub remark: &'a str,
}

/// Notes a line, or compares it with the book.
///
/// # Panics
/// If the book says otherwise.
pub fn note(entry: &Entry<'_>) {
    // A short connection may or may not be upgraded in what falls back; what works has upgraded ones.
    assert!(entry.outcome != Outcome::Works || entry.upgraded > 0, "{entry:?}");
    let Entry { program, with, outcome, upgraded, remark } = entry;
    if let Some(log) = env::var_os(LOG) {
        let line = format!("{program}\t{with}\t{outcome}\t{upgraded}\t{remark}\n");
        let file = OpenOptions::new().append(true).create(true).open(&log);
        // One write, so that lines of tests at the same time do not mix.
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .unwrap_or_else(|error| panic!("{log:?}: {error}"));
        return;
    }
    let page = fs::read_to_string(source(PAGE)).expect("the book has the table");
    let said = page.lines().any(|line| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let (first, second, third) = (cells.next(), cells.next(), cells.next());
        [first, second, third] == [Some(*program), Some(*with), Some(&outcome.to_string())]
    });
    assert!(
        said,
        "the book does not say `| {program} | {with} | {outcome} |`: cargo xtask compatibility writes it"
    );
}
