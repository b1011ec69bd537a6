//! `viaduct man`: manual pages, made from the same definitions as the help.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::cli::{Cli, ManArgs};

pub(crate) fn run(args: &ManArgs) -> Result<ExitCode> {
    let mut command = Cli::command();
    command.build();
    if let Some(verb) = &args.verb {
        let found = command.find_subcommand(verb).cloned();
        // The full name is what clap made of it: `viaduct launch`.
        command = found.with_context(|| format!("there is no verb `{verb}`"))?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    io::stdout().write_all(&page)?;
    Ok(ExitCode::SUCCESS)
}
