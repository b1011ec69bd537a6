//! Benchmarks of shared memory between nodes (the Cashmere paper, section 3.1 and Table II): `viaduct dsm` as a whole, its nodes
//! being processes of this host.
//!
//! ```text
//!   operations   what each basic operation costs, by remote writes and by messages, beside a wake-up across cores
//!   barriers     an empty barrier of two nodes against Open MPI's
//!   crowd        the work of two workers by eight on two cores
//!   threads      one node of two workers against two threads of one process
//! ```
//!
//! Programs print `point NAME VALUE` lines, and check what they moved before. All take turns; ratios are taken round by round.

mod crowd;
mod operations;
mod rival;
mod tables;
mod threads;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use viaduct_results::schema::Line;
use viaduct_results::table::{Better, Table};

use crate::rivals::Launcher;

pub use crowd::crowd;
pub use operations::operations;
pub use rival::barriers;
pub use threads::{by_threads, threads};

/// Takes a line of the result.
pub type Emit<'a> = &'a mut dyn FnMut(Line) -> io::Result<()>;

/// Hears what is being done, and the share that is done.
pub type Progress<'a> = &'a mut dyn FnMut(&str, f64);

/// A run of nodes may take this long.
const LIMIT: Duration = Duration::from_secs(120);

/// What the benchmarks need.
#[derive(Debug)]
pub struct Bench<'a> {
    /// Starts programs.
    pub launcher: &'a Launcher,
    /// A folder for what is compiled, and for the processes to meet in.
    pub folder: PathBuf,
    /// The two cores: nothing that is measured runs on others, on either side.
    pub cpus: [usize; 2],
    /// Small problems, to see that it works.
    pub quick: bool,
    /// How often all take their turn.
    pub rounds: usize,
}

/// What a program said, by name.
type Points = BTreeMap<String, f64>;

/// What a run of a program of ours took and found.
struct Ran {
    seconds: f64,
    sum: f64,
}

impl Bench<'_> {
    /// Runs `viaduct dsm` to its end, and gives what it printed.
    fn dsm(&self, words: &[&str]) -> io::Result<String> {
        let run = self.folder.join("run");
        viaduct_os::runtime_dir::runtime_dir(Some(&run)).map_err(io::Error::other)?;
        let args = [&["dsm"], words, &["--allow-root"]].concat();
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        let variables: [(&str, Option<OsString>); 1] = [("VIADUCT_RUNTIME_DIR", Some(run.into_os_string()))];
        self.launcher
            .whole_on(&self.cpus, &self.launcher.program, &args, &variables, LIMIT)
            .map_err(|error| io::Error::other(format!("viaduct dsm {}: {error}", words.join(" "))))
    }

    /// Runs a program of ours.
    fn app(&self, words: &[&str]) -> io::Result<Ran> {
        let said = self.dsm(&[words, &["--json"]].concat())?;
        let line: Value = serde_json::from_str(said.trim()).map_err(io::Error::other)?;
        let number =
            |name: &str| line[name].as_f64().ok_or_else(|| io::Error::other(format!("no {name} in {said}")));
        Ok(Ran { seconds: number("work_seconds")?, sum: number("sum")? })
    }

    fn table(&self, name: &str) -> Table {
        let cpus = self.cpus.map(|cpu| cpu.to_string()).join(" ");
        Table::new(name, BTreeMap::from([("rounds".into(), self.rounds.to_string()), ("cpus".into(), cpus)]))
    }
}

fn points(said: &str) -> Points {
    let point = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["point", name, value] => Some((name.to_owned(), value.parse().ok()?)),
        _ => None,
    };
    said.lines().filter_map(point).collect()
}

/// A ratio that is taken round by round, beside what is wanted of it.
fn bar(table: &Table, row: &str, ratios: &[f64], most: f64, emit: Emit<'_>) -> io::Result<()> {
    emit(table.cell(row, "ratio", "", Better::Less).of(ratios))?;
    emit(table.cell(row, "at most", "", Better::Neither).one(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read_and_other_lines_left() {
        let said = points("point lock 1.5\nsor: 2 nodes\npoint odd x\npoint barrier 0.25\n");
        assert_eq!(said, Points::from([("barrier".into(), 0.25), ("lock".into(), 1.5)]));
    }
}
