//! The targets of `fuzz/`: a full run checks that they fit the parsers, and runs each for a minute.
//!
//! They need cargo-fuzz, which a full run installs below `target/` if it may, and switches of a nightly compiler. Where no
//! nightly toolchain is installed the stable one is told to take those (`RUSTC_BOOTSTRAP`). The tests of a full run give each
//! parser a minute of spoiled messages too, without any of this.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::progress::say;
use crate::step::Step;
use crate::suites::{Context, Plan, nightly_cargo};
use crate::workspace::{self, succeeds};

/// The version that is installed.
const VERSION: &str = "0.13.2";

/// The targets fit the parsers, and the lock file their dependencies: for that a stable compiler is enough.
pub(crate) fn plan_check(context: &Context) -> Result<Plan> {
    let check = Step::cargo(["check", "--locked", "--manifest-path", "fuzz/Cargo.toml"]);
    Ok(Plan::Run(vec![check.env("CARGO_TARGET_DIR", context.workspace.target_directory.join("fuzz"))]))
}

/// A minute of each target.
pub(crate) fn plan(context: &Context) -> Result<Plan> {
    let root = context.workspace.target_directory.join("xtask/cargo");
    let at_hand = || find(&root, [nightly_cargo, stable_cargo]);
    let found = at_hand().or_else(|| if context.wanted.install && install(&root) { at_hand() } else { None });
    let Some(cargo) = found else {
        let hint = format!("cargo install cargo-fuzz --version {VERSION}");
        return Ok(Plan::Skip(format!("no cargo-fuzz ({hint}); the tests above spoil messages without it")));
    };
    let manifest = std::fs::read_to_string(context.workspace.root.join("fuzz/Cargo.toml"))?;
    let step = |target: &str| {
        let mut command = with_tools(cargo(), &root);
        command.args(["fuzz", "run", target, "--", "-max_total_time=60"]);
        Step::new(command)
    };
    Ok(Plan::Run(targets(&manifest).into_iter().map(step).collect()))
}

/// The first Cargo that has cargo-fuzz, from the programs in `root/bin` or elsewhere.
fn find(root: &Path, cargos: [fn() -> Command; 2]) -> Option<fn() -> Command> {
    cargos.into_iter().find(|cargo| succeeds(with_tools(cargo(), root).args(["fuzz", "--version"])))
}

/// The Cargo of the stable toolchain, which takes switches of the nightly one.
fn stable_cargo() -> Command {
    let mut command = workspace::cargo();
    command.env("RUSTC_BOOTSTRAP", "1");
    command
}

/// Finds programs in `root/bin` first of all.
fn with_tools(mut command: Command, root: &Path) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::iter::once(root.join("bin")).chain(std::env::split_paths(&path));
    let path: OsString = std::env::join_paths(places.collect::<Vec<PathBuf>>()).unwrap_or(path);
    command.env("PATH", path);
    command
}

/// Builds cargo-fuzz, which takes one to two minutes; whether that worked.
fn install(root: &Path) -> bool {
    say(format_args!("installing cargo-fuzz {VERSION} in {}", root.display()));
    let mut command = workspace::cargo();
    command.args(["install", "cargo-fuzz", "--version", VERSION, "--locked", "--root"]).arg(root);
    succeeds(&mut command)
}

/// The names behind `[[bin]]` in the manifest of `fuzz/`.
fn targets(manifest: &str) -> Vec<&str> {
    let lines: Vec<&str> = manifest.lines().collect();
    let names = lines.windows(2).filter(|pair| pair[0] == "[[bin]]");
    names.filter_map(|pair| pair[1].strip_prefix("name = \"")?.strip_suffix('"')).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use viaduct_kit::tempdir::TempDir;

    #[test]
    fn every_parser_that_peers_feed_is_fuzzed() {
        let manifest = include_str!("../../fuzz/Cargo.toml");
        let targets = targets(manifest);
        assert!(
            ["ofi_wire", "shm_wire", "sovia_wire"].iter().all(|name| targets.contains(name)),
            "{targets:?}"
        );
        for target in targets {
            let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/fuzz_targets");
            assert!(Path::new(file).join(target).with_extension("rs").exists(), "{target}");
        }
    }

    /// A Cargo that is not there, as a nightly toolchain may be.
    fn missing() -> Command {
        Command::new("/nonexistent/cargo")
    }

    /// Runs the program that its first argument names, as Cargo does with a command it does not know.
    fn plain() -> Command {
        Command::new("env")
    }

    fn with_switches() -> Command {
        let mut command = plain();
        command.envs(stable_cargo().get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    }

    #[test]
    fn a_program_below_target_is_found_and_the_stable_toolchain_takes_switches_of_the_nightly_one() {
        let root = TempDir::new("fuzzing");
        std::fs::create_dir(root.join("bin")).unwrap();
        let program = root.join("bin/fuzz");
        std::fs::write(&program, "#!/bin/sh\ntest \"$RUSTC_BOOTSTRAP\" = 1\n").unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(find(root.path(), [missing, with_switches]).is_some());
        assert!(find(root.path(), [missing, plain]).is_none());
        std::fs::remove_file(&program).unwrap();
        assert!(find(root.path(), [missing, with_switches]).is_none());
    }
}
