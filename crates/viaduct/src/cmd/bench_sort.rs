//! `viaduct bench datamation`, `components` and `minute`: the experiments of Millennium Sort.

use std::process::ExitCode;

use anyhow::Result;
use viaduct_bench::sorting::{self, Bench};

use crate::cli::BenchArgs;
use crate::cmd::rivals::Folder;
use crate::output::progress::Progress;
use crate::output::sheet::Sheet;

pub(crate) const NAMES: [&str; 3] = ["datamation", "components", "minute"];

/// Runs one of [`NAMES`]. The files are in the folder for temporary ones, whose disk is measured.
pub(crate) fn run(name: &str, args: &BenchArgs) -> Result<ExitCode> {
    let mut sheet = Sheet::open(args)?;
    let folder = Folder::new()?;
    let bench =
        Bench { program: std::env::current_exe()?, folder: folder.path().to_owned(), quick: args.quick };
    let mut bar = Progress::new("sort");
    let mut progress = |what: &str, done: f64| bar.show(what, done);
    let mut emit = |line| sheet.put(line);
    match name {
        "datamation" => sorting::datamation(&bench, &mut progress, &mut emit)?,
        "components" => sorting::components(&bench, &mut progress, &mut emit)?,
        _ => sorting::minute(&bench, &mut progress, &mut emit)?,
    }
    bar.clear();
    sheet.finish()?;
    Ok(ExitCode::SUCCESS)
}
