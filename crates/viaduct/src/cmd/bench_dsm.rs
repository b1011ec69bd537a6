//! `viaduct bench dsm` and its parts: what shared memory between nodes costs, and how it stands against others.

use std::process::ExitCode;

use anyhow::Result;
use viaduct_bench::dsm::{self, Bench, Emit, Progress as Told};

use crate::cli::BenchArgs;
use crate::cmd::{bench, rivals};
use crate::output::progress::Progress;
use crate::output::sheet::Sheet;

/// All parts at once, and each.
pub(crate) const NAMES: [&str; 5] = ["dsm", "dsm-operations", "dsm-barrier", "dsm-crowd", "dsm-threads"];

/// Rounds of each part, unless fewer are asked for.
const ROUNDS: usize = 7;

pub(crate) fn run(name: &str, args: &BenchArgs) -> Result<ExitCode> {
    let settings = bench::settings(&BenchArgs { compare: Vec::new(), ..args.clone() })?;
    let peer = bench::peer_command()?;
    let launcher = rivals::launcher(&peer);
    let folder = rivals::Folder::new()?;
    let mut sheet = Sheet::open(args)?;
    let bench = Bench {
        launcher: &launcher,
        folder: folder.path().to_owned(),
        cpus: settings.cpus,
        quick: args.quick,
        rounds: if args.quick { 1 } else { args.launches.clamp(1, ROUNDS) },
    };
    let mut bar = Progress::new("dsm");
    let mut told = |what: &str, done: f64| bar.show(what, done);
    let mut emit = |line| sheet.put(line);
    for part in NAMES.iter().filter(|part| **part != NAMES[0] && (name == NAMES[0] || **part == name)) {
        one(part, &bench, &mut told, &mut emit)?;
    }
    bar.clear();
    sheet.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn one(part: &str, bench: &Bench<'_>, told: Told<'_>, emit: Emit<'_>) -> std::io::Result<()> {
    match part {
        "dsm-barrier" => dsm::barriers(bench, told, emit),
        "dsm-crowd" => dsm::crowd(bench, told, emit),
        "dsm-threads" => dsm::threads(bench, told, emit),
        _ => dsm::operations(bench, told, emit),
    }
}
