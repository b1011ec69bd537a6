//! `viaduct tour`: a guided minute on this machine.
//!
//! What the machine is, two processes that talk, then latency and bandwidth against the references, a table that says how many
//! times better, and what stands on top (`tour_floors.rs`). Everything it shows can be had alone: each part names its command.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use viaduct_bench::{Case, Layer, PeerCommand, Settings, demo};
use viaduct_results::schema::{Line, Pair};
use viaduct_results::size;

use crate::cli::{Format, TourArgs, TourPeerArgs};
use crate::cmd::bench::{self, Measured};
use crate::cmd::{info, tour_floors};
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
    let quick = latency.play(time, launches)?;
    let bandwidth = Chapter { case: "bandwidth", layers: &BANDWIDTH, sizes: &[64 << 10, 1 << 20] };
    section(
        4,
        "Bandwidth",
        "viaduct bench bandwidth --provider auto --sizes 64K,1M --compare copy,unix,tcp",
    )?;
    let wide = bandwidth.play(time, launches)?;

    let seconds = start.elapsed().as_secs();
    let placement = usual_placement(quick.lines.iter().chain(&wide.lines));
    let rows = ratios(&quick.lines, &placement, true).into_iter();
    let rows = rows.chain(ratios(&wide.lines, &placement, false)).collect();
    let mut out = io::stdout().lock();
    writeln!(out, "\nIn short: Viaduct (auto took {carrier}) against the rest, in {seconds} s")?;
    writeln!(out, "All rows are of the core placement that was seen most: {placement}.")?;
    writeln!(out, "95 % interval: where the median lies in 95 of 100 such runs.\n")?;
    drop(out);
    table::print(
        Format::Table,
        ["what", "size", "against", "placement", "Viaduct is", "95 % interval"],
        rows,
    )?;
    let floors = args.short || tour_floors::walk(5)?;
    Ok(if quick.valid && wide.valid && floors { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The second process of part 2.
pub(crate) fn peer(args: &TourPeerArgs) -> Result<ExitCode> {
    demo::guest(&args.provider, &knobs::from_environment()?, &args.address)?;
    Ok(ExitCode::SUCCESS)
}

/// The layer that the tour shows.
const OURS: Layer = Layer::Via("auto");
const LATENCY: [Layer; 4] = [OURS, Layer::Raw, Layer::Unix, Layer::Tcp];
const BANDWIDTH: [Layer; 4] = [OURS, Layer::Copy, Layer::Unix, Layer::Tcp];

struct Chapter {
    case: &'static str,
    layers: &'static [Layer],
    sizes: &'static [usize],
}

impl Chapter {
    /// Measures, prints the table, gives back the result lines and whether all data were right.
    fn play(&self, time: f64, launches: usize) -> Result<Measured> {
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
        let measured = bench::measure(case, &settings, &mut Sink::default())?;
        results::table(case, &settings, &measured.lines)?;
        Ok(measured)
    }
}

pub(super) fn section(number: u32, title: &str, command: &str) -> io::Result<()> {
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

/// The core placement in which most slices of all measurements were taken.
fn usual_placement<'a>(lines: impl Iterator<Item = &'a Line>) -> String {
    let mut slices: BTreeMap<&str, usize> = BTreeMap::new();
    for line in lines {
        if let Line::Measurement(measurement) = line {
            *slices.entry(&measurement.placement).or_default() += measurement.n;
        }
    }
    slices.into_iter().max_by_key(|(_, n)| *n).map(|(placement, _)| placement.to_owned()).unwrap_or_default()
}

/// Times by which the provider is better (their time over ours, or our rate over theirs), in one placement. The bare
/// references are the limit of the machine, not rivals.
fn ratios(lines: &[Line], placement: &str, lower_is_better: bool) -> Vec<[String; 6]> {
    let ours = OURS.name();
    let pairs = lines.iter().filter_map(|line| if let Line::Pair(pair) = line { Some(pair) } else { None });
    let of_ours = |pair: &&Pair| if lower_is_better { pair.b == ours } else { pair.a == ours };
    let row = |pair: &Pair| {
        let other = if lower_is_better { &pair.a } else { &pair.b };
        let limit = [Layer::Raw.name(), Layer::Copy.name()].contains(&other.as_str());
        let against = if limit { format!("{other} (the limit)") } else { other.clone() };
        // Times by which it is faster; a slower one is told the other way round, with its interval.
        let times = results::compared(pair.ratio, "us", false);
        let [low, high] = if pair.ratio < 1.0 { [1.0 / pair.ci95[1], 1.0 / pair.ci95[0]] } else { pair.ci95 };
        let interval = format!("[{}, {}]", results::digits(low), results::digits(high));
        [pair.case.clone(), size::show(pair.size), against, pair.placement.clone(), times, interval]
    };
    pairs.filter(of_ours).filter(|pair| pair.placement == placement).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::osu::tests::line;
    use viaduct_results::schema::Measurement;

    fn pair(size: usize, b: &str, placement: &str, n: usize, ratio: f64) -> Line {
        let (schema, case, a) = (1, "latency".to_owned(), "tcp".to_owned());
        let (b, placement) = (b.to_owned(), placement.to_owned());
        let (ci95, noisy, config) = ([ratio; 2], false, Default::default());
        Line::Pair(Pair { schema, case, size, a, b, ratio, ci95, placement, n, noisy, config })
    }

    #[test]
    fn all_ratios_are_of_the_placement_that_was_seen_most() {
        let mut near = line(r#""size":8,"p50":1.0"#);
        (near.placement, near.n) = ("near".into(), 79);
        let far = Measurement { placement: "far".into(), n: 19, ..near.clone() };
        let mut lines = vec![Line::Measurement(Box::new(far)), Line::Measurement(Box::new(near))];
        lines.extend([pair(8, "auto", "near", 6, 40.0), pair(8, "auto", "far", 9, 95.0)]);
        lines.extend([pair(4096, "auto", "near", 6, 0.5), pair(4096, "raw", "near", 6, 9.0)]);
        let placement = usual_placement(lines.iter());
        assert_eq!(placement, "near");
        let rows = ratios(&lines, &placement, true);
        let told: Vec<&str> = rows.iter().map(|row| row[4].as_str()).collect();
        assert_eq!(told, ["40.0 x faster", "2.00 x slower"]);
    }
}
