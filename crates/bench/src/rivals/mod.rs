//! Rivals: other people's tools on the same two cores, in the same run, beside our own values.
//!
//! ```text
//!   turns.rs: rounds over ourselves (the cases latency and bandwidth)
//!             and the tools that are installed -> child.rs: start pinned, wait, take down -> parser -> Reading
//! ```
//!
//! Each tool is an entry of [`ALL`] with a parser for what it prints, and no two print the same thing: what a value
//! leaves out compared with ours stands in `about`. Tools that are missing are named with the command that installs
//! them. Between two hosts the second process starts the server of a tool; only tools are asked that have one.

pub(crate) mod child;
mod mpi;
mod tools;
mod turns;

use std::path::PathBuf;
use std::time::Duration;

use crate::error::Result;
use crate::orders::Served;
use crate::plan::Settings;
use crate::schema::Measurement;

pub(crate) use child::Running;
pub use child::{Launcher, exec_tool};
pub use turns::run;

/// What is asked of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// One way, for messages of so many bytes.
    Latency(usize),
    /// Bytes a second with messages of so many bytes.
    Bandwidth(usize),
    /// Time of a message that waits for the one before to come back.
    PingPong(usize),
}

impl Want {
    /// Bytes of a message.
    pub fn size(self) -> usize {
        let (Want::Latency(size) | Want::Bandwidth(size) | Want::PingPong(size)) = self;
        size
    }

    /// Name of the comparison in results.
    pub fn case(self) -> &'static str {
        match self {
            Want::Latency(_) => "rivals-latency",
            Want::Bandwidth(_) => "rivals-bandwidth",
            Want::PingPong(_) => "rivals-pingpong",
        }
    }

    /// What it is counted in.
    pub fn unit(self) -> &'static str {
        if matches!(self, Want::Latency(_)) { "us" } else { "MB/s" }
    }
}

/// What every tool is asked for on one host.
pub const WANTS: [Want; 3] = [Want::Latency(8), Want::Bandwidth(64 << 10), Want::Bandwidth(1 << 20)];

/// What is asked for between two hosts: what libfabric's own tool can do, in its own pattern.
pub const FAR: [Want; 4] =
    [Want::Latency(8), Want::PingPong(64 << 10), Want::PingPong(256 << 10), Want::PingPong(1 << 20)];

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
    /// Arguments of its server where the two ends are on two hosts; `None` if it stays on one.
    server: Option<fn(&Served) -> Vec<String>>,
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

/// Starts the server of a tool for another host.
pub(crate) fn serve(launcher: &Launcher, cpu: usize, served: &Served) -> Result<Running> {
    let rival = ALL.iter().find(|rival| rival.name == served.rival);
    let (Some(rival), Some(args)) = (rival, rival.and_then(|rival| rival.server)) else {
        return Err(child::failed(&served.rival, "is no tool that has a server"));
    };
    let program = rival.programs[0];
    let tool = launcher.find(program).ok_or_else(|| child::failed(program, "is not installed there"))?;
    launcher.start(Some(cpu), &tool, &args(served))
}

/// What tools are run on.
#[derive(Debug)]
pub struct Ground<'a> {
    /// Starts them.
    pub launcher: &'a Launcher,
    /// What the user asked for: the two cores, the other host.
    pub settings: &'a Settings,
    /// A folder for what is compiled on the way.
    pub folder: PathBuf,
    /// Time for one value.
    pub time: Duration,
}

impl Ground<'_> {
    /// Where `program` is.
    pub(crate) fn find(&self, program: &str) -> Option<PathBuf> {
        self.launcher.find(program)
    }

    /// The two cores.
    pub fn cpus(&self) -> [usize; 2] {
        self.settings.cpus
    }

    /// What is asked for here.
    pub fn wants(&self) -> &'static [Want] {
        if self.settings.connect.is_some() { &FAR } else { &WANTS }
    }

    /// The tools that can be used here.
    pub fn rivals(&self) -> impl Iterator<Item = &'static Rival> + use<> {
        let far = self.settings.connect.is_some();
        ALL.iter().copied().filter(move |rival| !far || rival.server.is_some())
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
        let path = vec!["/no/such/folder".into()];
        let launcher = Launcher { program: "viaduct".into(), args: Vec::new(), path };
        let settings = Settings::new(vec![crate::Layer::Via("shm")], [0, 1]);
        let ground = Ground {
            launcher: &launcher,
            settings: &settings,
            folder: "/no/such/folder".into(),
            time: Duration::from_secs(1),
        };
        for rival in ALL {
            assert_eq!(ground.missing(rival), rival.programs, "{}", rival.name);
            assert!(!rival.install.is_empty() && !rival.about.is_empty());
        }
    }

    #[test]
    fn only_a_known_tool_is_served_to_another_host() {
        let launcher = Launcher { program: "viaduct".into(), args: Vec::new(), path: Vec::new() };
        for rival in ["sh", "openmpi", "fi_pingpong-tcp"] {
            let served = Served { rival: rival.into(), size: 8, count: 1, port: 1 };
            assert!(
                serve(&launcher, 0, &served).is_err(),
                "{rival}: unknown, without a server, not installed"
            );
        }
    }
}
