//! `viaduct`: one binary, one verb for each thing it does.
//!
//! This crate holds arguments and output and nothing else. A verb is one file in `cmd/`; what it prints goes through
//! `output/`. Data go to standard output, talk to standard error. Exit status: 0 good, 1 a check said no, 2 usage or
//! failure. A closed pipe is no failure.
#![forbid(unsafe_code)]

mod cli;
mod cmd;
mod knobs;
mod output;
mod settings;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use viaduct_catapult::Error;
use viaduct_catapult::words::translate;

use cli::{Cli, Verb};

fn main() -> ExitCode {
    let words = match arguments() {
        Ok(words) => words,
        Err(error) => {
            let _ = complain(&error.into());
            return ExitCode::from(2);
        }
    };
    let cli = Cli::parse_from(words);
    let (filter, bad) = settings::log();
    viaduct_os::log::install("viaduct", filter);
    if let Some(bad) = bad {
        let _ = complain(&knobs::refused(bad).into());
        return ExitCode::from(2);
    }
    let done = match cli.verb {
        Verb::Tour(args) => cmd::tour::run(&args),
        Verb::Info(args) => cmd::info::run(&args),
        Verb::Config(args) => cmd::config::run(&args),
        Verb::Run(args) => cmd::run::run(&args),
        Verb::Launch(args) => cmd::launch::run(&args),
        Verb::Agent(args) => cmd::agent::run(&args),
        Verb::Ps(args) => cmd::jobs::ps(&args),
        Verb::Kill(args) => cmd::jobs::kill(&args),
        Verb::Mpi(args) => cmd::mpi::run(&args),
        Verb::Sort(args) => cmd::sort::run(&args),
        Verb::Dsm(args) => cmd::dsm::run(&args),
        Verb::Bench(args) => cmd::bench::run(&args),
        Verb::Report(args) => cmd::report::run(&args),
        Verb::Stat(args) => cmd::stat::run(&args),
        Verb::Man(args) => cmd::man::run(&args),
        Verb::Completions(args) => cmd::completions::run(&args),
        Verb::BenchPeer(args) => cmd::peer::run(&args),
        Verb::BenchTool(args) => cmd::rivals::tool(&args),
        Verb::TourPeer(args) => cmd::tour::peer(&args),
        Verb::TourTcp(args) => cmd::tour_floors::tcp(&args),
    };
    match done {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing can be done if standard error is closed as well.
            let _ = complain(&error);
            ExitCode::from(2)
        }
    }
}

/// As typed, but for the words of `mpiexec` after `launch` and for `-h` of GNU sort.
fn arguments() -> Result<Vec<OsString>, Error> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    if words.get(1).is_some_and(|verb| verb == "launch") {
        let rest = words.split_off(2);
        words.extend(translate(&rest, &cli::launch::options(), None)?);
    }
    cli::gnu::human_numbers(&mut words, cmd::sort::reads_a_pipe());
    Ok(words)
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        // A failure that stops several threads is shared by them.
        let shared = cause.downcast_ref::<Arc<io::Error>>().map(|error| &**error);
        let answer = cause.downcast_ref::<io::Error>().or(shared);
        answer.is_some_and(|answer| answer.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Cause, context, one hint.
fn complain(error: &anyhow::Error) -> io::Result<()> {
    let mut out = io::stderr().lock();
    writeln!(out, "error: {}", causes(error))?;
    let launch =
        |cause: &(dyn std::error::Error + 'static)| cause.downcast_ref::<viaduct_catapult::Error>()?.hint();
    let bench = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<viaduct_bench::Error>()?.hint().map(|hint| hint.to_string())
    };
    let results = |cause: &(dyn std::error::Error + 'static)| {
        Some(cause.downcast_ref::<viaduct_results::Error>()?.hint().to_owned())
    };
    let hint =
        error.chain().find_map(|cause| bench(cause).or_else(|| launch(cause)).or_else(|| results(cause)));
    hint.map_or(Ok(()), |hint| writeln!(out, "  hint: {hint}"))
}

/// The error and what caused it. Many say their cause themselves, which is not repeated.
fn causes(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if said.is_empty() {
            said = cause;
        } else if !said.contains(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let inner = || io::Error::other("no such thing");
        let outer = anyhow::Error::from(inner()).context("looking");
        assert_eq!(causes(&outer), "looking: no such thing");
        let twice = Err::<(), _>(inner()).with_context(|| format!("looking: {}", inner())).unwrap_err();
        assert_eq!(causes(&twice), "looking: no such thing");
    }
}
