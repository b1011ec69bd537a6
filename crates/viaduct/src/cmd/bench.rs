//! `viaduct bench CASE`: turns words into settings, runs the case, prints what it hands out.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use viaduct_bench::outside::Programs;
use viaduct_bench::{Call, Case, Event, Layer, PeerCommand, Repost, SendMode, Settings, Wait, cases, layers};
use viaduct_results::schema::Line;
use viaduct_results::size;

use crate::cli::{BenchArgs, BenchFormat, Format, RepostArg, SendArg, WaitArg};
use crate::cmd::{all, bench_dsm, bench_launch, bench_mpi, bench_programs, bench_sort, rivals};
use crate::knobs;
use crate::output::progress::Progress;
use crate::output::sink::Sink;
use crate::output::{osu, results, table};

/// The layer that is Viaduct, by the provider of `--provider`.
const VIA: &str = "via";

/// The layer that is libfabric alone.
const FABRIC: &str = "ofi";

/// The provider of every tool that is not told another.
pub(crate) const USUAL: &str = "auto";

pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    if let Some(at) = &args.listen {
        return wait(at, args);
    }
    let name = args.case.as_deref().unwrap_or_default();
    match name {
        "list" => return list(args.format.plain()),
        "all" => return all::run(args),
        "rivals" => return rivals::run(args),
        "launch" => return bench_launch::run(args),
        name if bench_mpi::has(name) => return bench_mpi::run(name, args),
        name if bench_dsm::NAMES.contains(&name) => return bench_dsm::run(name, args),
        name if bench_sort::NAMES.contains(&name) => return bench_sort::run(name, args),
        _ => {}
    }
    if let Some(which) = Programs::find(name) {
        return bench_programs::measure(which, args);
    }
    let cases = Case::find_all(name)?;
    let settings = settings(args)?;
    let mut sink = Sink::open(args)?;
    let mut valid = true;
    for (i, case) in cases.into_iter().enumerate() {
        let measured = measure(case, &settings, &mut sink)?;
        show(args.format, i == 0, case, &settings, &measured.lines)?;
        valid &= measured.valid;
    }
    if !valid {
        writeln!(io::stderr(), "a layer did not deliver its data intact; no number is given for it")?;
    }
    Ok(if valid { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Lets other hosts measure to this one, until it is ended.
fn wait(at: &str, args: &BenchArgs) -> Result<ExitCode> {
    let said = |call| match call {
        Call::Listening(address) => writeln!(io::stderr(), "listening at {address}"),
        Call::Served(from) => writeln!(io::stderr(), "measured from {from}"),
        Call::Refused(from, error) => writeln!(io::stderr(), "turned {from} away: {error}"),
        _ => Ok(()),
    };
    let cpu = args.cpus.last().copied();
    // A reader of our words that is gone is no reason to stop.
    let mut told = |call| drop(said(call));
    viaduct_bench::listen(at, cpu, &peer_command()?, &knobs::from_environment()?, &mut told)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what was not printed while it was measured; columns have their heading only the `first` time.
pub(crate) fn show(
    format: BenchFormat,
    first: bool,
    case: &Case,
    settings: &Settings,
    lines: &[Line],
) -> io::Result<()> {
    match format {
        BenchFormat::Json => Ok(()),
        BenchFormat::Csv => results::csv(lines, first),
        BenchFormat::Osu => osu::print(case, lines),
        BenchFormat::Table => results::table(case, settings, lines),
    }
}

/// What a case came to.
pub(crate) struct Measured {
    pub(crate) lines: Vec<Line>,
    /// Every layer delivered its data intact.
    pub(crate) valid: bool,
}

/// Runs a case with a progress bar; `sink` gets every line at once.
pub(crate) fn measure(case: &Case, settings: &Settings, sink: &mut Sink) -> Result<Measured> {
    let mut progress = Progress::new(case.name);
    let (mut lines, mut written) = (Vec::new(), Ok(()));
    let valid = viaduct_bench::run(case, settings, &peer_command()?, &mut |event| match event {
        Event::Progress { size: bytes, done } => progress.show(&size::show(bytes), done),
        Event::Line(line) => {
            if written.is_ok() {
                written = sink.put(&line);
            }
            lines.push(line);
        }
        _ => {}
    });
    progress.clear();
    written?;
    Ok(Measured { lines, valid: valid? })
}

/// This program again, as the second process.
pub(crate) fn peer_command() -> Result<PeerCommand> {
    let program = std::env::current_exe().context("finding the program to start as the second process")?;
    Ok(PeerCommand { program, args: vec!["bench-peer".into()] })
}

/// The two cores to use unless told otherwise: the first two this process may run on.
pub(crate) fn default_cpus() -> [usize; 2] {
    let allowed = viaduct_os::cpu::allowed();
    let first = allowed.first().copied().unwrap_or(0);
    [first, allowed.get(1).copied().unwrap_or(first)]
}

/// What the words of the command line ask for.
pub(crate) fn settings(args: &BenchArgs) -> Result<Settings> {
    // Viaduct by whichever provider: what the layer `via` means depends on another word, and so does libfabric alone.
    let provider = args.provider.as_deref().unwrap_or(USUAL);
    let named = |name: &str| match name {
        VIA => Layer::of_provider(provider),
        FABRIC if provider.starts_with("ofi:") => provider.parse(),
        _ => name.parse(),
    };
    let mut chosen: Vec<Layer> = vec![named(args.layer.as_deref().unwrap_or(VIA))?];
    for name in &args.compare {
        let layer = named(name.trim())?;
        if !chosen.contains(&layer) {
            chosen.push(layer);
        }
    }
    let cpus = match args.cpus[..] {
        [] => default_cpus(),
        [both] => [both, both],
        [a, b, ..] => [a, b],
    };
    let mut settings = Settings::new(chosen, cpus);
    settings.sizes = args.sizes.as_deref().map(size::parse_list).transpose()?.unwrap_or_default();
    settings.wait = match args.wait {
        WaitArg::Poll => Wait::Poll,
        WaitArg::Block => Wait::Block,
    };
    settings.send = match args.send {
        SendArg::Auto => SendMode::Auto,
        SendArg::Descriptor => SendMode::Descriptor,
    };
    settings.repost = match args.repost {
        RepostArg::After => Repost::After,
        RepostArg::Before => Repost::Before,
    };
    settings.logp = args.logp;
    settings.cold = args.cold;
    settings.quick = args.quick;
    settings.window = args.window;
    settings.batch = args.batch;
    settings.single = args.single;
    settings.connections.clone_from(&args.connections);
    settings.time = if args.quick { args.time / 5.0 } else { args.time };
    settings.launches = if args.quick { args.launches.min(3) } else { args.launches };
    settings.seed = args.seed;
    settings.providers = knobs::from_environment()?;
    settings.connect.clone_from(&args.connect);
    Ok(settings)
}

fn list(format: Format) -> Result<ExitCode> {
    let mut rows = Vec::new();
    for case in cases::ALL {
        rows.push(["case".into(), case.name.into(), case.unit.into(), case.about.into()]);
    }
    for case in viaduct_bench::mpi::CASES {
        rows.push(["case".into(), case.name.into(), case.unit.into(), case.about.into()]);
    }
    rows.push(["layer".into(), VIA.into(), String::new(), "Viaduct, by the provider of --provider".into()]);
    for info in layers::all() {
        rows.push(["layer".into(), info.name.into(), String::new(), info.about.into()]);
    }
    table::print(format, ["kind", "name", "unit", "what it is"], rows)?;
    Ok(ExitCode::SUCCESS)
}
