//! `viaduct dsm`: starts nodes of processes that share memory; with a program of ours it is one of these processes, too.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Parser;
use viaduct_cashmere::Spent;
use viaduct_cashmere::given::{Given, Report, VARIABLE, Wishes};
use viaduct_cashmere::statistics::{Counter, Statistics};
use viaduct_catapult::hosts::Host;
use viaduct_dsm_apps::{App, Outcome, Problem};
use viaduct_net::dsm::{self, Dsm, Error};
use viaduct_results::size;

use crate::cli::dsm::{DsmArgs, Program};
use crate::cli::{Cli, Verb};
use crate::output::follow::{self, Follow};

/// How long a rank that failed leaves it to the launcher to end it.
const AFTER: Duration = Duration::from_secs(3);

/// Rounds of programs that have them.
const ROUNDS: usize = 20;

pub(crate) fn run(args: &DsmArgs) -> Result<ExitCode> {
    if let Some(path) = &args.follow {
        follow::show(path);
        return Ok(ExitCode::SUCCESS);
    }
    match &args.program {
        Program::Ours(app) if args.as_rank => rank(args, *app),
        Program::Ours(app) if args.as_threads => {
            let (work, sum) = viaduct_bench::dsm::by_threads(*app, problem(args, *app))?;
            println!("{}", serde_json::json!({ "work_seconds": work.as_secs_f64(), "sum": sum }));
            Ok(ExitCode::SUCCESS)
        }
        _ => launch(args),
    }
}

fn problem(args: &DsmArgs, app: App) -> Problem {
    let size = args.size.unwrap_or(app.usual_size());
    Problem { size, rounds: args.rounds.unwrap_or(ROUNDS), check: args.check }
}

/// What the program wishes, where the command line is silent.
fn wishes(args: &DsmArgs) -> Wishes {
    match &args.program {
        Program::Ours(app) => Wishes { memory: app.memory(problem(args, *app).size), ..Wishes::default() },
        Program::Path(_) => Wishes::default(),
    }
}

/// What the processes of a run on so many nodes are told; at one level every worker is a node.
fn given(args: &DsmArgs, nodes: usize) -> Result<Given> {
    let (nodes, workers) = match args.levels {
        1 => (nodes.saturating_mul(args.procs), 1),
        _ => (nodes, args.procs),
    };
    let report = match (&args.program, args.quiet, args.is_json()) {
        // A program of ours prints what it counted itself.
        (Program::Ours(_), ..) | (_, true, _) => Report::None,
        (Program::Path(_), _, true) => Report::Json,
        (Program::Path(_), _, false) => Report::Table,
    };
    Ok(Given {
        nodes,
        workers,
        variant: args.variant,
        engine: args.engine.0,
        memory: args.memory.as_deref().map(size::parse).transpose()?,
        page: args.page,
        bind: args.bind,
        report,
        homes_in: args.homes_in.clone(),
        homes_out: args.homes_out.clone(),
        progress: None,
    })
}

/// Starts the processes: the program of the user, or this one again.
fn launch(args: &DsmArgs) -> Result<ExitCode> {
    if let Program::Path(path) = &args.program {
        if args.size.is_some() || args.rounds.is_some() || args.check {
            bail!(
                "--size, --rounds and --check are for the programs that come with Viaduct; words for yours follow `--`"
            );
        }
        if args.hosts.is_none() && !path.is_file() {
            bail!("there is no program {}; hint: cargo build puts it into target/debug", path.display());
        }
    } else if !args.words.is_empty() {
        bail!("words behind `--` are for a program of yours, not for one that comes with Viaduct");
    }
    let hosts = args.hosts.as_deref().map(crate::cmd::launch::host_list).transpose()?;
    let hosts = hosts.unwrap_or_else(|| vec![Host { name: "localhost".to_owned(), slots: args.nodes }]);
    let nodes: usize = hosts.iter().map(|host| host.slots).sum();
    let mut given = given(args, nodes)?;
    let settings = given.settings(wishes(args));
    settings.check()?;
    // A program of the user's may wish for another size of pages, which this process does not hear of: its ranks look.
    let knows_page = args.page.is_some() || matches!(args.program, Program::Ours(_));
    if let (Some(path), None, true) = (&settings.homes_in, &args.hosts, knows_page) {
        viaduct_cashmere::node::place::read(path, settings.page, settings.nodes)?;
    }
    // A program that prints as it goes would print into the bar.
    let wanted = args.progress || matches!(args.program, Program::Ours(_));
    let shown = wanted && std::io::stderr().is_terminal() && !args.quiet && !args.is_json();
    let follow = shown.then(Follow::new).transpose()?;
    given.progress = follow.as_ref().map(|follow| follow.path().to_owned());
    // The ranks of a node stand one behind the other, on one host.
    let ranks = settings.ranks() / nodes.max(1);
    let list: Vec<String> =
        hosts.iter().map(|host| format!("{}*{}", host.name, host.slots * ranks)).collect();
    let mut words: Vec<OsString> = ["viaduct", "launch", "-K", "--table", "never"].map(OsString::from).into();
    if args.allow_root {
        words.push("--allow-root".into());
    }
    words.extend(["-n".into(), settings.ranks().to_string().into()]);
    words.extend(["--genv".into(), format!("{VARIABLE}={given}").into()]);
    words.extend(["--hosts".into(), list.join(",").into()]);
    match &args.program {
        Program::Ours(_) => {
            words.extend(["/proc/self/exe", "dsm", "--as-rank"].map(OsString::from));
            words.extend(std::env::args_os().skip(2));
        }
        Program::Path(path) => {
            if args.hosts.is_some() {
                words.push("--stage".into());
            }
            words.push(path.into());
            words.extend(args.words.iter().cloned());
        }
    }
    let before = killed_for_memory();
    let Verb::Launch(launch) = Cli::try_parse_from(words)?.verb else {
        bail!("the nodes could not be started");
    };
    let ended = crate::cmd::launch::run(&launch);
    if !matches!(ended, Ok(ExitCode::SUCCESS)) && killed_for_memory() > before {
        // A process that is killed says nothing itself.
        eprintln!(
            "viaduct dsm: the kernel has killed a process of this host for want of memory during the run; hint: shared memory \
             takes memory when it is touched: touch less on this host, put nodes on other hosts, or give the container more"
        );
    }
    ended
}

