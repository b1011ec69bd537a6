//! `viaduct ps` and `viaduct kill`: the jobs of this user.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use viaduct_catapult::jobs::{self, Report};
use viaduct_os::{runtime_dir, signals};

use crate::cli::launch::{KillArgs, PsArgs};
use crate::output::table;

pub(crate) fn ps(args: &PsArgs) -> Result<ExitCode> {
    let reports = jobs::visit(&folder()?, &|_| None)?;
    let row = |(report, _): &(Report, bool)| {
        let (ranks, running) = report.ranks;
        let hosts = report.hosts.join(",");
        let (pid, time) = (report.pid.to_string(), report.seconds.to_string());
        [report.job.clone(), pid, format!("{running}/{ranks}"), time, hosts, report.command.clone()]
    };
    table::print(args.format, ["job", "pid", "running", "seconds", "hosts", "command"], reports.iter().map(row).collect())?;
    Ok(ExitCode::SUCCESS)
}

/// The run-time folder, where `shm` has it too.
pub(crate) fn folder() -> Result<PathBuf> {
    let explicit = std::env::var_os("VIADUCT_RUNTIME_DIR").map(PathBuf::from);
    Ok(runtime_dir::runtime_dir(explicit.as_deref())?)
}

pub(crate) fn kill(args: &KillArgs) -> Result<ExitCode> {
    let Some(signal) = signals::by_name(&args.signal) else { bail!("there is no signal `{}`", args.signal) };
    let wanted = |job: &str| {
        let ours = args.all || args.job.as_ref().is_some_and(|start| !start.is_empty() && job.starts_with(&**start));
        ours.then_some(signal)
    };
    let told = jobs::visit(&folder()?, &wanted)?;
    let count = told.iter().filter(|(_, told)| *told).count();
    for (report, _) in told.iter().filter(|(_, told)| *told) {
        writeln!(io::stdout(), "{} {}", signals::name(signal), report.job)?;
    }
    if count == 0 && !args.all {
        bail!("there is no job `{}`", args.job.as_deref().unwrap_or_default());
    }
    Ok(ExitCode::SUCCESS)
}
