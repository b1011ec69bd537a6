//! The chores of the workspace: `cargo xtask test | lint | ci | check-house | loom | miri | instructions | install |
//! cluster | compatibility | against | steady`.
//!
//! ```text
//!  main           arguments
//!  lint           formatting, clippy, docs, house checks      \
//!  test           packages, build, suites                      >  rows  ->  summary: table, skipped tests, counts
//!  suites         the table of suites, one line each          /
//!  rotation       what takes turns: worlds, loom, Miri, instructions, sweeps
//!  ordinary       tests as an ordinary user, and as root what needs root
//!  packages       Debian packages and, in wheels, Python packages that tests need; programs that benchmarks compare with
//!  instructions/  what the operations of the data path cost in instructions, against baselines
//!  install        the C libraries with their headers, pkg-config files and manual pages
//!  cluster        hosts with sshds on this machine, for a command
//!  compatibility  the table of programs in the book, from what their tests find
//!  against        another commit's program and this tree's, measured by turns
//!  steady         the tests several times in a row, with every core kept busy beside them
//!  step           runs one command, passes its output on, counts (tally), ends it if it hangs
//!  house/         the checks that no compiler makes: layers, sizes, unsafe, words, manifests
//! ```
//!
//! Progress goes to standard error, with the time since the start; the summary goes to standard output and ends with
//! a line of counts: `N passed, M failed, K skipped`.

mod against;
mod cluster;
mod compatibility;
mod fuzzing;
mod house;
mod install;
mod instructions;
mod lint;
mod ordinary;
mod packages;
mod programs;
mod progress;
mod rotation;
mod steady;
mod step;
mod suites;
mod summary;
mod tally;
mod test;
mod wheels;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use summary::{Outcome, Row};
use test::Wanted;
use workspace::Workspace;

#[derive(Parser)]
#[command(about = "Tests, lints and house checks of the workspace")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Install what the tests need, build everything, run the suites
    Test(TestArguments),
    /// Lint, then test: what .ci/run calls
    Ci(TestArguments),
    /// Formatting, clippy, documentation and house checks
    Lint,
    /// Layers, file sizes, module docs, unsafe, forbidden words, manifests
    CheckHouse,
    /// The models of lock-free code, under every interleaving
    Loom(TestArguments),
    /// The packages that ask for it, under the interpreter that finds undefined behaviour
    Miri(TestArguments),
    /// The instructions that operations of the data path take, counted by callgrind, against their baselines
    Instructions {
        /// Write the counts as the new baselines
        #[arg(long)]
        renew: bool,
    },
    /// Run a command beside hosts h0, h1 .. of this machine, each with a network and an sshd of its own (needs root)
    Cluster {
        /// How many hosts
        hosts: u8,
        /// The command; VIADUCT_SSH tells it how to reach them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    /// Run outside programs with and without Viaduct, and write what became of them into the book
    Compatibility {
        /// Install nothing; programs that are missing keep their rows
        #[arg(long)]
        no_install: bool,
        /// Run only tests whose name contains this
        filter: Option<String>,
    },
    /// Measure the program of another commit and that of this tree by turns, and name what is worse in every round
    Against {
        /// The commit to compare with
        revision: String,
        /// How often each case is measured with each of them
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// What to measure: the words behind `viaduct bench`, each case in quotation marks, or "example echo"
        cases: Vec<String>,
    },
    /// Run the tests several times in a row, as CI does, with a busy loop on each core beside them; no test may be flaky
    Steady {
        /// How often
        #[arg(default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
        times: u32,
    },
    /// Build the C libraries and install them with their headers, pkg-config files and manual pages
    Install {
        /// Where to
        #[arg(long, default_value = "/usr/local")]
        prefix: PathBuf,
    },
}

#[derive(Args)]
struct TestArguments {
    /// Add the long suites and the long form of the others
    #[arg(long)]
    full: bool,
    /// Install nothing; tests that miss something are skipped by name
    #[arg(long)]
    no_install: bool,
    /// A test that fails and passes when it is tried again has failed
    #[arg(long)]
    strict: bool,
    /// Run only tests whose name contains this
    filter: Option<String>,
}

fn main() -> Result<ExitCode> {
    progress::start();
    let chore = Arguments::parse().chore;
    let workspace = Workspace::load()?;
    std::env::set_current_dir(&workspace.root)?;
    let outcome = match chore {
        Chore::CheckHouse => return house::check_and_report(&workspace).map(exit_code),
        Chore::Instructions { renew } => return instructions::run(&workspace, renew).map(exit_code),
        Chore::Install { prefix } => return install::run(&workspace, &prefix).map(exit_code),
        Chore::Compatibility { no_install, filter } => {
            return compatibility::run(&workspace, filter.as_deref(), !no_install).map(exit_code);
        }
        Chore::Against { revision, rounds, cases } => {
            return against::run(&workspace, &against::Wanted { revision, rounds, cases }).map(exit_code);
        }
        Chore::Steady { times } => return steady::run(&workspace, times).map(exit_code),
        Chore::Cluster { hosts, command } => return cluster::run(hosts, &command),
        Chore::Lint => Outcome { rows: lint::run(&workspace)?, turns: Vec::new() },
        Chore::Test(arguments) => test::run(&workspace, &wanted(arguments, None))?,
        Chore::Loom(arguments) => test::run(&workspace, &wanted(arguments, Some("loom")))?,
        Chore::Miri(arguments) => test::run(&workspace, &wanted(arguments, Some("miri")))?,
        Chore::Ci(arguments) => {
            let mut rows = lint::run(&workspace)?;
            let mut outcome = test::run(&workspace, &wanted(arguments, None))?;
            rows.append(&mut outcome.rows);
            Outcome { rows, ..outcome }
        }
    };
    summary::print(&outcome);
    Ok(exit_code(outcome.rows.iter().all(Row::is_good)))
}

fn wanted(arguments: TestArguments, only: Option<&'static str>) -> Wanted {
    let TestArguments { full, no_install, strict, filter } = arguments;
    Wanted { full, install: !no_install, strict, filter, only }
}

fn exit_code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
