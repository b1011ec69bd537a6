//! The tests that are built already, once more as an ordinary user.
//!
//! Only root needs this: it runs each test binary as nobody, with a home, a run-time folder and a folder for
//! temporary files of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use anyhow::{Context as _, Result, ensure};
use rustix::process::geteuid;
use serde::Deserialize;
use viaduct_kit::unprivileged::User;

use crate::step::Step;
use crate::suites::{Context, Plan};
use crate::workspace::{self, Workspace};
use crate::worlds;

pub(crate) fn plan(context: &Context) -> Result<Plan> {
    if !geteuid().is_root() {
        return Ok(Plan::NotNeeded("the tests above ran as an ordinary user".to_owned()));
    }
    let binaries = built_tests()?;
    let user = Rc::new(User::new());
    if let Some(closed) =
        binaries.iter().map(|binary| &binary.executable).find(|file| !user_reaches(&user, file))
    {
        let reason = format!(
            "ordinary users cannot reach {} (set CARGO_TARGET_DIR to a folder they can)",
            closed.display()
        );
        return Ok(Plan::Skip(reason));
    }
    let step = |binary: &TestBinary| {
        let mut command = Command::new(&binary.executable);
        command.args(&context.wanted.filter);
        command.args(worlds::left_out(context.wanted.full).iter().map(|world| format!("--skip={world}::")));
        set_up_as_cargo_does(&mut command, context.workspace, &binary.manifest_path);
        user.runs(&mut command);
        Step { user: Some(Rc::clone(&user)), ..Step::new(command) }
    };
    Ok(Plan::Run(binaries.iter().map(step).collect()))
}

#[derive(Debug, PartialEq, Eq)]
struct TestBinary {
    executable: PathBuf,
    manifest_path: PathBuf,
}

/// One line of Cargo's messages, as far as it matters here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// The test binaries; nothing is compiled if the suite of tests ran before.
fn built_tests() -> Result<Vec<TestBinary>> {
    let mut command = workspace::cargo();
    let fixed = ["test", "--workspace", "--tests", "--no-run", "--message-format", "json-render-diagnostics"];
    command.args(fixed);
    let output = command.stderr(Stdio::inherit()).output().context("cargo cannot be started")?;
    ensure!(output.status.success(), "building the tests: {}", output.status);
    Ok(test_binaries(&String::from_utf8_lossy(&output.stdout)))
}

fn test_binaries(messages: &str) -> Vec<TestBinary> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    let tests = messages.filter(|message| {
        message.reason == "compiler-artifact" && message.profile.as_ref().is_some_and(|profile| profile.test)
    });
    tests
        .filter_map(|test| {
            Some(TestBinary { executable: test.executable?, manifest_path: test.manifest_path? })
        })
        .collect()
}

/// Tests may count on the folder and the variables that `cargo test` gives them.
fn set_up_as_cargo_does(command: &mut Command, workspace: &Workspace, manifest: &Path) {
    let folder = manifest.parent().unwrap_or(Path::new("/"));
    command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder).env("CARGO_MANIFEST_PATH", manifest);
    if let Some(package) = workspace.packages.iter().find(|package| package.manifest_path == manifest) {
        command.env("CARGO_PKG_NAME", &package.name).env("CARGO_PKG_VERSION", &package.version);
    }
}

fn user_reaches(user: &User, file: &Path) -> bool {
    let mut probe = Command::new("test");
    probe.arg("-x").arg(file);
    user.runs(&mut probe);
    probe.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::sample;

    #[test]
    fn only_test_binaries_are_taken() {
        let messages = r#"
            {"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","executable":null,"profile":{"test":false}}
            {"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","executable":"/t/a","profile":{"test":true}}
            {"reason":"compiler-artifact","manifest_path":"/w/b/Cargo.toml","executable":"/t/b","profile":{"test":false}}
            {"reason":"build-finished","success":true}
            not json"#;
        let wish = TestBinary { executable: "/t/a".into(), manifest_path: "/w/a/Cargo.toml".into() };
        assert_eq!(test_binaries(messages), [wish]);
    }

    #[test]
    fn a_test_finds_itself_where_cargo_would_put_it() {
        let mut command = Command::new("test");
        set_up_as_cargo_does(&mut command, &sample(), Path::new("/w/crates/os/Cargo.toml"));
        assert_eq!(command.get_current_dir(), Some(Path::new("/w/crates/os")));
        assert!(
            command
                .get_envs()
                .any(|(name, value)| name == "CARGO_PKG_NAME" && value == Some("viaduct-os".as_ref()))
        );
    }
}
