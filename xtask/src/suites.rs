//! The table of suites. To add one: write a function that plans it, and add a line to [`SUITES`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::fuzzing;
use crate::instructions;
use crate::ordinary;
use crate::progress::say;
use crate::rotation::Rotation;
use crate::step::Step;
use crate::tally::Harness;
use crate::test::Wanted;
use crate::workspace::{self, Workspace, succeeds};

/// A line of the table.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// The budget of a quick run; none if the suite is only for full runs.
    pub(crate) quick: Option<Duration>,
    /// The budget of a full run.
    pub(crate) full: Duration,
    /// Whether it takes part in a run with a filter; it does so too when it is asked for by name.
    pub(crate) filters: bool,
    pub(crate) plan: fn(&Context) -> Result<Plan>,
}

/// What a quick run may take on two cores, build included.
#[cfg(test)]
const WHOLE: Duration = minutes(15);

/// What the tests of one layer may take of it on the clock; each layer has one smoke test against outside programs.
pub(crate) const LAYER: Duration = Duration::from_secs(45);

/// Layers that are there: River and its sort, MPI, Cashmere, unmodified programs. The suite `tests` has a [`LAYER`] for each.
const THERE: u64 = 4;

/// Layers that are still to come.
#[cfg(test)]
const TO_COME: u32 = 3;

/// Every suite, in the order in which they run. The quick budgets and that of the build leave room for what is to come;
/// suites that take turns (`rotation.rs`) share a budget of their own.
pub(crate) const SUITES: &[Suite] = &[
    Suite {
        name: "tests",
        quick: Some(seconds(110 + THERE * LAYER.as_secs())),
        full: minutes(60),
        filters: true,
        plan: tests,
    },
    Suite {
        name: "root",
        quick: Some(seconds(35)),
        full: minutes(10),
        filters: true,
        plan: ordinary::plan_rest,
    },
    Suite { name: "doc-tests", quick: Some(seconds(15)), full: minutes(3), filters: false, plan: doc_tests },
    Suite { name: "fuzz-check", quick: None, full: minutes(3), filters: false, plan: fuzzing::plan_check },
    Suite { name: "fuzz", quick: None, full: minutes(15), filters: false, plan: fuzzing::plan },
    Suite { name: "loom", quick: Some(minutes(2)), full: minutes(30), filters: false, plan: loom },
    Suite { name: "miri", quick: Some(minutes(3)), full: minutes(20), filters: false, plan: miri },
    Suite { name: "release", quick: Some(minutes(4)), full: minutes(8), filters: false, plan: release },
    Suite {
        name: "instructions",
        quick: Some(minutes(5)),
        full: minutes(6),
        filters: false,
        plan: instructions::plan,
    },
    Suite {
        name: "as-root",
        quick: Some(minutes(3)),
        full: minutes(60),
        filters: false,
        plan: ordinary::plan_all,
    },
];

/// For the table.
pub(crate) const fn minutes(number: u64) -> Duration {
    Duration::from_secs(60 * number)
}

/// For the table.
pub(crate) const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// What a suite does in this run.
#[derive(Debug)]
pub(crate) enum Plan {
    Run(Vec<Step>),
    /// The machine cannot; counts as skipped.
    Skip(String),
    /// There is no such test yet.
    NotYet(String),
    /// Has been done otherwise.
    NotNeeded(String),
}

/// What a plan may depend on.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) wanted: &'a Wanted,
    /// What has its turn.
    pub(crate) rotation: &'a RefCell<Rotation>,
    /// Tests that skipped themselves as an ordinary user, for the suite that runs them as root.
    pub(crate) skipped: &'a RefCell<Vec<String>>,
}

/// Unit and integration tests of all packages, as an ordinary user.
fn tests(context: &Context) -> Result<Plan> {
    let rotation = context.rotation.borrow();
    let step = test_step(&rotation.filterset(), &rotation.skips(), context.wanted.filter.as_deref())?;
    let (step, as_root) = ordinary::demote(step, &context.workspace.target_directory)?;
    if let Some(reason) = as_root {
        say(format_args!("the tests run as root: {reason}"));
    }
    Ok(Plan::Run(vec![step]))
}

