//! `viaduct sort --nodes` and `--hosts`: starts the nodes as a job, and is one of them.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use clap::Parser;
use viaduct_job::Job;
use viaduct_providers::config::Config;
use viaduct_sort::cluster::{self, Links, Node, names};
use viaduct_sort::{Port, Progress, Report};
use viaduct_via::{Nic, SharedNic};

use super::{interrupt, shown};
use crate::cli::sort::{PartialArg, ProgressArg, SortArgs};
use crate::cli::{Cli, Verb};
use crate::knobs;

/// How long a node that another one's failure has reached leaves the word to that one.
const AFTER: Duration = Duration::from_secs(3);

/// Starts the nodes, which are this program again.
pub(super) fn launch(args: &SortArgs) -> Result<ExitCode> {
    check(args)?;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut words: Vec<OsString> = ["viaduct", "launch", "-K", "--table", "never"].map(OsString::from).into();
    let hosts = match (&args.hosts, args.nodes) {
        (Some(list), _) => list.clone(),
        (None, nodes) => format!("localhost*{}", nodes.unwrap_or(1)),
    };
    if args.allow_root {
        words.push("--allow-root".into());
    }
    // What starts a node is this program, here and on every host.
    words.extend(["--hosts".into(), hosts.into(), "/proc/self/exe".into()]);
    words.extend(["sort".into(), "--as-node".into(), since.as_nanos().to_string().into()]);
    if args.progress == ProgressArg::Auto {
        // Nodes have no terminal: the first one tells of its part, in lines that pass the launcher.
        let how = if std::io::stderr().is_terminal() { "lines" } else { "off" };
        words.extend(["--progress".into(), how.into()]);
    }
    words.extend(std::env::args_os().skip(2));
    match Cli::try_parse_from(words)?.verb {
        Verb::Launch(mut args) => {
            // -t : is a separator of fields.
            args.one_program = true;
            crate::cmd::launch::run(&args)
        }
        _ => bail!("the nodes could not be started"),
    }
}

/// What nodes cannot do is said before they are started.
fn check(args: &SortArgs) -> Result<()> {
    let stream = |path: &PathBuf| path == Path::new("-") || super::is_special(path);
    if args.files.is_empty() || args.files.iter().any(stream) {
        bail!("several nodes read files, no streams; hint: name files, with %r where each node has its own");
    }
    let Some(output) = args.output.as_ref().filter(|path| !stream(path)) else {
        bail!("several nodes write a file; hint: -o FILE, or -o FILE.%r for a file of each node");
    };
    if args.merge {
        bail!("-m is for one node; hint: sort without it");
    }
    if args.partial == PartialArg::Keep {
        bail!("--partial keep is for one node; hint: --partial drop");
    }
    if let Some(name) = args.transport.as_deref()
        && !["auto", "shm", "ofi", "tcp"].contains(&name)
        && !name.starts_with("ofi:")
    {
        bail!("there is no transport `{name}`; hint: auto, shm, ofi, ofi:NAME or tcp");
    }
    let own = |path: &PathBuf| names::is_own(path);
    if args.files.iter().any(own) && !args.files.iter().all(own) {
        bail!(
            "some inputs have %r in their name and some have not; hint: either each node has files of its own, or all see all"
        );
    }
    if output.is_dir() {
        bail!("{} is a folder; hint: -o {}/out.%r", output.display(), output.display());
    }
    if !args.files.iter().any(own) {
        let settings = super::settings(args)?;
        args.files.iter().try_for_each(|path| viaduct_sort::refuse_text(path, &settings))?;
    }
    Ok(())
}

/// This process is a node. A failure ends the job, whose launcher says why.
pub(super) fn run(args: &SortArgs) -> Result<ExitCode> {
    let progress = Arc::new(Progress::default());
    let interrupt = interrupt::watch(&progress)?;
    let mut job = Job::join(&knobs::variable)?;
    let how = if job.rank() == 0 { args.progress } else { ProgressArg::Off };
    match shown::during(how, "node 0", &progress, || sort(args, &mut job, &progress)) {
        Ok(report) => {
            let summarised = report.map_or(Ok(()), |report| super::summarise(args, &report));
            job.finish()?;
            summarised.map(|()| ExitCode::SUCCESS)
        }
        Err(_) if interrupt.has_come() => Ok(interrupt.code()),
        Err(error) => {
            let cause = error.downcast_ref::<viaduct_sort::Error>();
            if cause.is_some_and(is_of_another_node) {
                std::thread::sleep(AFTER);
            }
            job.abort(2, &crate::causes(&error));
            // The launcher ends this process; should it not, it ends by itself.
            std::thread::sleep(AFTER);
            Ok(ExitCode::from(2))
        }
    }
}

/// Whether another node knows more about a failure.
fn is_of_another_node(error: &viaduct_sort::Error) -> bool {
    error.is_of_another_node() || error.is_lost_connection() || error.is_stopped()
}

fn sort(args: &SortArgs, job: &mut Job, progress: &Progress) -> Result<Option<Report>> {
    if job.rank() == 0 {
        // The first node writes it.
        super::try_summary(args)?;
    }
    let settings = super::settings(args)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Clocks of hosts differ.
    let since = now.saturating_sub(Duration::from_nanos(args.as_node.unwrap_or_default()));
    // The first exchange of the job: here nodes wait for the last one to start.
    let joining = Instant::now();
    let mut config = knobs::from_environment()?;
    config.join(job)?;
    let joined = joining.elapsed();
    let opening = Instant::now();
    let (transport, links) = links(args, &config, job)?;
    let opened = opening.elapsed();
    let window = args.window.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let node = Node { job, links, transport, window, since, joined, opened };
    let output = args.output.as_deref().context("several nodes need -o")?;
    Ok(cluster::sort(node, &args.files, output, &settings, progress)?)
}

/// What carries records.
fn links(args: &SortArgs, config: &Config, job: &mut Job) -> Result<(String, Links)> {
    let name = match args.transport.as_deref() {
        Some("tcp") => return Ok(("tcp".to_owned(), Links::Tcp(job.token()?))),
        None | Some("auto") => config.usual_provider(),
        Some("shm") if !config.local_only => {
            bail!("--transport shm is for nodes of one host; hint: auto, ofi or tcp")
        }
        Some(name) => name,
    };
    let nic = Nic::open_with(viaduct_providers::open(name, config)?, config.wait)?;
    Ok((name.to_owned(), Links::Via(Port::new(SharedNic::new(nic))?)))
}
