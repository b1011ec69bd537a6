//! `viaduct dsm`: starts nodes of processes that share memory, and is one of their processes.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Parser;
use viaduct_cashmere::Dsm;
use viaduct_cashmere::node::start::{self, Error, Role, Settings};
use viaduct_cashmere::statistics::{Counter, Statistics};
use viaduct_catapult::hosts::Host;
use viaduct_dsm_apps::{Outcome, Problem};
use viaduct_job::Job;
use viaduct_via::Nic;

use crate::cli::dsm::DsmArgs;
use crate::cli::{Cli, Verb};
use crate::cmd::jobs;
use crate::knobs;

/// How long a rank that failed leaves it to the launcher to end it.
const AFTER: Duration = Duration::from_secs(3);

pub(crate) fn run(args: &DsmArgs) -> Result<ExitCode> {
    if args.as_rank { rank(args) } else { launch(args) }
}

/// How a run of so many nodes is laid out; at one level every worker is one.
fn settings(args: &DsmArgs, nodes: usize) -> Settings {
    let (nodes, workers) = match args.levels {
        1 => (nodes.saturating_mul(args.procs), 1),
        _ => (nodes, args.procs),
    };
    let memory = args.app.memory(args.size.unwrap_or(args.app.usual_size()));
    Settings { nodes, workers, variant: args.variant, engine: args.engine, memory, page: args.page }
}

/// Starts the processes, which are this program again.
fn launch(args: &DsmArgs) -> Result<ExitCode> {
    let hosts = args.hosts.as_deref().map(crate::cmd::launch::host_list).transpose()?;
    let hosts = hosts.unwrap_or_else(|| vec![Host { name: "localhost".to_owned(), slots: args.nodes }]);
    let nodes: usize = hosts.iter().map(|host| host.slots).sum();
    let settings = settings(args, nodes);
    settings.check()?;
    // The ranks of a node stand one behind the other, on one host.
    let ranks = settings.ranks() / nodes.max(1);
    let list: Vec<String> =
        hosts.iter().map(|host| format!("{}*{}", host.name, host.slots * ranks)).collect();
    let mut words: Vec<OsString> = ["viaduct", "launch", "-K", "--table", "never"].map(OsString::from).into();
    if args.allow_root {
        words.push("--allow-root".into());
    }
    words.extend(["-n".into(), settings.ranks().to_string().into()]);
    words.extend(["--hosts".into(), list.join(",").into(), "/proc/self/exe".into()]);
    words.extend(["dsm".into(), "--as-rank".into(), "--of".into(), nodes.to_string().into()]);
    words.extend(std::env::args_os().skip(2));
    match Cli::try_parse_from(words)?.verb {
        Verb::Launch(args) => crate::cmd::launch::run(&args),
        _ => bail!("the nodes could not be started"),
    }
}

/// This process is a server or a worker. A failure ends the job, whose launcher says why.
fn rank(args: &DsmArgs) -> Result<ExitCode> {
    let mut job = Job::join(&knobs::variable)?;
    let mut config = knobs::from_environment()?;
    config.join(&mut job)?;
    let nic = Nic::open_with(viaduct_providers::open("auto", &config)?, config.wait)?;
    match start::start(job, nic, &jobs::folder()?, &settings(args, args.of.unwrap_or(args.nodes))) {
        Ok(Role::Server) => Ok(ExitCode::SUCCESS),
        Ok(Role::Worker(dsm)) => work(args, *dsm),
        Err(error) => failed(&error),
    }
}

fn failed(error: &Error) -> Result<ExitCode> {
    if let Error::Down(_) = error {
        // The process that is gone says more; the launcher ends this one.
        std::thread::sleep(AFTER);
    }
    bail!("{error}")
}

fn work(args: &DsmArgs, mut dsm: Dsm) -> Result<ExitCode> {
    let size = args.size.unwrap_or(args.app.usual_size());
    let problem = Problem { size, rounds: args.rounds, check: args.check };
    let begun = Instant::now();
    let outcome = match args.app.run(&mut dsm, problem) {
        Ok(outcome) => outcome,
        Err(error) => return failed(&error),
    };
    let (took, rank, engine) = (begun.elapsed(), dsm.rank(), dsm.engine());
    let statistics = match dsm.finish() {
        Ok(statistics) => statistics,
        Err(error) => return failed(&error),
    };
    if rank != 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let run = Run { args, outcome, took, engine: engine.name(), statistics: &statistics };
    if args.json {
        run.json()?
    } else {
        run.table()
    }
    match outcome.equal {
        Some(false) => bail!("the result differs from that of the sequential program"),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// What a run has to say.
struct Run<'a> {
    args: &'a DsmArgs,
    outcome: Outcome,
    took: Duration,
    engine: &'static str,
    statistics: &'a Statistics,
}

impl Run<'_> {
    fn table(&self) {
        let Run { args, outcome, took, engine, statistics } = self;
        let nodes = args.of.unwrap_or(args.nodes);
        let layout = format!("{nodes} nodes of {} workers, level {}", args.procs, args.levels);
        println!("{}: {layout}, {}, {engine}: {:.3} s", args.app, args.variant, took.as_secs_f64());
        for counter in Counter::ALL {
            println!("{:>26}  {}", counter.name(), statistics.get(counter));
        }
        match outcome.equal {
            Some(true) => println!("equal to the sequential program, bit by bit; sum {}", outcome.sum),
            Some(false) => println!("NOT equal to the sequential program; sum {}", outcome.sum),
            None => println!("sum {}", outcome.sum),
        }
    }

    fn json(&self) -> Result<()> {
        let Run { args, outcome, took, engine, statistics } = self;
        let counts: serde_json::Map<String, serde_json::Value> = Counter::ALL
            .into_iter()
            .map(|counter| (counter.name().replace(' ', "_"), statistics.get(counter).into()))
            .collect();
        let line = serde_json::json!({
            "app": args.app.name(), "nodes": args.of.unwrap_or(args.nodes), "procs": args.procs, "levels": args.levels,
            "variant": args.variant.name(), "engine": engine, "seconds": took.as_secs_f64(),
            "sum": outcome.sum, "equal": outcome.equal, "counts": counts,
        });
        println!("{}", serde_json::to_string(&line)?);
        Ok(())
    }
}
