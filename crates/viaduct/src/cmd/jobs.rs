//! `viaduct ps` and `viaduct kill`: the jobs of this user.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use viaduct_agent::known;
use viaduct_catapult::jobs::{self, Report, Visited};
use viaduct_catapult::reach::ask_jobs;
use viaduct_catapult::role::JobsAsk;
use viaduct_os::{runtime_dir, signals};

use crate::cli::Format;
use crate::cli::launch::{KillArgs, PsArgs};
use crate::output::table;

pub(crate) fn ps(args: &PsArgs) -> Result<ExitCode> {
    let jobs = grouped(visit(&JobsAsk { start: String::new(), signal: None }, args.local)?);
    // A table without rows says nothing to people; programs read an empty list.
    if jobs.is_empty() && args.format == Format::Table {
        writeln!(io::stderr(), "no jobs")?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.format == Format::Json {
        jobs.iter().try_for_each(|job| writeln!(io::stdout(), "{}", job.object()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let heads = ["job", "launcher", "running", "seconds", "hosts", "command"];
    table::print(args.format, heads, jobs.iter().map(Job::row).collect())?;
    Ok(ExitCode::SUCCESS)
}

/// What launcher and nodes say of one job.
struct Job {
    /// With the host that each is on; the launcher first, if it is one of ours.
    reports: Vec<(String, Report)>,
}

impl Job {
    fn launcher(&self) -> Option<&(String, Report)> {
        self.reports.first().filter(|(_, report)| report.launcher)
    }

    fn nodes(&self) -> impl Iterator<Item = &(String, Report)> {
        self.reports.iter().filter(|(_, report)| !report.launcher)
    }

    /// Ranks in all, and those that still run: the launcher knows, else the nodes that we know of are added up.
    fn ranks(&self) -> (u32, u32) {
        let add =
            |sum: (u32, u32), (_, node): &(String, Report)| (sum.0 + node.ranks.0, sum.1 + node.ranks.1);
        self.launcher().map_or_else(|| self.nodes().fold((0, 0), add), |(_, report)| report.ranks)
    }

    fn hosts(&self) -> Vec<String> {
        match self.launcher() {
            Some((_, report)) => report.hosts.clone(),
            None => self.nodes().map(|(host, _)| host.clone()).collect(),
        }
    }

    fn row(&self) -> [String; 6] {
        let (_, first) = &self.reports[0];
        let (ranks, running) = self.ranks();
        let place =
            self.launcher().map_or_else(|| "-".to_owned(), |(host, report)| format!("{host} {}", report.pid));
        let seconds = first.seconds.to_string();
        [
            first.job.clone(),
            place,
            format!("{running}/{ranks}"),
            seconds,
            self.hosts().join(","),
            first.command.clone(),
        ]
    }

    fn object(&self) -> Value {
        let (_, first) = &self.reports[0];
        let (ranks, running) = self.ranks();
        let node = |(host, report): &(String, Report)| json!({ "host": host, "pid": report.pid, "ranks": report.ranks.0, "running": report.ranks.1 });
        json!({
            "job": first.job,
            "launcher": self.launcher().map(|(host, report)| json!({ "host": host, "pid": report.pid })),
            "ranks": ranks,
            "running": running,
            "seconds": first.seconds,
            "hosts": self.hosts(),
            "nodes": self.nodes().map(node).collect::<Vec<_>>(),
            "command": first.command,
        })
    }
}

/// Jobs in the order of their names, each once.
fn grouped(found: Vec<Found>) -> Vec<Job> {
    let mut jobs: BTreeMap<String, Job> = BTreeMap::new();
    for Found { host, visited: Visited { report, .. } } in found {
        let job = jobs.entry(report.job.clone()).or_insert(Job { reports: Vec::new() });
        let at = if report.launcher { 0 } else { job.reports.len() };
        job.reports.insert(at, (host, report));
    }
    jobs.into_values().collect()
}

/// A launcher or node of a job, and the host that it is on.
struct Found {
    host: String,
    visited: Visited,
}

/// Here and, unless that is not wanted, at all agents that are known.
fn visit(ask: &JobsAsk, local: bool) -> Result<Vec<Found>> {
    let folder = folder()?;
    let wanted = |job: &str| ask.signal.filter(|_| job.starts_with(&ask.start));
    let here = jobs::visit(&folder, &wanted)?;
    let mut all: Vec<_> =
        here.into_iter().map(|visited| Found { host: "localhost".to_owned(), visited }).collect();
    for known in known::all(&folder).iter().filter(|_| !local) {
        match ask_jobs(&folder, known, ask) {
            Ok(found) => {
                all.extend(found.into_iter().map(|visited| Found { host: known.host.clone(), visited }))
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
    let told: Vec<_> = told.iter().filter(|found| found.visited.signalled).collect();
    for Found { host, visited } in &told {
        writeln!(io::stdout(), "{} {} on {host}", signals::name(signal), visited.report.job)?;
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
        .map(|found| (found.visited.report.job, found.visited.report.command))
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
