//! `viaduct bench ftp`, `rpc` and `apps`: programs of others over TCP and over Viaduct, in one run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use viaduct_bench::outside::{self, Ground, Programs};
use viaduct_results::schema::Line;

use crate::cli::BenchArgs;
use crate::cmd::bench::peer_command;
use crate::cmd::rivals::{Folder, launcher};
use crate::cmd::run;
use crate::output::progress::Progress;
use crate::output::sheet::Sheet;

/// A file system in memory, on most machines.
const MEMORY: &str = "/dev/shm";

pub(crate) fn measure(which: Programs, args: &BenchArgs) -> Result<ExitCode> {
    let mut sheet = Sheet::open(args)?;
    let folder = Folder::below(&place())?;
    let launcher = launcher(&peer_command()?);
    let most = if args.quick { 3 } else { usize::MAX };
    let ground = Ground {
        launcher,
        folder: folder.path().to_owned(),
        rounds: args.launches.clamp(1, most),
        quick: args.quick,
        agent: format!("viaduct-bench-{}", std::process::id()),
        upgraded: run::upgraded,
    };
    let mut progress = Progress::new(which.name());
    let lines = outside::run(which, &ground, &mut |what, done| progress.show(what, done));
    progress.clear();
    let lines = lines?;
    let good = lines.iter().all(|line| !matches!(line, Line::Cell(cell) if cell.missing.is_some()));
    for line in lines {
        sheet.put(line)?;
    }
    sheet.finish()?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Where files lie that must not wait for a disk.
fn place() -> PathBuf {
    let memory = Path::new(MEMORY);
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}