/// Tests that a filterset takes: each in a process of its own where nextest is at hand. Without it, the names that start
/// with one of `skips` are left out instead.
pub(crate) fn test_step(filterset: &str, skips: &[&str], filter: Option<&str>) -> Result<Step> {
    if !has_nextest() {
        say("cargo-nextest is not installed: cargo test does it");
        let fixed = ["test", "--workspace", "--tests", "--no-fail-fast", "--"];
        let skips = skips.iter().flat_map(|skip| ["--skip", *skip]);
        return Ok(Step::cargo(fixed.into_iter().chain(skips).chain(filter)));
    }
    let threads = (2 * std::thread::available_parallelism()?.get()).max(4).to_string();
    let fixed = ["nextest", "run", "--workspace", "--profile", "xtask", "--no-tests", "pass"];
    let chosen = ["--test-threads", &threads, "--filterset", filterset];
    Ok(Step { harness: Harness::Nextest, ..Step::cargo(fixed.into_iter().chain(chosen).chain(filter)) })
}

fn doc_tests(_context: &Context) -> Result<Plan> {
    Ok(Plan::Run(vec![Step::cargo(["test", "--workspace", "--doc", "--no-fail-fast"])]))
}

/// What users get, as they get it; with the programs whose instructions are counted if it is their turn, too: one build
/// for both.
fn release(context: &Context) -> Result<Plan> {
    let counted = context.rotation.borrow().has_suite("instructions");
    let together = if counted { instructions::release_build() } else { None };
    Ok(Plan::Run(vec![together.map_or_else(|| Step::cargo(["build", "--release"]), Step::new)]))
}

/// Test targets named `loom...` are models: they are compiled with loom's atomics, into a folder of their own.
fn loom(context: &Context) -> Result<Plan> {
    let targets = context.workspace.test_targets("loom");
    if targets.is_empty() {
        return Ok(Plan::NotYet("no test target whose name starts with loom".to_owned()));
    }
    let flags = [std::env::var("RUSTFLAGS").unwrap_or_default(), "--cfg loom".to_owned()].join(" ");
    let preemptions = if context.wanted.full { "3" } else { "2" };
    let step = |package: &str, targets: &[&str]| {
        let fixed = ["test", "--release", "--no-fail-fast", "--package", package];
        let tests = targets.iter().flat_map(|target| ["--test", *target]);
        let filter = ["--"].into_iter().chain(context.wanted.filter.as_deref());
        Step::cargo(fixed.into_iter().chain(tests).chain(filter))
            .env("RUSTFLAGS", flags.trim())
            // Optimising over crates takes longer here than it saves.
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_TARGET_DIR", context.workspace.target_directory.join("loom"))
            .env(
                "LOOM_MAX_PREEMPTIONS",
                std::env::var("LOOM_MAX_PREEMPTIONS").as_deref().unwrap_or(preemptions),
            )
    };
    let mut by_package: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (package, target) in &targets {
        by_package.entry(&package.name).or_default().push(&target.name);
    }
    Ok(Plan::Run(by_package.iter().map(|(package, targets)| step(package, targets)).collect()))
}

