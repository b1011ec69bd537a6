//! The table of suites. To add one: write a function that plans it, and add a line to [`SUITES`].

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::instructions;
use crate::ordinary;
use crate::progress::say;
use crate::step::Step;
use crate::tally::Harness;
use crate::test::Wanted;
use crate::workspace::{self, Workspace};
use crate::worlds;

/// A line of the table.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// The budget of a quick run in minutes; none if the suite is only for full runs.
    pub(crate) quick: Option<u64>,
    /// The budget of a full run in minutes.
    pub(crate) full: u64,
    /// Whether it takes part in a run with a filter; it does so too when it is asked for by name.
    pub(crate) filters: bool,
    pub(crate) plan: fn(&Context) -> Result<Plan>,
}

/// Every suite, in the order in which they run. The quick budgets, with those of lint and build, make 30 minutes.
pub(crate) const SUITES: &[Suite] = &[
    Suite { name: "tests", quick: Some(8), full: 60, filters: true, plan: tests },
    Suite { name: "doc-tests", quick: Some(1), full: 3, filters: false, plan: doc_tests },
    Suite { name: "ordinary-user", quick: Some(6), full: 60, filters: true, plan: ordinary::plan },
    Suite { name: "loom", quick: Some(1), full: 30, filters: false, plan: loom },
    Suite { name: "miri", quick: Some(3), full: 20, filters: false, plan: miri },
    Suite { name: "instructions", quick: Some(2), full: 4, filters: false, plan: instructions::plan },
];

/// What a suite does in this run.
#[derive(Debug)]
pub(crate) enum Plan {
    Run(Vec<Step>),
    /// The machine cannot; counts as skipped.
    Skip(String),
    /// Nobody has written such a test yet.
    NotYet(String),
    /// Has been done otherwise.
    NotNeeded(String),
}

/// What a plan may depend on.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) wanted: &'a Wanted,
}

/// Unit and integration tests of all packages: each test in a process of its own where nextest is at hand.
fn tests(context: &Context) -> Result<Plan> {
    let filter = context.wanted.filter.as_deref();
    let left_out = worlds::left_out(context.wanted.full);
    let step = if has_nextest() {
        let expression = worlds::without(left_out);
        let fixed = ["nextest", "run", "--workspace", "--profile", "xtask", "--no-tests", "pass"];
        let worlds = ["--filterset", &expression];
        Step { harness: Harness::Nextest, ..Step::cargo(fixed.into_iter().chain(worlds).chain(filter)) }
    } else {
        say("cargo-nextest is not installed: cargo test does it");
        let fixed = ["test", "--workspace", "--tests", "--no-fail-fast", "--"];
        let worlds: Vec<String> =
            left_out.iter().flat_map(|world| ["--skip".to_owned(), format!("{world}::")]).collect();
        Step::cargo(fixed.into_iter().chain(worlds.iter().map(String::as_str)).chain(filter))
    };
    Ok(Plan::Run(vec![step]))
}

fn doc_tests(_context: &Context) -> Result<Plan> {
    Ok(Plan::Run(vec![Step::cargo(["test", "--workspace", "--doc", "--no-fail-fast"])]))
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
        command.args(["miri", "test", "--package", package]).args(arguments);
        command.arg("--").args(&context.wanted.filter);
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

fn nightly_cargo() -> Command {
    let mut command = Command::new("rustup");
    // What the stable Cargo that runs us has set would lead the other one astray.
    for stray in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(stray);
    }
    command.args(["run", "nightly", "cargo"]);
    command
}

fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::sample;
    use std::collections::BTreeSet;

    fn wanted() -> Wanted {
        Wanted { full: false, install: false, filter: Some("ring".to_owned()), only: None }
    }

    #[test]
    fn names_are_different_and_quick_budgets_fit() {
        let names: BTreeSet<_> = SUITES.iter().map(|suite| suite.name).collect();
        assert_eq!(names.len(), SUITES.len());
        assert!(SUITES.iter().filter_map(|suite| suite.quick).sum::<u64>() <= 21);
        assert!(SUITES.iter().all(|suite| suite.quick.is_none_or(|quick| quick <= suite.full)));
    }

    #[test]
    fn loom_is_planned_for_the_targets_there_are() {
        let (mut workspace, wanted) = (sample(), wanted());
        let Plan::Run(steps) = loom(&Context { workspace: &workspace, wanted: &wanted }).unwrap() else {
            panic!("the sample has a model")
        };
        let arguments: Vec<_> =
            steps[0].command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let wish = "test --release --no-fail-fast --package viaduct-os --test loom_ring -- ring";
        assert_eq!(arguments.join(" "), wish);
        workspace.packages.clear();
        let plan = loom(&Context { workspace: &workspace, wanted: &wanted }).unwrap();
        assert!(matches!(plan, Plan::NotYet(_)));
    }

    #[test]
    fn miri_is_said_not_to_be_there_yet() {
        let (mut workspace, wanted) = (sample(), wanted());
        workspace.packages.clear();
        let plan = miri(&Context { workspace: &workspace, wanted: &wanted }).unwrap();
        assert!(matches!(plan, Plan::NotYet(_)));
    }
}
