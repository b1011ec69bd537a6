//! `viaduct bench datamation`, `components`, `minute` and `sort`: the experiments of Millennium Sort, and how the sort compares.

use std::process::ExitCode;

use anyhow::Result;
use viaduct_bench::sorting::{self, Bench, Emit};

use crate::cli::BenchArgs;
use crate::cmd::rivals::Folder;
use crate::output::progress::Progress;
use crate::output::sheet::Sheet;

pub(crate) const NAMES: [&str; 10] = [
    "datamation",
    "components",
    "minute",
    "sort",
    "sort-1m",
    "sort-10m",
    "sort-memory",
    "sort-lines",
    "sort-nodes",
    "sort-windows",
];

/// Rounds of each measurement, unless fewer are asked for.
const ROUNDS: usize = 9;

/// Runs one of [`NAMES`]. The files are in the folder for temporary ones, whose disk is measured.
pub(crate) fn run(name: &str, args: &BenchArgs) -> Result<ExitCode> {
    let mut sheet = Sheet::open(args)?;
    let folder = Folder::new()?;
    let bench = Bench {
        program: std::env::current_exe()?,
        folder: folder.path().to_owned(),
        quick: args.quick,
        rounds: if args.quick { 1 } else { args.launches.clamp(1, ROUNDS) },
    };
    let mut bar = Progress::new("sort");
    let mut progress = |what: &str, done: f64| bar.show(what, done);
    let mut emit = |line| sheet.put(line);
    match name {
        // All that begin with its name.
        "sort" => NAMES
            .iter()
            .filter(|name| name.starts_with("sort-"))
            .try_for_each(|name| one(name, &bench, &mut progress, &mut emit))?,
        name => one(name, &bench, &mut progress, &mut emit)?,
    }
    bar.clear();
    sheet.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn one(
    name: &str,
    bench: &Bench,
    progress: &mut dyn FnMut(&str, f64),
    emit: Emit<'_>,
) -> std::io::Result<()> {
    match name {
        "datamation" => sorting::datamation(bench, progress, emit),
        "components" => sorting::components(bench, progress, emit),
        "sort-1m" => sorting::records(bench, 1, progress, emit),
        "sort-10m" => sorting::records(bench, 10, progress, emit),
        "sort-memory" => sorting::memory(bench, progress, emit),
        "sort-lines" => sorting::text(bench, progress, emit),
        "sort-nodes" => sorting::nodes(bench, progress, emit),
        "sort-windows" => sorting::windows(bench, progress, emit),
        _ => sorting::minute(bench, progress, emit),
    }
}
