//! `viaduct launch`: turns words into a plan, runs it, shows what became of it.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use viaduct_catapult::binding::{Bind, Unit};
use viaduct_catapult::control::{self, Launch};
use viaduct_catapult::hosts::{self, Host, Source};
use viaduct_catapult::jobs::Door;
use viaduct_catapult::outcome::Outcome;
use viaduct_catapult::output::{Mode, OutputFiles};
use viaduct_catapult::plan::{Input, MapBy, NodePlan, Placement, Program, Wish};
use viaduct_catapult::{Error, allocation, dry, environment, guard, tidy, words};
use viaduct_job::Token;
use viaduct_os::{random, runtime_dir};

use crate::cli::launch::{self as words_of, LaunchArgs, SectionArgs, When};
use crate::cmd::far::{self, Cargo};
use crate::cmd::jobs;
use crate::output::table;

pub(crate) fn run(args: &LaunchArgs) -> Result<ExitCode> {
    let wishes = wishes(args)?;
    let hosts = hosts(args)?;
    let map = Map::parse(args.map_by.as_deref())?;
    let placement = Placement::new(&wishes, &hosts, map.per_node.or(args.ppn), map.by)?;
    let plans = plans(args, &wishes, &placement, map.unit)?;
    if args.dry_run {
        return dry_run(&plans);
    }
    let local = placement.hosts.iter().position(Host::is_local);
    let mut launch = Launch {
        plans,
        local,
        rescue: None,
        mode: mode(args),
        timeout: args.timeout.map(seconds).transpose()?,
        grace: seconds(args.grace)?,
        quiet: args.quiet,
        files: OutputFiles::default(),
    };
    let hosts: Vec<String> = placement.host_of_ranks().into_iter().map(str::to_owned).collect();
    let patterns = [args.output_file.as_deref(), args.error_file.as_deref()];
    viaduct_os::children::raise_open_files();
    launch.files = OutputFiles::create(patterns, &launch.plans[0].job, &hosts, args.label)?;
    let (folder, files) = (jobs::folder(), Cargo::new(args, &wishes)?);
    let _ = folder.as_ref().map(|folder| tidy::run_folder(folder));
    let status = guard::guarded(|leash| {
        // A job without a door runs all the same; only `viaduct ps` does not see it.
        let job = launch.plans[0].job.clone();
        let door = folder.as_ref().ok().and_then(|folder| Door::open(folder, &job, "launch").ok());
        if let Err(error) = far::reach(args, &mut launch, folder.as_ref().map(PathBuf::as_path), &files) {
            let _ = crate::complain(&error);
            return 2;
        }
        match control::run(launch, leash, door) {
            Ok(outcome) => {
                let _ = show(args, &outcome);
                outcome.status()
            }
            Err(error) => {
                let _ = crate::complain(&error.into());
                2
            }
        }
    })?;
    Ok(ExitCode::from(status))
}

/// Prints what would be started, and makes the token that ranks need which are started by hand.
fn dry_run(plans: &[NodePlan]) -> Result<ExitCode> {
    let token = match std::env::var("VIADUCT_TOKEN_FILE") {
        Ok(path) => path,
        Err(_) => {
            let folder = runtime_dir::runtime_dir(Some(&jobs::folder()?.join("tokens")))?;
            let path = folder.join(&plans[0].job);
            let own = std::env::var("VIADUCT_TOKEN").ok().map(|text| text.parse()).transpose()?;
            own.unwrap_or_else(Token::random).save(&path)?;
            path.to_string_lossy().into_owned()
        }
    };
    // A port that is free at the moment; rank 0 takes it when it is started.
    let port = std::net::TcpListener::bind("0.0.0.0:0")?.local_addr()?.port();
    let alone = plans.iter().all(|plan| Host { name: plan.host.clone(), slots: 1 }.is_local());
    let first = if alone { "127.0.0.1" } else { &plans[0].host };
    let first = first.rsplit('@').next().unwrap_or(first);
    let text = dry::script(plans, &format!("{first}:{port}"), &token);
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The programs and how many ranks of each.
fn wishes(args: &LaunchArgs) -> Result<Vec<Wish>> {
    let sections = if args.one_program { vec![&args.command[..]] } else { words::sections(&args.command) };
    let mut sections = sections.into_iter();
    let first = sections.next().unwrap_or_default();
    let mut wishes = vec![wish(first, args.ranks, &args.env, args.wdir.clone())?];
    for section in sections {
        let words = words::translate(section, &words_of::section_options(), Some(&words_of::options()))?;
        let section = match SectionArgs::try_parse_from(words) {
            Ok(section) => section,
            Err(why) => bail!("after `:`: {}", why.to_string().trim_start_matches("error: ").trim()),
        };
        let folder = section.wdir.or_else(|| args.wdir.clone());
        let mut wish = wish(&section.command, section.ranks, &section.env, folder)?;
        wish.hosts = named_hosts(section.hosts.as_deref(), section.hostfile.as_deref())?;
        wishes.push(wish);
    }
    Ok(wishes)
}

fn wish(
    command: &[OsString],
    count: Option<usize>,
    variables: &[String],
    folder: Option<String>,
) -> Result<Wish> {
    if command.is_empty() {
        bail!("a program is missing before or after `:`");
    }
    let command = command.iter().map(|word| word.as_bytes().to_vec()).collect();
    let variables = variables.iter().map(|text| pair(text)).collect::<Result<_>>()?;
    Ok(Wish { program: Program { command, variables, folder }, count, hosts: None })
}

fn pair(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => bail!("`{text}` is no variable: write NAME=VALUE"),
    }
}

