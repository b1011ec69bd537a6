//! What the preloaded library, as it is shipped, adds to each call on a connection that is the kernel's: a C program is counted
//! with it and without, everything that a call passes through included.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use viaduct_kit::cc::compile_c_file;
use viaduct_kit::tempdir::TempDir;

use super::{ADDED, ROUNDS, build_command, collected, output};
use crate::progress::say;
use crate::workspace::Workspace;

/// The program; it prints its kinds of rounds with how many calls each makes.
const PROGRAM: &str = "tests/preload/c/calls.c";

/// In a process with threads a call that may wait can be cancelled, for which two functions of libc are called; a connection
/// that is made and closed is looked up, noted and forgotten. Neither meets the bar of other calls; neither may get worse.
const ADDED_APART: f64 = 160.0;

/// What this kind may add to a call.
fn most(kind: &str) -> f64 {
    if kind.ends_with("-with-threads") || kind.starts_with("connect") { ADDED_APART } else { ADDED }
}

/// Counts; false if a call takes more than the bar.
pub(super) fn run(workspace: &Workspace, valgrind: &Path) -> Result<bool> {
    let flags = ["-O1", "-pthread", "-Wno-unused-function"];
    let Some(program) = compile_c_file(workspace.root.join(PROGRAM), &flags) else { return Ok(true) };
    let status = build_command().args(["--quiet", "--package", "viaduct-preload"]).status();
    ensure!(status.context("cargo cannot be started")?.success(), "the preloaded library is not built");
    let library = workspace.target_directory.join("release/libsovia_preload.so");
    let folder = TempDir::new("shipped");
    let rules = folder.join("never");
    fs::write(&rules, "never\n").context("a file with rules")?;
    let list = String::from_utf8(output(&mut program.command())?.stdout).context("the kinds of rounds")?;
    say(format_args!("counting {} kinds of calls with the preloaded library", list.lines().count()));
    let mut beyond = 0;
    for line in list.lines() {
        let (kind, calls) = line.split_once(' ').with_context(|| line.to_owned())?;
        let each = |with: bool| -> Result<f64> {
            let run = |rounds: u32| -> Result<u64> {
                let mut command = Command::new(valgrind);
                command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
                command.arg(program.path()).args([kind, &rounds.to_string()]).env_remove("LD_PRELOAD");
                if with {
                    command.env("LD_PRELOAD", &library).env("VIADUCT_RULES", &rules);
                    command.env("VIADUCT_AGENT_PROGRAM", "off");
                }
                collected(&String::from_utf8_lossy(&output(&mut command)?.stderr))
                    .with_context(|| format!("callgrind gave no count of {kind}"))
            };
            let (less, more) = (run(ROUNDS[0])?, run(ROUNDS[1])?);
            Ok((more.saturating_sub(less)) as f64 / f64::from(ROUNDS[1] - ROUNDS[0]))
        };
        let calls: f64 = calls.parse().context("how many calls a round makes")?;
        let (without, with) = (each(false)? / calls, each(true)? / calls);
        ensure!(without > 1.0 && with > 1.0, "{kind}: {without} without the library, {with} with it");
        let (added, most) = (with - without, most(kind));
        println!("{kind:<34} {without:>6.1} without the library, {added:>6.1} added, at most {most:.0}");
        if added > most {
            println!("TOO MANY INSTRUCTIONS: {kind} adds {added:.1}, at most {most} are allowed");
            beyond += 1;
        }
    }
    let word = if beyond == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {} passed; {beyond} failed; 0 ignored", list.lines().count() - beyond);
    Ok(beyond == 0)
}
