//! `viaduct sort`: arguments and output; the work is in `viaduct-sort`.

mod interrupt;
mod nodes;
mod shown;
mod words;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use viaduct_sort::check::{Check, Checked, KeyRule, Summary};
use viaduct_sort::generate::{Generator, Style};
use viaduct_sort::{Direct, Input, KeyRange, Partial, Progress, Records, Report, Settings, Target};

use crate::cli::sort::{CheckArgs, DirectArg, Field, GenArgs, PartialArg, SortArgs, SortVerb, Switch};

pub(crate) fn run(args: &SortArgs) -> Result<ExitCode> {
    if let Some(option) = args.gnu.given() {
        bail!("{option} of GNU sort is not there; hint: `viaduct sort --help` has what there is");
    }
    match &args.verb {
        Some(SortVerb::Gen(args)) => generate(args),
        Some(SortVerb::Check(args)) => check(args),
        None if args.check || args.check_silently => ordered(args),
        None if args.as_node.is_some() => nodes::run(args),
        None if args.nodes.is_some() || args.hosts.is_some() => nodes::launch(args),
        None => sort(args),
    }
}

fn sort(args: &SortArgs) -> Result<ExitCode> {
    let settings = settings(args)?;
    try_summary(args)?;
    let target = match &args.output {
        Some(path) if is_special(path) => {
            let file = std::fs::OpenOptions::new().write(true).open(path);
            let file = file.with_context(|| format!("opening {}", path.display()))?;
            Target::Stream(path.clone(), Box::new(file))
        }
        Some(path) if path != Path::new("-") => Target::Path(path.clone()),
        _ => Target::Stream("standard output".into(), Box::new(io::stdout())),
    };
    let progress = Arc::new(Progress::default());
    let interrupt = interrupt::watch(&progress)?;
    let report = shown::during(args.progress, "sort", &progress, || {
        viaduct_sort::sort(inputs(args), target, &settings, &progress)
    });
    match report {
        Err(error) if error.is_stopped() && interrupt.has_come() => Ok(interrupt.code()),
        report => {
            summarise(args, &report?)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Whether `--summary` names what can be written: asked before hours of sorting. What was not there is not there afterwards.
fn try_summary(args: &SortArgs) -> Result<()> {
    let Some(path) = args.summary.as_ref().filter(|path| *path != Path::new("-") && !is_special(path)) else {
        return Ok(());
    };
    let is_new = !path.exists();
    let opened = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
    opened.with_context(|| format!("writing {}", path.display()))?;
    if is_new {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Writes what was done where `--summary` says.
fn summarise(args: &SortArgs, report: &Report) -> Result<()> {
    let Some(path) = &args.summary else { return Ok(()) };
    let text = serde_json::to_string_pretty(report)? + "\n";
    if path == Path::new("-") {
        io::stderr().write_all(text.as_bytes())?;
    } else {
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// `-c`: whether the input is in order.
fn ordered(args: &SortArgs) -> Result<ExitCode> {
    let settings = settings(args)?;
    match viaduct_sort::find_disorder(inputs(args), &settings)? {
        None => Ok(ExitCode::SUCCESS),
        Some(_) if args.check_silently => Ok(ExitCode::from(1)),
        Some(found) => {
            let mut out = io::stderr().lock();
            let name = found.path.display();
            write!(out, "viaduct sort: {name}:{}: disorder: ", found.number)?;
            match settings.records {
                Records::Text { mark, .. } => {
                    out.write_all(found.record.strip_suffix(&[mark]).unwrap_or(&found.record))?;
                    writeln!(out)?;
                }
                Records::Fixed { .. } => {
                    writeln!(out, "{}", String::from_utf8_lossy(&found.record).trim_end())?;
                }
            }
            Ok(ExitCode::from(1))
        }
    }
}

fn inputs(args: &SortArgs) -> Vec<Input> {
    let stdin = || Input::Stream("standard input".into(), Box::new(io::stdin()));
    if args.files.is_empty() {
        return vec![stdin()];
    }
    let input = |path: &PathBuf| if path == Path::new("-") { stdin() } else { Input::Path(path.clone()) };
    args.files.iter().map(input).collect()
}

fn settings(args: &SortArgs) -> Result<Settings> {
    let text = args.lines
        || !args.key.is_empty()
        || args.field_separator.is_some()
        || args.numeric_sort
        || args.ignore_leading_blanks
        || args.unique
        || args.zero_terminated
        || args.merge;
    let records = if text {
        if args.record_size.is_some() || !args.at.is_empty() {
            bail!("--record-size and --at are for records of one size, -k -t -n -b -u -z -m for lines");
        }
        words::lines(args)?
    } else {
        let size = args.record_size.unwrap_or(viaduct_sort::RECORD);
        let first = [Field { offset: 0, len: viaduct_sort::KEY.min(size), descending: false }];
        let fields = if args.at.is_empty() { &first[..] } else { &args.at };
        let field = |field: &Field| KeyRange {
            offset: field.offset,
            len: field.len,
            descending: field.descending != args.reverse,
        };
        Records::Fixed { size, keys: fields.iter().map(field).collect() }
    };
    let direct = match args.direct {
        DirectArg::Auto => Direct::Auto,
        DirectArg::On => Direct::On,
        DirectArg::Off => Direct::Off,
    };
    let partial = match args.partial {
        PartialArg::Refuse => Partial::Refuse,
        PartialArg::Drop => Partial::Drop,
        PartialArg::Keep => Partial::Keep,
    };
    Ok(Settings {
        records,
        stable: args.stable,
        unique: args.unique,
        merge: args.merge,
        memory: args.memory.or(args.buffer_size),
        threads: args.parallel.unwrap_or(0),
        tmp: args.tmp.clone(),
        direct,
        checksum: args.checksum == Switch::On,
        partial,
        durable: args.fsync,
        refuse_text: args.record_size.is_none() && args.at.is_empty(),
        ..Settings::default()
    })
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
        Some(path) => {
            interrupt::watch_output()?;
            generator.to_file(first, count, path, threads)?
        }
        None => generator.checksum(first, count, threads)?,
    };
    if args.checksum || args.output.is_none() {
        writeln!(io::stderr(), "{sum:x}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check(args: &CheckArgs) -> Result<ExitCode> {
    let (offset, len) = args.at;
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
        check.summaries(list)
    } else if args.files == [PathBuf::from("-")] {
        check.streams(vec![("standard input".into(), Box::new(io::stdin()))])
    } else {
        check.files(&args.files)
    };
    let summary = match summary {
        // An answer, as in valsort: the check says no.
        Err(error) if error.is_cut_record() => {
            writeln!(io::stderr(), "ERROR - {error}")?;
            return Ok(ExitCode::from(1));
        }
        summary => summary?,
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

/// Whether standard input is a pipe.
pub(crate) fn reads_a_pipe() -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata("/dev/stdin").is_ok_and(|kind| kind.file_type().is_fifo())
}

/// Whether it is there and no ordinary file: a pipe or a device, which is written in place.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|kind| !kind.is_file() && !kind.is_dir())
}
