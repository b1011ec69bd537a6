//! `cargo xtask test`: packages, build, suites; each with a budget, told and compared, never enforced.
//!
//! A suite that goes far beyond its budget hangs; it is ended and has failed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::geteuid;
use viaduct_kit::effort;
use viaduct_kit::packages::SKIP_LOG;
use viaduct_kit::tempdir::TempDir;

use crate::packages;
use crate::programs;
use crate::progress::{self, say};
use crate::rotation::Rotation;
use crate::step::{End, Step};
use crate::suites::{Context, Plan, SUITES, Suite, minutes, seconds};
use crate::summary::{Outcome, Row, Verdict, told};
use crate::tally::Tally;
use crate::wheels;
use crate::workspace::Workspace;

/// The budget of the build.
pub(crate) const BUILD: Duration = seconds(140);

/// A suite that takes this many times its budget hangs.
const HANG: u32 = 4;

/// Whatever its budget, a busy machine may take this long.
const SHORTEST_HANG: Duration = minutes(20);

/// What was asked for on the command line.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) full: bool,
    pub(crate) install: bool,
    /// A test that fails and then passes has failed.
    pub(crate) strict: bool,
    pub(crate) filter: Option<String>,
    /// One suite instead of all.
    pub(crate) only: Option<&'static str>,
}

/// Runs what is wanted; a suite that fails does not keep the others from running.
pub(crate) fn run(workspace: &Workspace, wanted: &Wanted) -> Result<Outcome> {
    let everything = wanted.full || wanted.filter.is_some() || wanted.only.is_some();
    let rotation = RefCell::new(Rotation::new(&workspace.root, &workspace.target_directory, everything));
    let skipped = RefCell::default();
    let context = Context { workspace, wanted, rotation: &rotation, skipped: &skipped };
    let mut rows = Vec::new();
    if wanted.only.is_none() {
        packages::provide(wanted.install, wanted.full);
        wheels::provide(wanted.install, wanted.full, &workspace.target_directory);
        programs::provide(wanted.install, wanted.full, &workspace.target_directory);
        let everything = Step::cargo(["build", "--workspace", "--all-targets"]);
        let build = run_steps("build", BUILD, vec![everything], wanted)?;
        let good = build.is_good();
        rows.push(build);
        if !good {
            say("the build failed, so no suite is run");
            return Ok(Outcome { rows, turns: Vec::new() });
        }
    }
    for suite in SUITES {
        match budget(suite, wanted, &rotation.borrow()) {
            Err(reason) => {
                say(format_args!("{}: left out ({reason})", suite.name));
                continue;
            }
            Ok(budget) => rows.push(run_suite(suite, budget, &context)?),
        }
        if let Some(row) = rows.last_mut() {
            if suite.name == "tests" && geteuid().is_root() {
                skipped.replace(row.hand_on_skips());
            }
            if row.verdict == Verdict::Passed && wanted.filter.is_none() {
                rotation.borrow_mut().passed(suite.name);
            }
        }
    }
    if let Some(filter) = wanted.filter.as_deref().filter(|_| ran_nothing(&rows)) {
        let verdict = Verdict::Failed(format!("no test has \"{filter}\" in its name"));
        rows.push(Row::new("filter", verdict, Duration::ZERO, None));
    }
    let turns = if everything { Vec::new() } else { rotation.borrow().lines() };
    Ok(Outcome { rows, turns })
}

