//! `viaduct ps` and `viaduct kill`: the jobs of this user.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use viaduct_agent::known;
use viaduct_catapult::jobs::{self, Report};
use viaduct_catapult::reach::ask_jobs;
use viaduct_catapult::role::JobsAsk;
use viaduct_os::{runtime_dir, signals};

use crate::cli::Format;
use crate::cli::launch::{KillArgs, PsArgs};
use crate::output::table;

pub(crate) fn ps(args: &PsArgs) -> Result<ExitCode> {
    let reports = visit(&JobsAsk { start: String::new(), signal: None }, args.local)?;
    let row = |(host, report, _): &(String, Report, bool)| {
        let (ranks, running) = report.ranks;
        let hosts = report.hosts.join(",");
        let (pid, time) = (report.pid.to_string(), report.seconds.to_string());
        [
            report.job.clone(),
            host.clone(),
            pid,
            format!("{running}/{ranks}"),
            time,
            hosts,
            report.command.clone(),
        ]
    };
    // A table without rows says nothing to people; programs read an empty list.
    if reports.is_empty() && args.format == Format::Table {
        writeln!(io::stderr(), "no jobs")?;
        return Ok(ExitCode::SUCCESS);
    }
    let heads = ["job", "on", "pid", "running", "seconds", "hosts", "command"];
    table::print(args.format, heads, reports.iter().map(row).collect())?;
    Ok(ExitCode::SUCCESS)
}

/// Here and, unless that is not wanted, at all agents that are known.
fn visit(ask: &JobsAsk, local: bool) -> Result<Vec<(String, Report, bool)>> {
    let folder = folder()?;
    let wanted = |job: &str| ask.signal.filter(|_| job.starts_with(&ask.start));
    let here = jobs::visit(&folder, &wanted)?;
    let mut all: Vec<_> =
        here.into_iter().map(|(report, told)| ("localhost".to_owned(), report, told)).collect();
    for known in known::all(&folder).iter().filter(|_| !local) {
        match ask_jobs(&folder, known, ask) {
            Ok(found) => {
                all.extend(found.into_iter().map(|(report, told)| (known.host.clone(), report, told)))
            }
            Err(why) => {
                writeln!(io::stderr(), "{}: {why}", known.host)?;
                known::forget(&folder, &known.host);
            }
        }
    }
    Ok(all)
}

/// The run-time folder, where `shm` has it too.
pub(crate) fn folder() -> Result<PathBuf> {
    let explicit = std::env::var_os("VIADUCT_RUNTIME_DIR").map(PathBuf::from);
    Ok(runtime_dir::runtime_dir(explicit.as_deref())?)
}

pub(crate) fn kill(args: &KillArgs) -> Result<ExitCode> {
    let Some(signal) = signals::by_name(&args.signal) else { bail!("there is no signal `{}`", args.signal) };
    let start = args.job.clone().unwrap_or_default();
    if start.is_empty() && !args.all {
        bail!("the name of a job is needed, or --all");
    }
    let start = if args.all { start } else { the_job(&start, args.local)? };
    let told = visit(&JobsAsk { start: start.clone(), signal: Some(signal) }, args.local)?;
    let told: Vec<_> = told.iter().filter(|(.., told)| *told).collect();
    for (host, report, _) in &told {
        writeln!(io::stdout(), "{} {} on {host}", signals::name(signal), report.job)?;
    }
    if told.is_empty() && !args.all {
        bail!("the job `{start}` has just ended");
    }
    Ok(ExitCode::SUCCESS)
}

/// The one job whose name begins like this.
fn the_job(start: &str, local: bool) -> Result<String> {
    let all = visit(&JobsAsk { start: String::new(), signal: None }, local)?;
    let mut fitting: Vec<(String, String)> = all
        .into_iter()
        .map(|(_, report, _)| (report.job, report.command))
        .filter(|(job, _)| job.starts_with(start))
        .collect();
    fitting.sort();
    fitting.dedup_by(|one, two| one.0 == two.0);
    match &fitting[..] {
        [] => bail!("there is no job `{start}`; `viaduct ps` shows those that there are"),
        [(job, _)] => Ok(job.clone()),
        several => {
            let list: Vec<String> =
                several.iter().map(|(job, command)| format!("\n  {job}  {command}")).collect();
            bail!(
                "`{start}` is the beginning of {} jobs; write more of the one that is meant:{}",
                several.len(),
                list.concat()
            )
        }
    }
}
