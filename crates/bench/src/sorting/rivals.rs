//! What a user would take instead of `viaduct sort`, where it is installed: on the printable records, since none but numpy reads
//! records without line ends. Outputs are validated by count and order.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use viaduct_results::stats::median;
use viaduct_results::table::{Better, Table};

use super::{Bench, Emit, lines_in_order};

/// A tool that sorts `lines` into `theirs`.
pub(super) struct Rival {
    name: &'static str,
    /// How it is called; why it is not, if it is not installed.
    command: Result<Vec<String>, String>,
    /// Its output is of records without line ends.
    binary: bool,
    seconds: Vec<f64>,
    failed: Option<String>,
}

const DUCKDB: &str = "import duckdb,sys\n\
    c=duckdb.connect()\n\
    c.execute(\"COPY (SELECT column0 FROM read_csv('lines', header=false, delim='\\x01', quote='', escape='', \
    columns={'column0':'VARCHAR'}) ORDER BY column0) TO 'theirs' (HEADER false, QUOTE '', DELIMITER '\\x01', ESCAPE '')\")";

const POLARS: &str = "import polars as p\n\
    f=p.scan_csv('lines', has_header=False, separator='\\x01', quote_char=None, infer_schema=False)\n\
    f.sort('column_1').sink_csv('theirs', include_header=False, quote_style='never', separator='\\x01')";

const NUMPY: &str = "import numpy as n\n\
    r=n.fromfile('in', dtype='S10,V90')\n\
    k=n.ascontiguousarray(n.ndarray(len(r), '>u8', r, 0, (100,)))\n\
    r[n.argsort(k, kind='stable')].tofile('theirs')";

/// All that are known, installed or not.
pub(super) fn installed() -> Vec<Rival> {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let program = |names: &[&[&str]]| {
        let found = names.iter().find(|name| find(name[0]).is_some());
        found.map(|name| words(name)).ok_or_else(|| "not installed".to_owned())
    };
    let threads = format!("--parallel={}", viaduct_os::cpu::count());
    let lines = |command: Result<Vec<String>, String>| {
        command.map(|words| {
            [words, vec![threads.clone(), "lines".into(), "-o".into(), "theirs".into()]].concat()
        })
    };
    let python = |module: &str, script: &str| {
        let python = python(module).ok_or_else(|| format!("no python3 with {module}"))?;
        Ok(vec![python.to_string_lossy().into_owned(), "-c".into(), script.into()])
    };
    let rival = |name, command, binary| Rival { name, command, binary, seconds: Vec::new(), failed: None };
    vec![
        rival("GNU sort", lines(program(&[&["gsort"], &["sort"]])), false),
        rival(
            "uutils sort",
            lines(program(&[&["uu-sort"], &["rust-sort"], &["/usr/lib/cargo/bin/sort"]])),
            false,
        ),
        rival("DuckDB", python("duckdb", DUCKDB), false),
        rival("Polars", python("polars", POLARS), false),
        rival("numpy", python("numpy", NUMPY), true),
        rival("cp", Ok(words(&["cp", "in", "theirs"])), true),
    ]
}

impl Rival {
    /// Sorts once; whether it `counts` or warms.
    pub(super) fn run(&mut self, bench: &Bench, records: u64, counts: bool) {
        let Ok(words) = &self.command else { return };
        if self.failed.is_some() {
            return;
        }
        let output = bench.path("theirs");
        let _ = std::fs::remove_file(&output);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(&bench.folder).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let begun = Instant::now();
        let good = command.status().is_ok_and(|status| status.success());
        let seconds = begun.elapsed().as_secs_f64();
        let count = match (self.name, self.binary) {
            // It only copies: the floor, not a rival.
            ("cp", _) => std::fs::metadata(&output).ok().map(|kind| kind.len() / 100),
            (_, true) => bench
                .is_sorted("theirs")
                .then(|| std::fs::metadata(&output).map_or(0, |kind| kind.len() / 100)),
            (_, false) => lines_in_order(&output),
        };
        if !good || count != Some(records) {
            self.failed =
                Some(if good { "its output is not sorted, or not all there" } else { "it failed" }.into());
        } else if counts {
            self.seconds.push(seconds);
        }
    }
}

/// Times, and how many times ours.
pub(super) fn lines(rivals: &[Rival], ours: &[f64], table: &Table, emit: Emit<'_>) -> io::Result<()> {
    emit(table.cell("viaduct sort", "time", "s", Better::Less).of(ours))?;
    for rival in rivals {
        let cell = table.cell(rival.name, "time", "s", Better::Less);
        match (&rival.command, &rival.failed) {
            (Err(why), _) => emit(cell.missing(why.clone()))?,
            (_, Some(why)) => emit(cell.wrong(why.clone()))?,
            _ => {
                emit(cell.of(&rival.seconds))?;
                if let (Some(theirs), Some(ours)) = (median(&rival.seconds), median(ours)) {
                    emit(table.cell(rival.name, "times ours", "", Better::More).one(theirs / ours))?;
                }
            }
        }
    }
    Ok(())
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// A Python that has the module: the one of this build's environment, or the system's.
fn python(module: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let built = own.ancestors().map(|folder| folder.join("xtask/venv/bin/python"));
    let script = format!("import {module}");
    let has = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    built.filter(|python| python.is_file()).chain(find("python3")).find(has)
}