/// Packages ask for Miri in their manifest: `[package.metadata.xtask]`, `miri = ["--lib"]`.
fn miri(context: &Context) -> Result<Plan> {
    let packages = &context.workspace.packages;
    let wishes: Vec<_> =
        packages.iter().filter_map(|package| Some((&package.name, package.miri()?))).collect();
    if wishes.is_empty() {
        return Ok(Plan::NotYet("no package with miri in [package.metadata.xtask]".to_owned()));
    }
    let miri = has_miri() || (context.wanted.install && add_miri());
    if !miri {
        let hint = "rustup component add --toolchain nightly miri rust-src";
        return Ok(Plan::Skip(format!("no Miri on the nightly toolchain ({hint})")));
    }
    let step = |package: &str, arguments: &[String]| {
        let mut command = nightly_cargo();
        // Cargo takes one name of tests, the harness any number.
        let (options, names): (Vec<_>, Vec<_>) = arguments.iter().partition(|word| word.starts_with('-'));
        command.args(["miri", "test", "--package", package]).args(options);
        command.arg("--").args(names).args(&context.wanted.filter);
        command.env("CARGO_TARGET_DIR", context.workspace.target_directory.join("miri"));
        Step::new(command)
    };
    Ok(Plan::Run(wishes.iter().map(|(package, arguments)| step(package, arguments)).collect()))
}

fn has_nextest() -> bool {
    succeeds(workspace::cargo().args(["nextest", "--version"]))
}

fn has_miri() -> bool {
    succeeds(nightly_cargo().args(["miri", "--version"]))
}

/// Adds Miri to a nightly toolchain that is there; installs no toolchain.
fn add_miri() -> bool {
    let has_nightly = succeeds(nightly_cargo().arg("--version"));
    if has_nightly {
        say("adding the component miri to the nightly toolchain");
    }
    let add = ["component", "add", "--toolchain", "nightly", "miri", "rust-src"];
    has_nightly && succeeds(Command::new("rustup").args(add)) && has_miri()
}

/// The Cargo of the nightly toolchain, if that is installed.
pub(crate) fn nightly_cargo() -> Command {
    let mut command = Command::new("rustup");
    // What the stable Cargo that runs us has set would lead the other one astray.
    for stray in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(stray);
    }
    command.args(["run", "nightly", "cargo"]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::sample;
    use std::collections::BTreeSet;
    use viaduct_kit::tempdir::TempDir;

    fn wanted() -> Wanted {
        Wanted { filter: Some("ring".to_owned()), ..Wanted::default() }
    }

    /// Plans a suite for a workspace.
    fn plan(suite: fn(&Context) -> Result<Plan>, workspace: &Workspace) -> Plan {
        let folder = TempDir::new("plan");
        let rotation = RefCell::new(Rotation::new(folder.path(), folder.path(), true));
        let skipped = RefCell::default();
        let (wanted, rotation, skipped) = (&wanted(), &rotation, &skipped);
        suite(&Context { workspace, wanted, rotation, skipped }).unwrap()
    }

    #[test]
    fn names_are_different_and_a_quick_run_has_room_for_what_is_to_come() {
        let names: BTreeSet<_> = SUITES.iter().map(|suite| suite.name).collect();
        assert_eq!(names.len(), SUITES.len());
        let each_time = SUITES.iter().filter(|suite| !Rotation::turns(suite.name));
        let suites: Duration = each_time.filter_map(|suite| suite.quick).sum();
        let now = crate::test::BUILD + suites + crate::rotation::most();
        assert!(now + TO_COME * LAYER <= WHOLE, "{now:?} now, and {TO_COME} layers to come");
        assert!(SUITES.iter().all(|suite| suite.quick.is_none_or(|quick| quick <= suite.full)));
    }

    #[test]
    fn loom_is_planned_for_the_targets_there_are() {
        let mut workspace = sample();
        let Plan::Run(steps) = plan(loom, &workspace) else { panic!("the sample has a model") };
        let arguments: Vec<_> =
            steps[0].command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let wish = "test --release --no-fail-fast --package viaduct-os --test loom_ring -- ring";
        assert_eq!(arguments.join(" "), wish);
        workspace.packages.clear();
        assert!(matches!(plan(loom, &workspace), Plan::NotYet(_)));
    }

    #[test]
    fn miri_is_said_not_to_be_there_yet() {
        let mut workspace = sample();
        workspace.packages.clear();
        assert!(matches!(plan(miri, &workspace), Plan::NotYet(_)));
    }
}
