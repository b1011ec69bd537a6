//! `viaduct completions SHELL`: a completion script on standard output.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};

pub(crate) fn run(args: &CompletionsArgs) -> Result<ExitCode> {
    // Written in one piece: the generator panics on a closed pipe, we do not.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "viaduct", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