fn hosts(args: &LaunchArgs) -> Result<Vec<Host>> {
    let here = |slots| vec![Host { name: "localhost".to_owned(), slots }];
    if let Some(hosts) = named_hosts(args.hosts.as_deref(), args.hostfile.as_deref())? {
        return Ok(hosts);
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut found = allocation::hosts(&variable, &Files)?.unwrap_or_else(|| here(1));
    // A batch script runs on one of its hosts, and needs no agent there.
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    allocation::call_local(&mut found, own.trim());
    Ok(found)
}

/// Hosts of a list or a file, if one is given.
fn named_hosts(list: Option<&str>, file: Option<&Path>) -> Result<Option<Vec<Host>>> {
    match (list, file) {
        (Some(list), _) => host_list(list).map(Some),
        (None, Some(path)) => {
            let path = path.to_string_lossy();
            Ok(Some(hosts::file::parse(&Files.file(&path)?, &path)?))
        }
        (None, None) => Ok(None),
    }
}

/// Hosts as they are typed.
pub(crate) fn host_list(list: &str) -> Result<Vec<Host>> {
    Ok(hosts::parse(list, &Files)?)
}

/// Groups are in a file of the user's; files of hosts are where the user says.
struct Files;

impl Source for Files {
    fn group(&self, name: &str) -> Result<String, Error> {
        let home = std::env::var("HOME").unwrap_or_default();
        let config = std::env::var("XDG_CONFIG_HOME").unwrap_or_else(|_| format!("{home}/.config"));
        let path = PathBuf::from(config).join("viaduct/groups");
        let missing = |why: String| Error::NoGroup { name: name.to_owned(), why };
        let text =
            std::fs::read_to_string(&path).map_err(|why| missing(format!("{}: {why}", path.display())))?;
        let list = hosts::file::group(&text, name).map(str::to_owned);
        list.ok_or_else(|| missing(format!("it is not in {}", path.display())))
    }

    fn file(&self, path: &str) -> Result<String, Error> {
        std::fs::read_to_string(path).map_err(|why| Error::system(path.to_owned(), why))
    }
}

/// What `--map-by` says: in which order ranks go to hosts, how many to each, and in which order they get CPUs.
#[derive(Default)]
struct Map {
    by: MapBy,
    per_node: Option<usize>,
    unit: Option<Unit>,
}

impl Map {
    fn parse(text: Option<&str>) -> Result<Map> {
        let Some(text) = text else { return Ok(Map::default()) };
        let words: Vec<&str> = text.split(':').collect();
        match words[..] {
            ["slot"] => Ok(Map::default()),
            ["node"] => Ok(Map { by: MapBy::Node, ..Map::default() }),
            ["ppr", count, "node"] if count.parse().is_ok_and(|n: usize| n > 0) => {
                Ok(Map { per_node: count.parse().ok(), ..Map::default() })
            }
            [word] if Unit::parse(word).is_some() => Ok(Map { unit: Unit::parse(word), ..Map::default() }),
            _ => bail!(Error::Option {
                word: format!("--map-by {text}"),
                why: "is not understood",
                hint: "write slot, node or ppr:N:node for hosts; core, hwthread, socket or numa for CPUs"
                    .to_owned(),
            }),
        }
    }
}

/// What `-x` says: names of variables of ours, and variables with their values.
#[derive(Default)]
struct Forward<'a> {
    names: Vec<&'a str>,
    variables: Vec<(String, String)>,
}

fn forwarding(args: &LaunchArgs) -> Result<Forward<'_>> {
    let mut forward = Forward::default();
    for text in &args.forward {
        if text.contains('=') {
            forward.variables.push(pair(text)?);
            continue;
        }
        for name in text.split(',').filter(|name| !name.is_empty()) {
            if std::env::var_os(name).is_none() && !args.quiet {
                writeln!(io::stderr(), "viaduct launch: -x {name}: that variable is not set here")?;
            }
            forward.names.push(name);
        }
    }
    Ok(forward)
}

