//! `viaduct tour`: a guided minute on this machine.
//!
//! What the machine is, two processes that talk, then latency and bandwidth against the references, and a closing table
//! that says how many times better. Everything it shows can be had alone: each part names its command.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use viaduct_bench::{Case, Layer, PeerCommand, Settings, demo};
use viaduct_results::schema::{Line, Pair};
use viaduct_results::size;

use crate::cli::{Format, TourArgs, TourPeerArgs};
use crate::cmd::{bench, info};
use crate::knobs;
use crate::output::sink::Sink;
use crate::output::{results, table};

pub(crate) fn run(args: &TourArgs) -> Result<ExitCode> {
    let start = Instant::now();
    // Fewer launches say less about page placement; a first impression does not need it.
    let (time, launches) = if args.quick { (args.time / 3.0, 2) } else { (args.time, 6) };
    section(1, "This machine", "viaduct info")?;
    table::print(Format::Table, ["what", "value", "remark"], info::machine())?;

    section(2, "Two processes reach each other's memory", "viaduct tour")?;
    let carrier = talk()?;

    let latency = Chapter { case: "latency", layers: &LATENCY, sizes: &[8, 4 << 10] };
    section(3, "Latency", "viaduct bench latency --provider auto --sizes 8,4K --compare raw,unix,tcp")?;
    let (quick, first) = latency.play(time, launches)?;
    let bandwidth = Chapter { case: "bandwidth", layers: &BANDWIDTH, sizes: &[64 << 10, 1 << 20] };
    section(
        4,
        "Bandwidth",
        "viaduct bench bandwidth --provider auto --sizes 64K,1M --compare copy,unix,tcp",
    )?;
    let (wide, second) = bandwidth.play(time, launches)?;

    let seconds = start.elapsed().as_secs();
    let rows = ratios(&quick, true).into_iter().chain(ratios(&wide, false)).collect();
    let mut out = io::stdout().lock();
    writeln!(out, "\nIn short: Viaduct (auto took {carrier}) against the rest, in {seconds} s\n")?;
    drop(out);
    table::print(
        Format::Table,
        ["what", "size", "against", "placement", "Viaduct is", "95 % interval"],
        rows,
    )?;
    Ok(if first && second { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The second process of part 2.
pub(crate) fn peer(args: &TourPeerArgs) -> Result<ExitCode> {
    demo::guest(&args.provider, &knobs::from_environment()?, &args.address)?;
    Ok(ExitCode::SUCCESS)
}

const LATENCY: [Layer; 4] = [Layer::Auto, Layer::Raw, Layer::Unix, Layer::Tcp];
const BANDWIDTH: [Layer; 4] = [Layer::Auto, Layer::Copy, Layer::Unix, Layer::Tcp];

struct Chapter {
    case: &'static str,
    layers: &'static [Layer],
    sizes: &'static [usize],
}

impl Chapter {
    /// Measures, prints the table, gives back the ratios and whether all data were right.
    fn play(&self, time: f64, launches: usize) -> Result<(Vec<Pair>, bool)> {
        let case = Case::find(self.case)?;
        let cpus = bench::default_cpus();
        let mut settings = Settings::new(self.layers.to_vec(), cpus);
        settings.sizes = self.sizes.to_vec();
        settings.time = time;
        settings.launches = launches;
        settings.providers = knobs::from_environment()?;
        if settings.one_core() {
            // One core only: neither end can spin, and the bare references do nothing else.
            settings.layers.retain(|layer| !matches!(layer, Layer::Raw | Layer::Copy));
            settings.wait = viaduct_bench::Wait::Block;
        }
        let (lines, valid) = bench::measure(case, &settings, &mut Sink::default())?;
        results::table(case, &settings, &lines)?;
        let pairs = lines.into_iter().filter_map(|line| match line {
            Line::Pair(pair) => Some(pair),
            Line::Measurement(_) | Line::Cell(_) => None,
        });
        Ok((pairs.collect(), valid))
    }
}

fn section(number: u32, title: &str, command: &str) -> io::Result<()> {
    writeln!(io::stdout(), "\n{number}. {title}   ($ {command})\n")
}

/// Returns which provider carried the bytes.
fn talk() -> Result<&'static str> {
    let program = std::env::current_exe().context("finding the program to start as the second process")?;
    let command = PeerCommand { program, args: vec!["tour-peer".into()] };
    let mut said = Ok(());
    let mut say = |text: String| {
        if said.is_ok() {
            said = writeln!(io::stdout(), "  {text}");
        }
    };
    let carrier = demo::host("auto", &knobs::from_environment()?, &command, &mut say)?;
    said?;
    Ok(carrier)
}

/// Times by which the provider is better (their time over ours, or our rate over theirs), in the placement that was
/// seen most. The bare references are the limit of the machine, not rivals.
fn ratios(pairs: &[Pair], lower_is_better: bool) -> Vec<[String; 6]> {
    let ours = Layer::Auto.name();
    let mut best: Vec<&Pair> = Vec::new();
    for pair in pairs.iter().filter(|pair| if lower_is_better { pair.b == ours } else { pair.a == ours }) {
        match best.iter_mut().find(|known| (known.size, &known.a, &known.b) == (pair.size, &pair.a, &pair.b))
        {
            Some(known) if known.n < pair.n => *known = pair,
            Some(_) => {}
            None => best.push(pair),
        }
    }
    let row = |pair: &&Pair| {
        let other = if lower_is_better { &pair.a } else { &pair.b };
        let limit = [Layer::Raw.name(), Layer::Copy.name()].contains(&other.as_str());
        let against = if limit { format!("{other} (the limit)") } else { other.clone() };
        // Times by which it is faster; a slower one is told the other way round, with its interval.
        let times = results::compared(pair.ratio, "us", false);
        let [low, high] = if pair.ratio < 1.0 { [1.0 / pair.ci95[1], 1.0 / pair.ci95[0]] } else { pair.ci95 };
        let interval = format!("[{}, {}]", results::digits(low), results::digits(high));
        [pair.case.clone(), size::show(pair.size), against, pair.placement.clone(), times, interval]
    };
    best.iter().map(row).collect()
}
