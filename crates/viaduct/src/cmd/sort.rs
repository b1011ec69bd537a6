//! `viaduct sort`: arguments and output; the work is in `viaduct-sort`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use viaduct_sort::check::{Check, Checked, KeyRule, Summary};
use viaduct_sort::generate::{Generator, Style};

use crate::cli::sort::{CheckArgs, GenArgs, SortArgs, SortVerb};

pub(crate) fn run(args: &SortArgs) -> Result<ExitCode> {
    match &args.verb {
        Some(SortVerb::Gen(args)) => generate(args),
        Some(SortVerb::Check(args)) => check(args),
        None => bail!("nothing to do"),
    }
}

fn generate(args: &GenArgs) -> Result<ExitCode> {
    let style = if args.ascii { Style::Ascii } else { Style::Binary };
    let generator = if args.skew { Generator::skewed(style) } else { Generator::new(style) };
    let threads = args.threads.filter(|&n| n > 0).unwrap_or_else(viaduct_os::cpu::count);
    let (first, count) = (args.begin, args.records);
    let sum = match &args.output {
        Some(path) if path == Path::new("-") => generator.to_stream(
            first,
            count,
            Path::new("standard output"),
            Box::new(io::stdout()),
            threads,
        )?,
        Some(path) if is_special(path) => {
            let file = std::fs::OpenOptions::new().write(true).open(path);
            let file = file.with_context(|| format!("opening {}", path.display()))?;
            generator.to_stream(first, count, path, Box::new(file), threads)?
        }
        Some(path) => generator.to_file(first, count, path, threads)?,
        None => generator.checksum(first, count, threads)?,
    };
    if args.checksum || args.output.is_none() {
        writeln!(io::stderr(), "{sum:x}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check(args: &CheckArgs) -> Result<ExitCode> {
    let (offset, len) = args.key;
    if offset.checked_add(len).is_none_or(|end| end > args.record_size) {
        bail!("the key {offset}:{len} lies outside records of {} bytes", args.record_size);
    }
    if args.output.is_some() && args.record_size != viaduct_sort::RECORD {
        bail!("summaries are for records of {} bytes", viaduct_sort::RECORD);
    }
    let rule = KeyRule { record: args.record_size, offset, len, fold: args.ignore_case };
    let check = Check { rule, threads: args.threads.unwrap_or(0), ..Check::default() };
    let summary = if args.summaries {
        let [list] = &args.files[..] else { bail!("one file of summaries at a time") };
        check.summaries(list)?
    } else if args.files == [PathBuf::from("-")] {
        check.streams(vec![("standard input".into(), Box::new(io::stdin()))])?
    } else {
        check.files(&args.files)?
    };
    if let Some(path) = &args.output {
        std::fs::write(path, summary.to_bytes()).with_context(|| format!("writing {}", path.display()))?;
    }
    say(&summary, args.quiet)
}

/// What valsort says, on standard error as there.
fn say(summary: &Summary, quiet: bool) -> Result<ExitCode> {
    let mut out = io::stderr().lock();
    let verdict = summary.verdict();
    if !quiet {
        if let Checked::Unordered { first, .. } = verdict {
            writeln!(out, "First unordered record is record {first}")?;
        }
        writeln!(out, "Records: {}", summary.records)?;
        writeln!(out, "Checksum: {:x}", summary.checksum)?;
        writeln!(out, "Duplicate keys: {}", summary.duplicates)?;
    }
    match verdict {
        Checked::Ordered if quiet => Ok(ExitCode::SUCCESS),
        Checked::Ordered => {
            writeln!(out, "SUCCESS - all records are in order")?;
            Ok(ExitCode::SUCCESS)
        }
        Checked::Unordered { count, .. } => {
            writeln!(out, "ERROR - there are {count} unordered records")?;
            Ok(ExitCode::from(1))
        }
        Checked::Empty => {
            writeln!(out, "ERROR - there are no records")?;
            Ok(ExitCode::from(1))
        }
    }
}

/// Whether it is there and no ordinary file: a pipe or a device, which is written in place.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|kind| !kind.is_file() && !kind.is_dir())
}