/// Runs commands one after the other and sums them up in a line of the table.
pub(crate) fn run_steps(name: &str, budget: Duration, steps: Vec<Step>, wanted: &Wanted) -> Result<Row> {
    say(format_args!("== {name} (budget {})", told(budget)));
    let start = Instant::now();
    let patience = (budget * HANG).max(SHORTEST_HANG);
    let log = SkipLog::new()?;
    let mut tally = Tally::default();
    let mut bad = Vec::new();
    for mut step in steps {
        step.command.env(SKIP_LOG, log.path());
        if wanted.full {
            step.command.env(effort::FULL, "1");
        }
        let filtered = wanted.filter.is_some() || !wanted.full;
        let mut own = Tally { harness: step.harness, filtered, ..Tally::default() };
        let end = step.run(patience.saturating_sub(start.elapsed()), &mut own)?;
        if !end.is_good() {
            bad.push(describe(end));
            // A crash ends a test binary without a result line.
            own.failed = own.failed.max(1);
        }
        tally.add(&own);
    }
    if wanted.strict && !tally.flaky.is_empty() {
        bad.push(format!("{} flaky tests", tally.flaky.len()));
    }
    let verdict = match bad.first() {
        None => Verdict::Passed,
        Some(first) if bad.len() == 1 => Verdict::Failed(first.clone()),
        Some(first) => Verdict::Failed(format!("{first}, and {} more", bad.len() - 1)),
    };
    let mut row = Row::new(name, verdict, start.elapsed(), Some(budget));
    row.tally = tally;
    row.skips = log.read();
    say(format_args!(
        "== {name}: {} after {}",
        if row.is_good() { "passed" } else { "FAILED" },
        progress::seconds(row.took)
    ));
    Ok(row)
}

fn run_suite(suite: &Suite, budget: Duration, context: &Context) -> Result<Row> {
    let start = Instant::now();
    let verdict = match (suite.plan)(context)? {
        Plan::Run(steps) => return run_steps(suite.name, budget, steps, context.wanted),
        Plan::Skip(reason) => {
            say(format_args!("SKIP {}: {reason}", suite.name));
            Verdict::Skipped(reason)
        }
        Plan::NotYet(reason) => {
            say(format_args!("{}: not there yet ({reason})", suite.name));
            Verdict::NotYet(reason)
        }
        Plan::NotNeeded(reason) => {
            say(format_args!("{}: not needed ({reason})", suite.name));
            Verdict::NotNeeded(reason)
        }
    };
    Ok(Row::new(suite.name, verdict, start.elapsed(), Some(budget)))
}

/// The suite's budget in this run, or why it is left out.
fn budget(suite: &Suite, wanted: &Wanted, rotation: &Rotation) -> Result<Duration, &'static str> {
    match (wanted.only, suite.quick) {
        (Some(only), _) if only != suite.name => Err("another one was asked for"),
        (None, None) if !wanted.full => Err("only with --full"),
        (None, _) if wanted.filter.is_some() && !suite.filters => Err("there is a filter"),
        (None, _) if !rotation.has_suite(suite.name) => Err("not its turn"),
        (_, Some(quick)) if !wanted.full => Ok(quick),
        _ => Ok(suite.full),
    }
}

fn ran_nothing(rows: &[Row]) -> bool {
    rows.iter().all(|row| row.is_good() && row.tally.passed + row.tally.failed + row.tally.ignored == 0)
}

fn describe(end: End) -> String {
    match end {
        End::Hung => "hung".to_owned(),
        End::Ended(status) => status.to_string(),
    }
}

/// The file in which tests note that they skipped themselves; open to every user.
struct SkipLog {
    folder: TempDir,
}

impl SkipLog {
    fn new() -> Result<Self> {
        let log = Self { folder: TempDir::new("skips") };
        log.folder.open_to_all();
        fs::write(log.path(), "")?;
        fs::set_permissions(log.path(), Permissions::from_mode(0o666))?;
        Ok(log)
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.join("log")
    }

    fn read(&self) -> BTreeMap<String, Vec<String>> {
        read_skips(&self.path())
    }
}

