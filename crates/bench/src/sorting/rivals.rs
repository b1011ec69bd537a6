//! What a user would take instead of `viaduct sort`, where it is installed: on the printable records, since none but numpy reads
//! records without line ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::contest::{Contender, OUTPUT, Put};

/// The name of the floor: a copy through the page cache.
pub(super) const FLOOR: &str = "cp";

/// Bytes of the shortest line of printable records: some tools drop a byte of their ends.
const PRINTABLE: Put = Put::Lines(98);

/// Where Debian's package rust-coreutils has its programs, and what they are called elsewhere.
const UUTILS: [&str; 4] = ["uu-sort", "uu_sort", "rust-sort", "/usr/lib/cargo/bin/coreutils/sort"];

/// The line of the script where a bound of memory goes.
const BOUND: &str = "#bound\n";

const DUCKDB: &str = "import duckdb,sys\n\
    c=duckdb.connect()\n\
    #bound\n\
    c.execute(\"COPY (SELECT column0 FROM read_csv('lines', header=false, delim='\\x01', quote='', escape='', \
    columns={'column0':'VARCHAR'}) ORDER BY column0) TO 'theirs' (HEADER false, QUOTE '', DELIMITER '\\x01', ESCAPE '')\")";

const POLARS: &str = "import polars as p\n\
    f=p.scan_csv('lines', has_header=False, separator='\\x01', quote_char=None, infer_schema=False)\n\
    f.sort(p.all()).sink_csv('theirs', include_header=False, quote_style='never', separator='\\x01')";

const NUMPY: &str = "import numpy as n\n\
    r=n.fromfile('in', dtype='S10,V90')\n\
    k=n.ascontiguousarray(n.ndarray(len(r), '>u8', r, 0, (100,)))\n\
    r[n.argsort(k, kind='stable')].tofile('theirs')";

/// All that are known, installed or not: on the records `in` and `lines`.
pub(super) fn all() -> Vec<Contender> {
    let mut all = of_lines(PRINTABLE, &[]);
    all.push(Contender::new("DuckDB", python("duckdb", DUCKDB), PRINTABLE));
    all.push(Contender::new("Polars", python("polars", POLARS), PRINTABLE));
    all.push(Contender::new("numpy", python("numpy", NUMPY), Put::Records));
    let copy = ["cp", "in", OUTPUT].map(str::to_owned).to_vec();
    all.push(Contender::new(FLOOR, Ok(copy), Put::Copy));
    all
}

/// Those that can be told how much memory to use: so many MB for the sorts, and a little more for the database.
pub(super) fn with_memory(sort: u32, database: u32) -> Vec<Contender> {
    let limit = format!(
        "c.execute(\"SET memory_limit='{database}MB'\")\nc.execute(\"SET temp_directory='duckdb.tmp'\")\n"
    );
    let mut all = of_lines(PRINTABLE, &["-T", ".", "-S", &format!("{sort}M")]);
    all.push(Contender::new("DuckDB", python("duckdb", &DUCKDB.replace(BOUND, &limit)), PRINTABLE));
    all
}

/// Programs with the words of GNU sort, on `lines`.
pub(super) fn of_lines(put: Put, words: &[&str]) -> Vec<Contender> {
    let threads = format!("--parallel={}", viaduct_os::cpu::count());
    let call = |program: Option<PathBuf>| {
        let program = program.ok_or_else(|| "not installed".to_owned())?.to_string_lossy().into_owned();
        let words = words.iter().copied().chain([&*threads, "lines", "-o", OUTPUT]).map(str::to_owned);
        Ok(std::iter::once(program).chain(words).collect())
    };
    let gnu = ["gsort", "sort"].iter().find_map(|name| find(name));
    vec![Contender::new("GNU sort", call(gnu), put), Contender::new("uutils sort", call(uutils()), put)]
}

/// The sort of uutils: the one that was built beside this program, or the system's.
fn uutils() -> Option<PathBuf> {
    let built = beside("xtask/cargo/bin/sort");
    built.into_iter().chain(UUTILS.iter().filter_map(|name| find(name))).next()
}

fn find(name: &str) -> Option<PathBuf> {
    if name.starts_with('/') {
        return Some(PathBuf::from(name)).filter(|file| file.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// A file below the folder that this program was built into.
fn beside(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    own.ancestors().map(|folder: &Path| folder.join(name)).find(|file| file.is_file())
}

/// How a script that needs this module is called: by the Python of this build's environment, or by the system's.
fn python(module: &str, script: &str) -> Result<Vec<String>, String> {
    let import = format!("import {module}");
    let has = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", &import]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = beside("xtask/venv/bin/python").into_iter().chain(find("python3")).find(has);
    let python = found.ok_or_else(|| format!("no python3 with {module}"))?;
    Ok(vec![python.to_string_lossy().into_owned(), "-c".into(), script.into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_of_memory_goes_to_one_place() {
        assert_eq!(DUCKDB.matches(BOUND).count(), 1);
    }
}