/// How many processes of this host the kernel has killed for want of memory.
fn killed_for_memory() -> u64 {
    let counts = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let count = counts.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// This process is a server or a worker. A failure ends the job, whose launcher says why.
fn rank(args: &DsmArgs, app: App) -> Result<ExitCode> {
    match dsm::start_with(wishes(args)) {
        Ok(dsm) => work(args, app, dsm),
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

fn work(args: &DsmArgs, app: App, mut dsm: Dsm) -> Result<ExitCode> {
    let begun = Instant::now();
    let outcome = match app.run(&mut dsm, problem(args, app)) {
        Ok(outcome) => outcome,
        Err(error) => return failed(&error),
    };
    let (took, rank, engine, page) = (begun.elapsed(), dsm.rank(), dsm.engine(), dsm.page());
    let nodes = if args.levels == 1 { dsm.nodes() / args.procs.max(1) } else { dsm.nodes() };
    let statistics = match dsm.finish() {
        Ok(statistics) => statistics,
        Err(error) => return failed(&error),
    };
    if rank != 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let engine = engine.name();
    let run = Run { args, app, nodes, outcome, took, engine, page, statistics: &statistics };
    if args.is_json() {
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
    app: App,
    nodes: usize,
    outcome: Outcome,
    took: Duration,
    engine: &'static str,
    page: usize,
    statistics: &'a Statistics,
}

impl Run<'_> {
    fn table(&self) {
        let Run { args, app, nodes, outcome, took, engine, page, statistics } = self;
        let layout =
            format!("{nodes} nodes of {} workers, level {}, pages of {page} bytes", args.procs, args.levels);
        println!("{app}: {layout}, {}, {engine}: {:.3} s", args.variant, took.as_secs_f64());
        print!("{}", statistics.table());
        match outcome.equal {
            Some(true) => println!("equal to the sequential program, bit by bit; sum {}", outcome.sum),
            Some(false) => println!("NOT equal to the sequential program; sum {}", outcome.sum),
            None => println!("sum {}", outcome.sum),
        }
    }

    fn json(&self) -> Result<()> {
        let Run { args, app, nodes, outcome, took, engine, page, statistics } = self;
        let counts: serde_json::Map<String, serde_json::Value> = Counter::ALL
            .into_iter()
            .map(|counter| (counter.name().replace(' ', "_"), statistics.get(counter).into()))
            .collect();
        let times: serde_json::Map<String, serde_json::Value> = Spent::ALL
            .into_iter()
            .map(|spent| (spent.name().to_owned(), statistics.time(spent).as_secs_f64().into()))
            .collect();
        let line = serde_json::json!({
            "app": app.name(), "nodes": nodes, "procs": args.procs, "levels": args.levels,
            "variant": args.variant.name(), "engine": engine, "page": page, "seconds": took.as_secs_f64(),
            "work_seconds": outcome.work.as_secs_f64(), "sum": outcome.sum, "equal": outcome.equal,
            "times": times, "counts": counts,
        });
        println!("{}", serde_json::to_string(&line)?);
        Ok(())
    }
}
