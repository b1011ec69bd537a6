//! `viaduct bench rivals`: other people's tools beside our own values, on the same two cores in the same run.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use viaduct_bench::rivals::{self, Ground, Heard, Launcher, Want};
use viaduct_bench::{Error, PeerCommand};
use viaduct_results::report::digits;
use viaduct_results::schema::{Line, Measurement};
use viaduct_results::size;

use crate::cli::{BenchArgs, BenchFormat, ToolArgs};
use crate::cmd::bench;
use crate::output::progress::Progress;
use crate::output::sink::Sink;
use crate::output::{results, table};

pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    let settings = bench::settings(args)?;
    if settings.one_core() {
        let hint = "give two with --cpus 0,1";
        return Err(
            Error::usage("most of these tools spin, so they need a core for each process", hint).into()
        );
    }
    let command = bench::peer_command()?;
    let launcher = launcher(&command);
    let folder = Folder::new()?;
    let time = Duration::from_secs_f64(settings.time);
    let ground = Ground { launcher: &launcher, settings: &settings, folder: folder.0.clone(), time };
    let mut sink = Sink::open(args)?;
    let rounds = if args.quick { 1 } else { 6 };
    let (mut lines, mut talk, mut written) = (Vec::new(), Vec::new(), Ok(()));
    let mut progress = Progress::new("rivals");
    let mut heard = 0.0;
    let steps = (rounds * (ground.wants().len() + ground.rivals().count())) as f64;
    let done = rivals::run(&ground, &command, rounds, &mut |event| match event {
        Heard::At(name) => {
            progress.show(name, heard / steps);
            heard += 1.0;
        }
        Heard::Line(line) => {
            let line = Line::Measurement(line);
            if written.is_ok() {
                written = sink.put(&line);
            }
            lines.push(line);
        }
        Heard::Failed(name, why) => talk.push(format!("{name}: {why}")),
    });
    progress.clear();
    written?;
    done?;
    match args.format {
        BenchFormat::Json => {}
        BenchFormat::Csv => results::csv(&lines, true)?,
        BenchFormat::Table | BenchFormat::Osu => print(&lines, &ground, rounds)?,
    }
    let mut err = io::stderr().lock();
    for rival in ground.rivals() {
        let missing = ground.missing(rival);
        if !missing.is_empty() {
            writeln!(err, "missing: {} ({}); {}", rival.name, missing.join(", "), rival.install)?;
        }
    }
    talk.iter().try_for_each(|line| writeln!(err, "failed: {line}"))?;
    let valid = lines.iter().all(|line| !matches!(line, Line::Measurement(line) if !line.valid));
    Ok(if valid { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// How tools are started.
pub(crate) fn launcher(command: &PeerCommand) -> Launcher {
    let path = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    Launcher { program: command.program.clone(), args: vec!["bench-tool".into()], path }
}

/// Body of the hidden verb that stands before a tool.
pub(crate) fn tool(args: &ToolArgs) -> Result<ExitCode> {
    Err(rivals::exec_tool(args.cpu, args.parent, &args.command).into())
}

/// One row for each tool, one column for each question.
fn print(lines: &[Line], ground: &Ground<'_>, rounds: usize) -> io::Result<()> {
    let (measurements, _) = results::split(lines);
    let mut names: Vec<&str> = Vec::new();
    for line in &measurements {
        if !names.contains(&line.layer.as_str()) {
            names.push(&line.layer);
        }
    }
    let about = |name: &str| {
        let known = rivals::ALL.iter().find(|rival| format!("rival:{}", rival.name) == name);
        known.map_or("ours: every byte checked first, and read by the receiver", |rival| rival.about)
    };
    let row = |name: &&str| {
        let cells = ground.wants().iter().map(|want| cell(&measurements, name, *want));
        std::iter::once((*name).to_owned()).chain(cells).chain([about(name).to_owned()]).collect()
    };
    let rows: Vec<Vec<String>> = names.iter().map(row).collect();
    let [a, b] = ground.cpus();
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "# Medians on cores {a} and {b}; latency one way, MB = 10^6 bytes; another size in brackets."
    )?;
    writeln!(
        out,
        "# All took turns, ours too; rounds: {rounds}. Each measures by its own rules: read the last column.\n"
    )?;
    let head = |want: &Want| format!("{} {}", size::show(want.size()), want.unit());
    let heads = ground.wants().iter().map(head);
    let heads: Vec<String> =
        std::iter::once("tool".to_owned()).chain(heads).chain(["what it does".to_owned()]).collect();
    let numbers: Vec<usize> = (1..=ground.wants().len()).collect();
    writeln!(out, "{}", table::draw(&heads, &rows, &numbers))?;
    for line in against(&measurements, ground.wants()) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Ourselves over libfabric against libfabric alone, as ratios.
fn against(lines: &[&Measurement], wants: &[Want]) -> Vec<String> {
    let rival = lines.iter().find(|line| line.layer == "rival:fi_pingpong-tcp");
    // On one host `auto` does not go by libfabric.
    let between = wants.iter().any(|want| matches!(want, Want::PingPong(_)));
    let ours = lines.iter().find(|l| l.layer.starts_with("via:ofi") || between && l.layer == "auto");
    let (Some(rival), Some(ours)) = (rival, ours) else { return Vec::new() };
    let value = |layer: &str, want: Want| {
        let found = lines.iter().find(|l| l.layer == layer && l.case == want.case() && l.size == want.size());
        found.and_then(|line| line.p50)
    };
    let far = wants.iter().filter(|want| !matches!(want, Want::Bandwidth(_)));
    let ratio = |want: &Want| {
        let ratio = value(&ours.layer, *want)? / value(&rival.layer, *want)?;
        let bar = if matches!(want, Want::Latency(_)) { "at most 1.25" } else { "at least 0.9" };
        let size = size::show(want.size());
        Some(format!(
            "{} / fi_pingpong, {size} {}: {} (wanted: {bar})",
            ours.layer,
            want.unit(),
            digits(ratio)
        ))
    };
    far.filter_map(ratio).collect()
}

fn cell(lines: &[&Measurement], name: &str, want: Want) -> String {
    let (case, bytes) = (want.case(), want.size());
    // Tools with limits take the nearest size.
    let near = |line: &&&Measurement| line.size / 2 <= bytes && bytes / 2 <= line.size;
    let found = lines.iter().filter(|line| line.layer == name && line.case == case).find(near);
    match found.and_then(|line| Some((line.size, line.p50?))) {
        Some((size, value)) if size == bytes => digits(value),
        Some((bytes, value)) => format!("{} ({})", digits(value), size::show(bytes)),
        None => "-".into(),
    }
}

/// A folder of our own that is gone afterwards.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Result<Folder> {
        Folder::below(&std::env::temp_dir())
    }

    /// In another place than that for temporary files.
    pub(crate) fn below(place: &std::path::Path) -> Result<Folder> {
        let path = place.join(format!("viaduct-rivals-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Folder {
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
