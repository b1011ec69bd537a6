//! Arguments of `viaduct dsm`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use viaduct_cashmere::given::Bind;
use viaduct_cashmere::variant::Variant;
use viaduct_dsm_apps::App;
use viaduct_os::fault::EngineKind;

pub(crate) const DSM_HELP: &str = "\
Each node is a server process and its workers, which share frames; pages move between nodes as the program touches them.
A program of your own is built on `viaduct_net::dsm`; the chapter `Shared memory between nodes` of the book has one.

Examples:
  viaduct dsm sor --nodes 2 --procs 2 --check
  viaduct dsm gauss --nodes 4 --procs 1 --size 256 --variant none-mg
  viaduct dsm sor --nodes 2 --procs 2 --variant dms
  viaduct dsm sor --hosts node[1-4] --procs 8
  viaduct dsm lu --nodes 2 --procs 2 --engine mprotect --json
  viaduct dsm ./heat --nodes 2 --procs 2 --memory 1G -- 4096 100";

/// What is run.
#[derive(Clone, Debug)]
pub(crate) enum Program {
    /// A program that comes with Viaduct.
    Ours(App),
    /// A program that is built on the library.
    Path(PathBuf),
}

impl FromStr for Program {
    type Err = String;

    fn from_str(word: &str) -> Result<Program, String> {
        if word.contains('/') {
            return Ok(Program::Path(word.into()));
        }
        let named = word.parse().map(Program::Ours);
        named.map_err(|why| format!("{why}, and the path of a program of yours has a `/`: ./{word}"))
    }
}

/// The access engine; None is `auto`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engine(pub(crate) Option<EngineKind>);

impl FromStr for Engine {
    type Err = String;

    fn from_str(word: &str) -> Result<Engine, String> {
        if word == "auto" {
            return Ok(Engine(None));
        }
        word.parse().map(|kind| Engine(Some(kind))).map_err(|why| format!("{why}, and auto, which chooses"))
    }
}

/// How time and statistics of a run are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DsmFormat {
    /// For people
    #[default]
    Table,
    /// One object
    Json,
}

impl DsmArgs {
    pub(crate) fn is_json(&self) -> bool {
        self.json || self.format == DsmFormat::Json
    }
}

#[derive(Debug, Args)]
pub(crate) struct DsmArgs {
    /// The program: sor, gauss, lu, or the path of one that is built on the library
    #[arg(value_name = "APP")]
    pub(crate) program: Program,
    /// Words for a program of yours
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) words: Vec<OsString>,
    /// Nodes, all on this host
    #[arg(long, default_value_t = 2, value_name = "N", conflicts_with = "hosts")]
    pub(crate) nodes: usize,
    /// A node on each of these hosts: node[1-4],big*2 for two nodes there
    #[arg(long, value_name = "LIST")]
    pub(crate) hosts: Option<String>,
    /// Workers of each node
    #[arg(long, default_value_t = 1, value_name = "M")]
    pub(crate) procs: usize,
    /// 2: the workers of a node share its pages; 1: every worker is a node of its own
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) levels: u8,
    /// The protocol, a row of Table I: dms, ms-mg, none or none-mg (mg: homes migrate)
    #[arg(long, default_value = "none-mg", value_name = "NAME")]
    pub(crate) variant: Variant,
    /// How accesses are seen: mprotect, uffd-sync, or auto: on each host the better one that works there
    #[arg(long, default_value = "auto", value_name = "NAME")]
    pub(crate) engine: Engine,
    /// Bytes of a page, one size for the run: a power of two up to 32768 [default: 4096, or what the program wishes]
    #[arg(long, value_name = "BYTES")]
    pub(crate) page: Option<usize>,
    /// Bytes of shared memory: 64M, 2G [default: what the program wishes]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Cores for workers: auto (one each, if there are enough), core (one each, shared if need be) or none
    #[arg(long, default_value = "auto", value_name = "HOW")]
    pub(crate) bind: Bind,
    /// Begin with the homes of this file, which another run wrote; it is read on the first host
    #[arg(long, value_name = "FILE")]
    pub(crate) homes_in: Option<PathBuf>,
    /// Write the homes of the first touch to this file, on the first host
    #[arg(long, value_name = "FILE")]
    pub(crate) homes_out: Option<PathBuf>,
    /// Rows and columns of the problem [default: that of the program]
    #[arg(long, value_name = "ROWS")]
    pub(crate) size: Option<usize>,
    /// Rounds of the programs that have them [default: 20]
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,
    /// Compare the result with the sequential program, bit by bit
    #[arg(long)]
    pub(crate) check: bool,
    /// How time and statistics are printed; those of a program of yours on standard error
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: DsmFormat,
    /// Short for --format json
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no statistics of a program of yours, and show no progress
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Show on the terminal how far a program of yours is; those that come with Viaduct do it unasked
    #[arg(long, conflicts_with_all = ["quiet", "json"])]
    pub(crate) progress: bool,
    /// Let root start the processes
    #[arg(long)]
    pub(crate) allow_root: bool,
    /// This process is a rank of the run; set by `dsm` itself
    #[arg(long, hide = true)]
    pub(crate) as_rank: bool,
    /// Two threads of this process compute, without shared memory; set by `bench dsm-threads`
    #[arg(long, hide = true)]
    pub(crate) as_threads: bool,
    /// This process shows the progress that a worker writes to a file; set by `dsm` itself
    #[arg(long, hide = true, value_name = "FILE")]
    pub(crate) follow: Option<PathBuf>,
}
