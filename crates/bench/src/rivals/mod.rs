//! Rivals: other people's tools on the same two cores, in the same run, beside our own values.
//!
//! ```text
//!   turns.rs: rounds over ourselves (the cases latency and bandwidth)
//!             and the tools that are installed -> child.rs: start pinned, wait, take down -> parser -> Reading
//! ```
//!
//! Each tool is an entry of [`ALL`] with a parser for what it prints, and no two print the same thing: what a value
//! leaves out compared with ours stands in `about`. Tools that are missing are named with the command that installs
//! them.

mod child;
mod mpi;
mod tools;
mod turns;

use std::path::PathBuf;
use std::time::Duration;

use crate::error::Result;
use crate::schema::Measurement;

pub use child::{Launcher, exec_tool};
pub use turns::run;

/// What is asked of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// One way, for messages of so many bytes.
    Latency(usize),
    /// Bytes a second with messages of so many bytes.
    Bandwidth(usize),
}

/// What every tool is asked for.
pub const WANTS: [Want; 3] = [Want::Latency(8), Want::Bandwidth(64 << 10), Want::Bandwidth(1 << 20)];

/// What a tool said, in microseconds or MB/s of 10^6 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reading {
    /// The size that it took; some have limits.
    pub(crate) size: usize,
    pub(crate) value: f64,
}

/// A tool of other people.
#[derive(Debug)]
pub struct Rival {
    /// Its name; in results `rival:` stands before it.
    pub name: &'static str,
    /// The programs that it needs.
    pub programs: &'static [&'static str],
    /// How to get them.
    pub install: &'static str,
    /// What it measures, and what not.
    pub about: &'static str,
    measure: fn(&Ground<'_>, Want) -> Result<Option<Reading>>,
}

/// Every tool we know.
pub const ALL: &[&Rival] = &[
    &tools::FI_SHM,
    &tools::FI_TCP,
    &tools::UCX,
    &tools::SOCKPERF,
    &mpi::OPEN_MPI,
    &mpi::MPICH,
    &tools::ICEORYX2,
];

/// What tools are run on.
#[derive(Debug)]
pub struct Ground<'a> {
    /// Starts them.
    pub launcher: &'a Launcher,
    /// The two cores.
    pub cpus: [usize; 2],
    /// Where programs are looked for.
    pub path: &'a [PathBuf],
    /// A folder for what is compiled on the way.
    pub folder: PathBuf,
    /// Time for one value.
    pub time: Duration,
}

impl Ground<'_> {
    /// Where `program` is.
    pub(crate) fn find(&self, program: &str) -> Option<PathBuf> {
        self.path.iter().map(|folder| folder.join(program)).find(|file| file.is_file())
    }

    /// The programs of `rival` that are missing.
    pub fn missing(&self, rival: &Rival) -> Vec<&'static str> {
        rival.programs.iter().copied().filter(|program| self.find(program).is_none()).collect()
    }
}

/// What the caller hears.
#[derive(Debug)]
pub enum Heard {
    /// Work goes on.
    At(&'static str),
    /// A value; ours have their layer's own name.
    Line(Box<Measurement>),
    /// A tool is there but did not do it.
    Failed(&'static str, String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_named() {
        let launcher = Launcher { program: "viaduct".into(), args: Vec::new() };
        let ground = Ground {
            launcher: &launcher,
            cpus: [0, 1],
            path: &["/no/such/folder".into()],
            folder: "/no/such/folder".into(),
            time: Duration::from_secs(1),
        };
        for rival in ALL {
            assert_eq!(ground.missing(rival), rival.programs, "{}", rival.name);
            assert!(!rival.install.is_empty() && !rival.about.is_empty());
        }
    }
}
