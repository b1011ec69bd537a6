//! `cargo xtask instructions`: how many instructions the operations of the data path take, against baselines.
//!
//! ```text
//!  build       the examples of the packages below, in release mode, by themselves
//!  count       each operation twice under callgrind, with few rounds and with many
//!  shipped     what the preloaded library adds to calls of a C program, all of it, against a bar
//!  compare     with baselines.txt beside each program; --renew writes that file instead
//! ```
//!
//! Times vary from run to run and from machine to machine, counts do not. They are no measure of speed: they say that
//! the code of a path has changed.

mod baselines;
mod compare;
mod shipped;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail, ensure};
use viaduct_kit::packages::find_program;

use crate::progress::say;
use crate::step::Step;
use crate::suites::{Context, Plan};
use crate::workspace::{self, Workspace};
use baselines::Baselines;
use compare::{beyond, compare, table};

/// Packages, their examples that are counted, and the files beside these.
const COUNTED: &[(&str, &str, &str)] = &[
    ("viaduct-providers", "count_via", "crates/providers/examples/count_via/baselines.txt"),
    ("viaduct-sovia", "count_streams", "crates/sovia/examples/count_streams/baselines.txt"),
    ("viaduct-cashmere", "count_dsm", "crates/cashmere/examples/count_dsm/baselines.txt"),
    ("viaduct-vipl", "count_vipl", "capi/vipl/examples/count_vipl/baselines.txt"),
    ("viaduct-mpi", "count_mpi", "crates/mpi/examples/count_mpi/baselines.txt"),
    ("viaduct-intercept", "count_intercept", INTERCEPT),
];
const INTERCEPT: &str = "crates/intercept/examples/count_intercept/baselines.txt";
/// What the preloaded library may add to a call on a connection that is the kernel's.
const ADDED: f64 = 60.0;
/// What `cargo build` makes without further words, and is counted or used.
const DEFAULTS: [&str; 4] = ["viaduct", "viaduct-libsovia", "viaduct-preload", "viaduct-vipl"];

const MISSING: &str = "valgrind not found (apt-get install valgrind)";

/// Rounds of the two runs. The difference is a multiple of a ring's length, so that what is done once a lap, or once a
/// part of it, has its exact share.
const ROUNDS: [u32; 2] = [1024, 3072];

/// The suite is this program again, in a process that can be ended if it hangs. Cargo starts it: building everything
/// may have replaced the file that this process was started from.
pub(crate) fn plan(_context: &Context) -> Result<Plan> {
    if find_program("valgrind").is_none() {
        return Ok(Plan::Skip(MISSING.to_owned()));
    }
    Ok(Plan::Run(vec![Step::cargo(["xtask", "instructions"])]))
}

/// Counts, and compares or renews; false if a count is worse.
pub(crate) fn run(workspace: &Workspace, renew: bool) -> Result<bool> {
    let Some(valgrind) = find_program("valgrind") else { bail!(MISSING) };
    let mut good = true;
    for (package, example, file) in COUNTED {
        let program = build(workspace, package, example)?;
        good &= run_one(workspace, &valgrind, &program, file, renew)?;
    }
    Ok(shipped::run(workspace, &valgrind)? && good)
}

fn run_one(
    workspace: &Workspace,
    valgrind: &Path,
    program: &Path,
    baselines: &str,
    renew: bool,
) -> Result<bool> {
    let now = Baselines { rustc: rustc_version()?, machine: machine(), counts: counts(valgrind, program)? };
    let file = workspace.root.join(baselines);
    let old = match std::fs::read_to_string(&file) {
        Ok(text) => text.parse().with_context(|| baselines.to_owned())?,
        Err(_) if renew => Baselines::default(),
        Err(error) => return Err(error).context(baselines.to_owned()),
    };
    let good = report(&old, &now, renew);
    if renew && good {
        std::fs::write(&file, now.to_string()).with_context(|| baselines.to_owned())?;
        say(format_args!("written: {baselines}"));
    }
    Ok(good)
}

/// Prints the table, and the results in libtest's form, so that the summary counts operations.
fn report(old: &Baselines, now: &Baselines, renew: bool) -> bool {
    let lines = compare(old, now);
    print!("{}", table(&lines));
    // With any compiler, and with new baselines too.
    let beyond = beyond(now);
    beyond.iter().for_each(|what| println!("TOO MANY INSTRUCTIONS: {what}"));
    if !beyond.is_empty() {
        println!("test result: FAILED. 0 passed; {} failed; 0 ignored", beyond.len());
        return false;
    }
    if renew {
        return true;
    }
    if let Some(why) = old.differ_from(now) {
        println!(
            "WARNING: the baselines do not count ({why}); to renew them: cargo xtask instructions --renew"
        );
        println!("test result: ok. 0 passed; 0 failed; {} ignored", lines.len());
        return true;
    }
    let bad: Vec<_> = lines.iter().filter(|line| !line.verdict.is_good()).collect();
    bad.iter().for_each(|line| println!("test instructions::{} ... FAILED", line.operation));
    let word = if bad.is_empty() { "ok" } else { "FAILED" };
    println!("test result: {word}. {} passed; {} failed; 0 ignored", lines.len() - bad.len(), bad.len());
    if !bad.is_empty() {
        println!("If it is meant to be so: cargo xtask instructions --renew, and say why in the commit");
    }
    bad.is_empty()
}

