//! Tests run as an ordinary user, also when root runs them: root may be stopped by nothing and so proves little.
//!
//! Cargo and nextest start each test through a runner, which leaves root and gives the user folders of its own. What
//! skipped itself there, for want of root or of anything else, runs again as root (`plan_rest`), and nothing runs twice.

use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use anyhow::{Context as _, Result, ensure};
use rustix::process::geteuid;
use viaduct_kit::packages::find_program;
use viaduct_kit::unprivileged::{NOBODY, User};

use crate::step::Step;
use crate::suites::{Context, Plan, test_step};
use crate::workspace;

/// Makes tests of this step run as an ordinary user, or says why they run as root.
pub(crate) fn demote(step: Step, target: &Path) -> Result<(Step, Option<String>)> {
    if !geteuid().is_root() {
        return Ok((step, None));
    }
    let Some(setpriv) = find_program("setpriv") else {
        return Ok((step, Some("setpriv not found (apt-get install util-linux)".to_owned())));
    };
    let user = User::new();
    if !reaches(&user, target) {
        let hint = "set CARGO_TARGET_DIR to a folder they can";
        return Ok((step, Some(format!("ordinary users cannot reach {} ({hint})", target.display()))));
    }
    let folders =
        [("HOME", user.home()), ("XDG_RUNTIME_DIR", user.runtime_dir()), ("TMPDIR", user.temp_dir())];
    let folders = folders.map(|(name, folder)| format!("{name}={}", folder.display())).join(" ");
    let names = "USER=nobody LOGNAME=nobody";
    let setpriv = setpriv.display();
    let runner =
        format!("env {folders} {names} {setpriv} --reuid={NOBODY} --regid={NOBODY} --clear-groups --");
    let mut step = step.env(&runner_variable(&host()?), runner);
    step.user = Some(Rc::new(user));
    Ok((step, None))
}

/// The suite that runs, as root, what skipped itself as an ordinary user.
pub(crate) fn plan_rest(context: &Context) -> Result<Plan> {
    if !geteuid().is_root() {
        return Ok(Plan::NotNeeded("not root; what needs root is among the skipped tests".to_owned()));
    }
    let tests = context.skipped.take();
    if tests.is_empty() {
        return Ok(Plan::NotNeeded("no test skipped itself as an ordinary user".to_owned()));
    }
    Ok(Plan::Run(vec![test_step(&exactly(&tests), &[], None)?]))
}

/// The suite that runs everything as root.
pub(crate) fn plan_all(context: &Context) -> Result<Plan> {
    if !geteuid().is_root() {
        return Ok(Plan::Skip("needs root".to_owned()));
    }
    let filter = context.wanted.filter.as_deref();
    Ok(Plan::Run(vec![test_step(&context.rotation.borrow().filterset(), &[], filter)?]))
}

/// The expression for nextest that takes these tests; the first part of a name is the package or the binary.
fn exactly(tests: &[String]) -> String {
    let tests = tests.iter().map(|test| test.split_once("::").map_or(test.as_str(), |(_, test)| test));
    tests.map(|test| format!("test(={test})")).collect::<Vec<_>>().join(" or ")
}

/// `CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER`.
fn runner_variable(host: &str) -> String {
    format!("CARGO_TARGET_{}_RUNNER", host.replace(['-', '.'], "_").to_uppercase())
}

fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("rustc cannot be started")?;
    ensure!(output.status.success(), "rustc -vV: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    named_host(&text).map(str::to_owned).with_context(|| format!("rustc does not name its host: {text}"))
}

/// The host that `rustc -vV` names.
fn named_host(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("host: "))
}

/// Whether the user can enter the folder that test binaries lie in.
fn reaches(user: &User, folder: &Path) -> bool {
    let mut probe = Command::new("test");
    probe.arg("-x").arg(folder);
    user.runs(&mut probe);
    workspace::succeeds(&mut probe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Tally;
    use std::time::Duration;

    #[test]
    fn the_runner_is_named_after_the_host() {
        assert_eq!(
            runner_variable("x86_64-unknown-linux-gnu"),
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER"
        );
        // An ordinary user may have no compiler, so this is what one says.
        let text = "rustc 1.95.0 (abc 2026-04-01)\nbinary: rustc\nhost: aarch64-unknown-linux-gnu\n";
        assert_eq!(named_host(text), Some("aarch64-unknown-linux-gnu"));
        assert_eq!(named_host("rustc 1.95.0\n"), None);
    }

    #[test]
    fn skipped_tests_are_asked_for_by_name() {
        let tests = ["viaduct-faults::hosts::a".to_owned(), "programs::b".to_owned()];
        assert_eq!(exactly(&tests), "test(=hosts::a) or test(=b)");
    }

    #[test]
    fn a_program_that_the_runner_starts_is_no_root_and_has_folders_of_its_own() {
        if !viaduct_kit::packages::need_root() {
            return;
        }
        let mut command = Command::new("sh");
        command.arg("-c").arg("eval exec \"\\$$0\" sh -c \"'test \\$(id -u) != 0 && : > \\$TMPDIR/x'\"");
        command.arg(runner_variable(&host().unwrap()));
        let (mut step, reason) = demote(Step::new(command), Path::new("/usr")).unwrap();
        assert_eq!(reason, None);
        assert!(step.run(Duration::from_secs(60), &mut Tally::default()).unwrap().is_good());
    }
}
