//! `cargo xtask lint`: formatting, clippy, documentation, the packages to be published, the features
//! of the facade, and the house, warnings being errors.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::house;
use crate::progress::say;
use crate::step::Step;
use crate::suites::minutes;
use crate::summary::{Row, Verdict};
use crate::test::{Wanted, run_steps};
use crate::workspace::Workspace;

/// Budgets.
const FORMAT: Duration = minutes(1);
const CLIPPY: Duration = minutes(2);
const DOCUMENTATION: Duration = minutes(1);
const PACKAGES: Duration = minutes(1);
const FEATURES: Duration = minutes(2);

/// The features of the crate that programs depend on, each by itself: the other steps build the workspace, where all are united.
const FACADE: [&str; 5] = ["", "streams", "tokio", "job", "dsm"];

/// Runs all of them, whatever the first ones say.
pub(crate) fn run(workspace: &Workspace) -> Result<Vec<Row>> {
    let wanted = Wanted::default();
    let format = Step::cargo(["fmt", "--all", "--check"]);
    let clippy = Step::cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    let documentation = Step::cargo(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    Ok(vec![
        run_house(workspace)?,
        run_steps("format", FORMAT, vec![format], &wanted)?,
        run_steps("clippy", CLIPPY, vec![clippy], &wanted)?,
        run_steps("documentation", DOCUMENTATION, vec![documentation], &wanted)?,
        run_steps("packages", PACKAGES, vec![packages(workspace)], &wanted)?,
        run_steps("features", FEATURES, FACADE.map(facade).into(), &wanted)?,
    ])
}

/// Makes the packages that programs depend on as `cargo publish --workspace --dry-run` does, without asking a registry and
/// without building them again: a dependency without a version, or on a package that is not published, is an error.
fn packages(workspace: &Workspace) -> Step {
    let published = workspace.packages.iter().filter(|package| package.is_published());
    let names = published.flat_map(|package| ["-p", package.name.as_str()]);
    let fixed = ["package", "--offline", "--no-verify", "--allow-dirty", "--quiet"];
    Step::cargo(fixed.into_iter().chain(names))
}

/// The facade with one feature and nothing else of the workspace.
fn facade(feature: &str) -> Step {
    let fixed = ["clippy", "--quiet", "-p", "viaduct-net", "--no-default-features"];
    Step::cargo(fixed.into_iter().chain(["--features", feature, "--", "-D", "warnings"]))
}

fn run_house(workspace: &Workspace) -> Result<Row> {
    say("== house");
    let start = Instant::now();
    let good = house::check_and_report(workspace)?;
    let verdict = if good { Verdict::Passed } else { Verdict::Failed("see the list above".to_owned()) };
    Ok(Row::new("house", verdict, start.elapsed(), None))
}
