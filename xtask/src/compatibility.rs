//! `cargo xtask compatibility`: runs outside programs with and without Viaduct, and writes what became of them into the book.
//!
//! Each test of `tests/preload` that compares a program adds a line to a log (`compatibility.rs` there). Rows of programs that
//! this run did not see, because they are not installed or were filtered out, stay as they are.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::{Context, Result};
use viaduct_kit::tempdir::TempDir;

use crate::ordinary;
use crate::packages;
use crate::progress::say;
use crate::step::Step;
use crate::tally::Tally;
use crate::workspace::Workspace;

/// The page, below the root of the workspace.
const PAGE: &str = "docs/book/src/compatibility.md";

/// The rows stand between these lines; what is around them is written by hand.
const BEGIN: &str = "<!-- rows: cargo xtask compatibility -->";
const END: &str = "<!-- end of rows -->";

const HEAD: &str =
    "| program | run with | outcome | upgraded | why, if not all of it |\n|---|---|---|---|---|\n";

/// How long all programs together may take.
const LIMIT: Duration = Duration::from_secs(3600);

/// A row by program and what it was run with: outcome, upgraded connections, remark.
type Rows = BTreeMap<(String, String), [String; 3]>;

/// Runs the tests with names that contain `filter`, and writes the page. Whether every test passed.
pub(crate) fn run(workspace: &Workspace, filter: Option<&str>, install: bool) -> Result<bool> {
    packages::provide(install, true);
    let root = &workspace.root;
    let folder = TempDir::new("compatibility");
    folder.open_to_all();
    let log = folder.join("log");
    // Programs run as an ordinary user, also when root starts this: some refuse to be root's.
    fs::write(&log, "")?;
    fs::set_permissions(&log, Permissions::from_mode(0o666))?;
    let mut build = Step::cargo(["build", "-p", "viaduct", "-p", "viaduct-preload"]);
    let built = build.run(LIMIT, &mut Tally::default())?.is_good();
    let words = ["nextest", "run", "-p", "viaduct-preload-tests", "--no-fail-fast", "--test-threads", "1"];
    let step = Step::cargo(words.into_iter().chain(filter))
        .env("VIADUCT_TEST_COMPATIBILITY", &log)
        .env("VIADUCT_TEST_FULL", "1");
    let (mut step, as_root) = ordinary::demote(step, &workspace.target_directory)?;
    if let Some(reason) = as_root {
        say(format_args!("programs run as root: {reason}"));
    }
    let good = built && step.run(LIMIT, &mut Tally::default())?.is_good();
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| PAGE.to_owned())?;
    let mut rows = rows_of_page(&page);
    let before = rows.len();
    rows.extend(rows_of_log(&fs::read_to_string(&log).unwrap_or_default()));
    fs::write(root.join(PAGE), renewed(&page, &rows).context("the page has no place for rows")?)?;
    say(format_args!("{PAGE}: {} rows, {before} before", rows.len()));
    Ok(good)
}

fn rows_of_log(log: &str) -> Rows {
    let row = |line: &str| {
        let cells: Vec<String> = line.split('\t').map(|cell| cell.replace('|', "\\|")).collect();
        let [program, with, outcome, upgraded, remark] = cells.try_into().ok()?;
        Some(((program, with), [outcome, upgraded, remark]))
    };
    log.lines().filter_map(row).collect()
}

fn rows_of_page(page: &str) -> Rows {
    let rows = page.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map_or("", |(rows, _)| rows);
    let row = |line: &str| {
        let line = line.strip_prefix('|')?.strip_suffix('|')?;
        let cells: Vec<String> = line.split(" | ").map(|cell| cell.trim().to_owned()).collect();
        let [program, with, outcome, upgraded, remark] = cells.try_into().ok()?;
        Some(((program, with), [outcome, upgraded, remark]))
    };
    // The head and the line below it.
    rows.trim_start().lines().skip(2).filter_map(row).collect()
}

/// The page with these rows in the place of those that were there.
fn renewed(page: &str, rows: &Rows) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    let mut text = format!("{before}{BEGIN}\n\n{HEAD}");
    for ((program, with), [outcome, upgraded, remark]) in rows {
        text += &format!("| {program} | {with} | {outcome} | {upgraded} | {remark} |\n");
    }
    Some(format!("{text}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str =
        "# Title\n\n<!-- rows: cargo xtask compatibility -->\n<!-- end of rows -->\n\nwords\n";

    #[test]
    fn rows_are_written_and_read_again() {
        let rows = rows_of_log("b\tx, y\tworks\t3\t\na\tz\tfalls back\t0\ta|b\nnonsense\n");
        let page = renewed(EMPTY, &rows).unwrap();
        assert!(
            page.contains("|---|\n| a | z | falls back | 0 | a\\|b |\n| b | x, y | works | 3 |  |\n"),
            "{page}"
        );
        assert!(page.starts_with("# Title\n") && page.ends_with("\n\nwords\n"));
        assert_eq!(rows_of_page(&page), rows);
        assert_eq!(renewed(&page, &rows), Some(page));
    }

    #[test]
    fn rows_that_a_run_has_not_seen_stay() {
        let page = renewed(EMPTY, &rows_of_log("a\tz\tworks\t1\t\n")).unwrap();
        let mut rows = rows_of_page(&page);
        rows.extend(rows_of_log("b\tz\tworks\t1\t\n"));
        assert_eq!(rows.len(), 2);
    }

    #[test]
    fn the_page_has_a_place_for_rows() {
        let page = include_str!("../../docs/book/src/compatibility.md");
        assert!(
            !rows_of_page(page).is_empty() && renewed(page, &rows_of_page(page)).as_deref() == Some(page)
        );
    }
}