/// What `--stdin` says, in a job of this size.
fn input(args: &LaunchArgs, size: u32) -> Result<Input> {
    if let Some(rank) = args.debug {
        if rank >= size {
            bail!("there is no rank {rank} to debug: the job has {size}");
        }
        return Ok(Input::One(rank));
    }
    match &*args.stdin {
        "none" => Ok(Input::None),
        "all" => Ok(Input::All),
        text => match text.parse() {
            Ok(rank) if rank < size => Ok(Input::One(rank)),
            Ok(rank) => {
                bail!("there is no rank {rank} for --stdin: the job has {size}, from 0 to {}", size - 1)
            }
            Err(_) => bail!("--stdin takes a rank, `all` or `none`, not `{text}`"),
        },
    }
}

fn plans(
    args: &LaunchArgs,
    wishes: &[Wish],
    placement: &Placement,
    unit: Option<Unit>,
) -> Result<Vec<NodePlan>> {
    let mut variables: Vec<(String, String)> =
        args.genv.iter().map(|text| pair(text)).collect::<Result<_>>()?;
    let Forward { names, variables: more } = forwarding(args)?;
    variables.extend(more);
    let bind = args.bind_to.as_deref().map(Bind::parse).transpose()?.unwrap_or_default();
    // One secret for the ranks of this job, unless the user has one.
    if std::env::var_os("VIADUCT_TOKEN").is_none() && std::env::var_os("VIADUCT_TOKEN_FILE").is_none() {
        variables.push(("VIADUCT_TOKEN".to_owned(), Token::random().secret_text()));
        // No process of another host can have this token. One machine that plays several hosts needs its network.
        let set =
            |name: &str| std::env::var_os(name).is_some() || variables.iter().any(|(own, _)| own == name);
        if placement.nodes.len() == 1 && !set("VIADUCT_HOST") && !set("VIADUCT_AUTO_LOCAL_ONLY") {
            variables.push(("VIADUCT_AUTO_LOCAL_ONLY".to_owned(), "on".to_owned()));
        }
    }
    let job = format!("v{:08x}", random::u32());
    let (size, nodes) = (placement.size() as u32, placement.nodes.len() as u32);
    let input = input(args, size)?;
    // Elsewhere there is no environment to inherit from us.
    let along = |name: &str| args.genvall || environment::is_forwarded(name) || names.contains(&name);
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let mut forwarded: Vec<(String, String)> = std::env::vars_os().filter_map(text).collect();
    forwarded.retain(|(name, _)| along(name));
    let programs: Vec<Program> = wishes.iter().map(|wish| wish.program.clone()).collect();
    let plan = |(node, (host, ranks)): (usize, (&Host, &Vec<_>))| NodePlan {
        job: job.clone(),
        size,
        node: (node as u32, nodes),
        host: host.name.clone(),
        ranks: ranks.clone(),
        programs: programs.clone(),
        variables: if host.is_local() { variables.clone() } else { [&forwarded[..], &variables].concat() },
        mapping: placement.mapping(),
        input,
        debug: args.debug,
        strict: args.kill_on_bad_exit,
        bind: bind.clone(),
        bind_by: unit,
        report_bindings: args.report_bindings,
        singletons: args.allow_singletons,
    };
    Ok(placement.hosts.iter().zip(&placement.nodes).enumerate().map(plan).collect())
}

fn mode(args: &LaunchArgs) -> Mode {
    match args {
        LaunchArgs { label: true, .. } => Mode::Label,
        LaunchArgs { fold: true, .. } => Mode::Fold,
        LaunchArgs { json: true, .. } => Mode::Json,
        LaunchArgs { raw: true, .. } => Mode::Raw,
        _ => Mode::Plain,
    }
}

pub(crate) fn seconds(value: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(value).with_context(|| format!("{value} is not a number of seconds"))
}

/// What became of the ranks, if it is wanted.
fn show(args: &LaunchArgs, outcome: &Outcome) -> io::Result<()> {
    if args.json {
        return outcome.objects().iter().try_for_each(|object| writeln!(io::stdout(), "{object}"));
    }
    let bad = outcome.status() != 0 && outcome.fates.len() > 1 && !args.quiet;
    if args.table == When::Always || (args.table == When::Auto && bad) {
        let heads = ["rank", "host", "pid", "code", "signal", "seconds"];
        writeln!(io::stderr(), "{}", table::draw(&heads, &outcome.rows(), &[0, 2, 3, 5]))?;
        return outcome.first_failure().map_or(Ok(()), |words| writeln!(io::stderr(), "{words}"));
    }
    Ok(())
}
