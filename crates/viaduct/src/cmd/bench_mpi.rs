//! `viaduct bench mpi` and `mpi-…`: the micro-benchmarks of MPI, our library beside others and raw VIA.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use viaduct_bench::mpi::{self, Bench, Case, Heard};
use viaduct_results::report::digits;
use viaduct_results::schema::{Cell, Line, Measurement};
use viaduct_results::size;

use crate::cli::{BenchArgs, BenchFormat};
use crate::cmd::{bench, mpi as library, rivals};
use crate::output::progress::Progress;
use crate::output::sheet;
use crate::output::sink::Sink;
use crate::output::{results, table};

/// All cases at once.
pub(crate) const ALL: &str = "mpi";

/// Whether a name of the command line is one of these cases, or all of them.
pub(crate) fn has(name: &str) -> bool {
    name == ALL || mpi::CASES.iter().any(|case| case.name == name)
}

/// Names for the command line.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    std::iter::once(ALL).chain(mpi::CASES.iter().map(|case| case.name))
}

pub(crate) fn run(name: &str, args: &BenchArgs) -> Result<ExitCode> {
    // What `--compare` names here are MPI libraries, not layers.
    let settings = bench::settings(&BenchArgs { compare: Vec::new(), ..args.clone() })?;
    let cases = Case::find_all(name)?;
    let mut ways: Vec<&mpi::MpiWay> = mpi::ALL.iter().collect();
    if !args.compare.is_empty() {
        let chosen = args.compare.iter().map(|name| mpi::find(name.trim())).collect::<Result<Vec<_>, _>>()?;
        ways.retain(|way| way.layer == "mpi" || chosen.iter().any(|other| other.layer == way.layer));
    }
    let peer = bench::peer_command()?;
    let launcher = rivals::launcher(&peer);
    let folder = rivals::Folder::new()?;
    let bench = Bench {
        launcher: &launcher,
        peer: &peer,
        settings: &settings,
        library: library::folder()?,
        folder: folder.path().to_owned(),
        ways,
        rounds: if args.quick { 1 } else { 7 },
    };
    let mut sink = Sink::open(args)?;
    let (mut lines, mut talk, mut written) = (Vec::new(), Vec::new(), Ok(()));
    let mut progress = Progress::new("mpi");
    let done = bench.run(&cases, &mut |event| match event {
        Heard::At(what, share) => progress.show(&what, share),
        Heard::Line(line) => {
            if written.is_ok() {
                written = sink.put(&line);
            }
            lines.push(line);
        }
        Heard::Missing(way) => talk.push(format!("missing: {}; {}", way.layer, way.install)),
        Heard::Failed(layer, case, why) => talk.push(format!("failed: {layer} in {case}: {why}")),
    });
    progress.clear();
    written?;
    done?;
    match args.format {
        BenchFormat::Json => {}
        BenchFormat::Csv => results::csv(&lines, true)?,
        BenchFormat::Table | BenchFormat::Osu => {
            print(&mut io::stdout().lock(), &cases, &lines, &settings.cpus)?
        }
    }
    let mut err = io::stderr().lock();
    talk.iter().try_for_each(|line| writeln!(err, "{line}"))?;
    let valid = lines.iter().all(|line| !matches!(line, Line::Measurement(line) if !line.valid));
    Ok(if valid { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// A table for each case, with a column for each layer, the ratios at the end, and what their words mean.
fn print(out: &mut impl Write, cases: &[&Case], lines: &[Line], cpus: &[usize; 2]) -> io::Result<()> {
    let (measurements, _) = results::split(lines);
    writeln!(out, "# Medians over rounds in which all took turns, on cores {} and {}.", cpus[0], cpus[1])?;
    writeln!(out, "# mpi: Viaduct's library; shm, tcp: the same transport without MPI; MB = 10^6 bytes.")?;
    for case in cases {
        let of_case: Vec<&Measurement> =
            measurements.iter().copied().filter(|line| line.case == case.name).collect();
        writeln!(out, "\n# {}, {}: {}", case.name, case.unit, case.timed)?;
        writeln!(out, "{}", draw(case, &of_case))?;
    }
    let cells: Vec<&Cell> = lines
        .iter()
        .filter_map(|line| if let Line::Cell(cell) = line { Some(&**cell) } else { None })
        .collect();
    if !cells.is_empty() {
        writeln!(out, "\n{}", sheet::draw("mpi-bars", &cells))?;
        sheet::explain(out, &cells)?;
    }
    Ok(())
}

fn draw(case: &Case, lines: &[&Measurement]) -> String {
    let place = |line: &Measurement| (line.size, line.x.map_or(0, |x| x as usize), line.series.clone());
    let mut layers: Vec<&str> = Vec::new();
    let mut places = Vec::new();
    for line in lines.iter().filter(|line| line.p50.is_some()) {
        if !layers.contains(&line.layer.as_str()) {
            layers.push(&line.layer);
        }
        if !places.contains(&place(line)) {
            places.push(place(line));
        }
    }
    places.sort();
    let heads = ["size", case.axis, "series"].into_iter().map(str::to_owned);
    let heads: Vec<String> = heads.chain(layers.iter().map(|layer| (*layer).to_owned())).collect();
    let row = |at: &(usize, usize, String)| {
        let cell = |layer: &&str| {
            let found = lines.iter().find(|line| line.layer == **layer && place(line) == *at);
            found.and_then(|line| line.p50).map_or_else(|| "-".into(), digits)
        };
        let axis = if at.1 == 0 { String::new() } else { at.1.to_string() };
        [size::show(at.0), axis, at.2.clone()].into_iter().chain(layers.iter().map(cell)).collect()
    };
    let rows: Vec<Vec<String>> = places.iter().map(row).collect();
    let numbers: Vec<usize> = (0..heads.len()).filter(|at| *at != 2).collect();
    table::draw(&heads, &rows, &numbers)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use viaduct_results::table::{Better, Table};

    use super::*;

    #[test]
    fn words_stand_under_the_ratios() {
        let bars = Table::new("mpi-bars", BTreeMap::new());
        let ratios = bars.cell("4 KiB", "mpich", "times", Better::More);
        let lines = [ratios.of(&[1.0, 2.0, 3.0])];
        let mut out = Vec::new();
        print(&mut out, &[], &lines, &[0, 1]).expect("a vector takes everything");
        let text = String::from_utf8(out).expect("text");
        let (_, below) = text.split_once("mpi-bars").expect("a table");
        assert!(below.contains("# value [low, high]: ") && below.contains("# times: "), "{text}");
    }
}