fn read_skips(log: &Path) -> BTreeMap<String, Vec<String>> {
    let mut skips: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in fs::read_to_string(log).unwrap_or_default().lines() {
        let (test, reason) = line.split_once('\t').unwrap_or((line, "no reason given"));
        let reasons = skips.entry(test.to_owned()).or_default();
        if !reasons.iter().any(|known| known == reason) {
            reasons.push(reason.to_owned());
        }
    }
    skips
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn wanted(full: bool, filter: Option<&str>, only: Option<&'static str>) -> Wanted {
        Wanted { full, filter: filter.map(str::to_owned), only, ..Wanted::default() }
    }

    fn suite(name: &'static str, quick: Option<u64>, filters: bool) -> Suite {
        let quick = quick.map(minutes);
        Suite { name, quick, full: minutes(9), filters, plan: |_| Ok(Plan::NotYet(String::new())) }
    }

    /// The budget in minutes, where nothing takes turns.
    fn budget(suite: &Suite, wanted: &Wanted) -> Result<u64, &'static str> {
        let folder = TempDir::new("turns");
        let rotation = Rotation::new(folder.path(), folder.path(), true);
        super::budget(suite, wanted, &rotation).map(|budget| budget.as_secs() / 60)
    }

    fn shell(script: &str) -> Step {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Step::new(command)
    }

    #[test]
    fn quick_full_and_filter_choose_suites() {
        assert_eq!(budget(&suite("a", Some(2), true), &wanted(false, None, None)), Ok(2));
        assert_eq!(budget(&suite("a", Some(2), true), &wanted(true, None, None)), Ok(9));
        assert!(budget(&suite("a", None, true), &wanted(false, None, None)).is_err());
        assert_eq!(budget(&suite("a", None, true), &wanted(false, None, Some("a"))), Ok(9));
        assert!(budget(&suite("a", Some(2), true), &wanted(false, None, Some("b"))).is_err());
        assert!(budget(&suite("a", Some(2), false), &wanted(false, Some("x"), None)).is_err());
    }

    #[test]
    fn steps_are_summed_up() {
        let script = "echo 'test result: ok. 3 passed; 0 failed; 0 ignored'; \
                      printf 'c::t\\tno strace\\nc::t\\tno strace\\nc::u\\tno gcc\\n' >> \"$VIADUCT_SKIP_LOG\"";
        let row = run_steps("x", minutes(1), vec![shell(script), shell(script)], &wanted(false, None, None))
            .unwrap();
        assert!(row.is_good());
        assert_eq!(row.tally.passed, 6);
        assert_eq!(row.skips.len(), 2);
        assert_eq!(row.skips["c::t"], ["no strace"]);
    }

    #[test]
    fn a_crash_counts_as_a_failure_and_others_still_run() {
        let good = shell("echo 'test result: ok. 1 passed; 0 failed; 0 ignored'");
        let row =
            run_steps("x", minutes(1), vec![shell("kill -9 $$"), good], &wanted(false, None, None)).unwrap();
        assert!(!row.is_good());
        assert_eq!((row.tally.passed, row.tally.failed), (1, 1));
    }

    #[test]
    fn a_flaky_test_is_named_and_fails_a_strict_run() {
        let step = || {
            let script = "echo '   FLAKY 2/3 [   0.006s] (2/4) pkg one'; \
                          echo '     Summary [   0.6s] 1 test run: 1 passed (1 flaky), 0 skipped'";
            vec![Step { harness: crate::tally::Harness::Nextest, ..shell(script) }]
        };
        let lenient = run_steps("x", minutes(1), step(), &Wanted::default()).unwrap();
        assert!(lenient.is_good());
        assert_eq!(lenient.tally.flaky, ["pkg one"]);
        let strict = Wanted { strict: true, ..Wanted::default() };
        assert!(!run_steps("x", minutes(1), step(), &strict).unwrap().is_good());
    }

    #[test]
    fn a_full_run_tells_the_tests() {
        let step = || vec![shell("test \"$VIADUCT_TEST_FULL\" = 1")];
        assert!(run_steps("x", minutes(1), step(), &wanted(true, None, None)).unwrap().is_good());
    }
}
