//! `viaduct report RESULTS.. -o report.html`: a page from result files; with `--compare`, what changed between two.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use viaduct_results::Error;
use viaduct_results::report::{self, Comparison, Results, Verdict};

use crate::cli::ReportArgs;

/// Points that are worse by more than this are named on the terminal.
const MUCH: f64 = 1.05;

/// How many of them at most.
const MOST: usize = 100;

pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode> {
    let files: Vec<Results> = args.results.iter().map(|path| load(path)).collect::<Result<_>>()?;
    let known = viaduct_bench::catalogue();
    let (results, comparison) = match (&files[..], args.compare) {
        ([old, new], true) => (new.clone(), Some(report::compare(old, new, &known))),
        (files, true) => {
            let what = format!("--compare takes two result files, not {}", files.len());
            return Err(
                Error::new(what, "viaduct report old.jsonl new.jsonl --compare -o report.html").into()
            );
        }
        (files, false) => (files.iter().cloned().reduce(Results::join).unwrap_or_default(), None),
    };
    let page = report::page(&results, comparison.as_ref(), &known);
    if args.output.as_os_str() == "-" {
        io::stdout().lock().write_all(page.as_bytes())?;
    } else {
        fs::write(&args.output, &page).with_context(|| format!("writing {}", args.output.display()))?;
    }
    let mut err = io::stderr().lock();
    let missing = page.matches("<p class=\"missing\">").count();
    let figures = page.matches("<section id=").count();
    write!(
        err,
        "{}: {} points, {figures} figures",
        args.output.display(),
        results.measurements.len() + results.cells.len()
    )?;
    match missing {
        0 => writeln!(err)?,
        _ => writeln!(err, ", {missing} of them without data; the page says which commands make them")?,
    }
    comparison.iter().try_for_each(|comparison| tell(comparison, &mut err))?;
    Ok(ExitCode::SUCCESS)
}

fn load(path: &Path) -> Result<Results> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let doing = || format!("reading {}", path.display());
    let bytes = if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).with_context(doing)?;
        bytes
    } else {
        fs::read(path).with_context(doing)?
    };
    let text = String::from_utf8(bytes).map_err(|_| {
        let what = format!("{name} is not text");
        Error::new(what, "result files are made by: viaduct bench all --quick -o results.jsonl")
    })?;
    Ok(report::read(&name, &text)?)
}

fn tell(comparison: &Comparison, err: &mut impl Write) -> io::Result<()> {
    writeln!(
        err,
        "{} points in both: {} better, {} worse, {} not sure; {} in one file only",
        comparison.changes.len(),
        comparison.count(Verdict::Better),
        comparison.count(Verdict::Worse),
        comparison.count(Verdict::Unknown),
        comparison.unmatched
    )?;
    let worse = comparison.worse(MUCH);
    for change in worse.iter().take(MOST) {
        writeln!(err, "worse by {:.0} %: {}", (change.factor() - 1.0) * 100.0, change.named())?;
    }
    match worse.len().saturating_sub(MOST) {
        0 => Ok(()),
        more => writeln!(err, "... and {more} more, which the page has"),
    }
}