/// The release build of a run with counting: what users get and the programs, in one call, so that nothing is compiled
/// twice. None while two programs have one name, since Cargo puts them into one folder.
pub(crate) fn release_build() -> Option<Command> {
    let names: BTreeSet<&str> = COUNTED.iter().map(|(_, example, _)| *example).collect();
    if names.len() < COUNTED.len() {
        return None;
    }
    let mut command = build_command();
    let packages: BTreeSet<&str> =
        DEFAULTS.into_iter().chain(COUNTED.iter().map(|(package, ..)| *package)).collect();
    command.args(["--lib", "--bins"]);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    command.args(names.iter().flat_map(|example| ["--example", example]));
    Some(command)
}

fn build(workspace: &Workspace, package: &str, example: &str) -> Result<PathBuf> {
    say(format_args!("building {example} of {package}"));
    let mut command = release_build().unwrap_or_else(|| {
        let mut command = build_command();
        command.args(["--package", package, "--example", example]);
        command
    });
    let status = command.arg("--quiet").status().context("cargo cannot be started")?;
    ensure!(status.success(), "building {example} of {package}: {status}");
    Ok(workspace.target_directory.join("release/examples").join(example))
}

/// Never the whole workspace, which would put the features of the fault tests into the programs.
fn build_command() -> Command {
    let mut command = workspace::cargo();
    command.args(["build", "--release"]);
    // Flags of the caller would make another program, or put it elsewhere.
    for stray in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        command.env_remove(stray);
    }
    command
}

fn counts(valgrind: &Path, program: &Path) -> Result<Vec<(String, f64)>> {
    let list = output(&mut Command::new(program))?;
    let list = String::from_utf8(list.stdout).context("the names of the operations")?;
    say(format_args!("counting {} operations", list.lines().count()));
    list.lines().map(|operation| Ok((operation.to_owned(), count(valgrind, program, operation)?))).collect()
}

/// Instructions of one round, to a tenth.
fn count(valgrind: &Path, program: &Path, operation: &str) -> Result<f64> {
    let [few, many] = ROUNDS;
    let run = |rounds: u32| -> Result<u64> {
        let mut command = Command::new(valgrind);
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        command.arg("--toggle-collect=*count_this_*");
        command.args([program.as_os_str(), OsStr::new(operation), OsStr::new(&rounds.to_string())]);
        let output = output(&mut command)?;
        let report = String::from_utf8_lossy(&output.stderr);
        collected(&report).with_context(|| format!("callgrind gave no count of {operation}:\n{report}"))
    };
    let (less, more) = (run(few)?, run(many)?);
    ensure!(less > 0 && more > less, "{operation}: nothing was counted; is its call inlined?");
    let each = (more - less) as f64 / f64::from(many - few);
    Ok((each * 10.0).round() / 10.0)
}

/// The number in callgrind's `==1== Collected : 61440`.
fn collected(report: &str) -> Option<u64> {
    let line = report.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn output(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("{command:?} cannot be started"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    Ok(output)
}

/// `1.95.0` of `rustc 1.95.0 (...)`.
fn rustc_version() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = output(Command::new(rustc).arg("--version"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.split(' ').nth(1).map(str::to_owned).with_context(|| format!("rustc calls itself {text}"))
}

/// What chooses among routines when a program runs: valgrind shows a CPU with AVX2 if it runs on one, and one without
/// it else; what a CPU has beyond that stays hidden.
fn machine() -> String {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        return "x86_64 avx2".to_owned();
    }
    std::env::consts::ARCH.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(rustc: &str, count: f64) -> Baselines {
        let counts = vec![("post_recv".to_owned(), count)];
        Baselines { rustc: rustc.to_owned(), machine: "x86_64".to_owned(), counts }
    }

    #[test]
    fn a_change_of_what_is_counted_gives_the_counts_a_turn() {
        for (package, _, file) in COUNTED {
            let turn = crate::rotation::DATA_PATH.iter().any(|path| file.starts_with(path));
            assert!(turn, "{package}: {file} is below no path of the unit");
        }
    }

    #[test]
    fn callgrinds_count_is_found() {
        let report =
            "==7== \n==7== Events    : Ir\n==7== Collected : 61440\n==7== \n==7== I   refs:      61,440\n";
        assert_eq!(collected(report), Some(61_440));
        assert_eq!(collected("==7== Events    : Ir\n"), None);
    }

    #[test]
    fn a_worse_count_fails_unless_it_is_of_another_compiler_or_renewed() {
        let old = counted("1.95.0", 60.0);
        assert!(report(&old, &counted("1.95.0", 61.0), false));
        assert!(!report(&old, &counted("1.95.1", 70.0), false));
        assert!(report(&old, &counted("1.96.0", 70.0), false));
        assert!(report(&old, &counted("1.95.0", 70.0), true));
        let counts = vec![("match-10".to_owned(), 100.0), ("match-10000".to_owned(), 160.0)];
        assert!(
            !report(&old, &Baselines { counts, ..counted("1.96.0", 0.0) }, true),
            "a ratio is not renewed"
        );
    }

    #[test]
    fn the_baselines_that_are_committed_can_be_read() {
        for (_, _, file) in COUNTED {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
            let baselines: Baselines = std::fs::read_to_string(file).unwrap().parse().unwrap();
            assert!(baselines.counts.len() > 3 && !baselines.rustc.is_empty());
        }
    }

    #[test]
    fn a_call_towards_a_plain_peer_stays_within_its_bar() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(INTERCEPT);
        let baselines: Baselines = std::fs::read_to_string(file).unwrap().parse().unwrap();
        for (operation, count) in &baselines.counts {
            assert!(*count <= ADDED, "{operation}: {count}");
        }
    }
}
