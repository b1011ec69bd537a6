//! Arguments of every verb, as typed.

pub(crate) mod dsm;
pub(crate) mod gnu;
pub(crate) mod launch;
pub(crate) mod mpi;
pub(crate) mod run;
pub(crate) mod sort;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use viaduct_bench::cases;

/// User-level networking: programs reach each other's memory directly, without the kernel on the data path.
#[derive(Debug, Parser)]
#[command(name = "viaduct", version, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// A guided minute: what this machine can do, with numbers
    Tour(TourArgs),
    /// What is available here, and why something is not
    Info(FormatArgs),
    /// Every knob: value, default, where it comes from
    Config(FormatArgs),
    /// An unmodified program over Viaduct: its TCP connections on this host move to shared memory
    #[command(after_help = run::RUN_HELP)]
    Run(run::RunArgs),
    /// Start a program as the ranks of a job, here or on hosts
    #[command(after_help = launch::LAUNCH_HELP)]
    Launch(Box<launch::LaunchArgs>),
    /// The jobs that run, on all hosts
    Ps(launch::PsArgs),
    /// End a job, on all its hosts
    Kill(launch::KillArgs),
    /// The agent of this host: started by `launch` where it is needed
    Agent(launch::AgentArgs),
    /// Programs of MPI: where Viaduct's libraries, compilers and mpiexec are, and what they have
    Mpi(mpi::MpiArgs),
    /// Sort files from disk to disk; generate and check records of the sort benchmark
    #[command(after_help = sort::SORT_HELP)]
    Sort(Box<sort::SortArgs>),
    /// Run a program on shared memory between nodes
    #[command(after_help = dsm::DSM_HELP)]
    Dsm(dsm::DsmArgs),
    /// Measure a case, alone or against references
    #[command(after_help = BENCH_HELP)]
    Bench(Box<BenchArgs>),
    /// A page with charts from result files, or what changed between two
    #[command(after_help = REPORT_HELP)]
    Report(ReportArgs),
    /// Counters of every Viaduct process on this host
    Stat(StatArgs),
    /// Manual page of the program or of a verb, for `man -l -`
    Man(ManArgs),
    /// Completion script for a shell
    Completions(CompletionsArgs),
    /// The second process of a benchmark; started by `bench` itself
    #[command(hide = true)]
    BenchPeer(PeerArgs),
    /// Becomes another program that ends with us; started by `bench rivals` itself
    #[command(hide = true)]
    BenchTool(ToolArgs),
    /// The second process of the tour; started by `tour` itself
    #[command(hide = true)]
    TourPeer(TourPeerArgs),
    /// A server over TCP, or its client; started by `tour` itself
    #[command(hide = true)]
    TourTcp(TourTcpArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FormatArgs {
    /// How results are written
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct TourArgs {
    /// A third of the time, wider intervals
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seconds for each layer at each size
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) time: f64,
    /// VIA alone: leave out unmodified programs, jobs, MPI, shared memory and the sort
    #[arg(long)]
    pub(crate) short: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    /// How results are written
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Only this process
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    /// Only processes of this job
    #[arg(long)]
    pub(crate) job: Option<String>,
}

/// What people ask, and the command that answers.
const QUESTIONS: &str = "\
Questions, and what answers them:
  How long does a small message take, against sockets?      bench latency --compare unix,tcp
  Is it faster than a Unix socket at 16 KiB?                bench latency --sizes 16K --compare unix,unix-spin
  What is the p99 of single messages of 1 KiB?              bench latency --sizes 1K --compare unix,tcp
  ... with blocking waits?                                  the same with --wait block
  ... if messages come at a given rate?                     bench load --sizes 1K --compare unix,tcp
  ... if the receiver has slept for a while?                bench wakeup --sizes 1K --compare unix,tcp
  What does a blocking wait cost after a pause?             bench blocking --compare unix,tcp
  How many small messages a second?                         bench rate --compare raw,tcp
  How many bytes a second?                                  bench bandwidth --compare copy,tcp
  What do many connections cost?                            bench connections; bench cq
  Both processes on one core?                               bench latency --cpus 0,0 --wait block --compare unix,tcp
  How fast are streams?                                     bench sockets
  How fast is my unmodified program?                        bench apps; bench rpc; bench ftp
  MPI, ours beside other libraries?                         bench mpi
  What do shared pages, locks and barriers cost?            bench dsm
  Against other libraries?                                  bench rivals
Short messages are timed in batches, and now and then one by one: `p99` is that of batch means, `p99 single` that of
messages. With --single every one is timed by itself, as in `load` and `wakeup`.";

#[derive(Clone, Debug, Args)]
#[command(before_help = QUESTIONS)]
pub(crate) struct BenchArgs {
    /// What to measure; `list` says what there is, `all` measures everything, `rivals` other tools,
    /// `launch` how long programs take to start, `ftp`, `rpc` and `apps` unmodified programs over TCP and under `viaduct run`
    #[arg(value_parser = case_names(), required_unless_present = "listen")]
    pub(crate) case: Option<String>,
    /// Wait here for measurements from another host, which says --connect; IP, PORT or IP:PORT [default: port 7471]
    #[arg(long, value_name = "AT", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["case", "connect"])]
    pub(crate) listen: Option<String>,
    /// Measure to this host, where `viaduct bench --listen` runs; both need the token of one job (VIADUCT_TOKEN_FILE)
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) connect: Option<String>,
    /// Provider that the layer `via`, Viaduct itself, goes by; `viaduct info` lists them [default: auto]
    #[arg(long, env = "VIADUCT_PROVIDER")]
    pub(crate) provider: Option<String>,
    /// Measure this layer first instead of `via`: ofi (libfabric itself), raw, copy, unix, pipe, tcp or a variant (`bench list`)
    #[arg(long)]
    pub(crate) layer: Option<String>,
    /// Layers to measure in the same run, interleaved with the first
    #[arg(long, value_delimiter = ',', value_name = "LAYER,..")]
    pub(crate) compare: Vec<String>,
    /// Message sizes: bytes, with K, M, G for powers of 1,024
    #[arg(long, value_name = "SIZE,..")]
    pub(crate) sizes: Option<String>,
    /// How receivers wait
    #[arg(long, value_enum, default_value_t)]
    pub(crate) wait: WaitArg,
    /// How a provider's messages are sent
    #[arg(long, value_enum, default_value_t)]
    pub(crate) send: SendArg,
    /// When the receive of a ping-pong is posted again
    #[arg(long, value_enum, default_value_t)]
    pub(crate) repost: RepostArg,
    /// Os, Or, g and L beside every ping-pong of the case, so that one sees which side pays
    ///
    /// Each curve of a provider gets five or six more, named `CURVE:Os` and so on, at the same places with the same settings.
    /// Os: what a post costs the sender. Or: what taking a message costs the receiver. g: how close one message can
    /// follow another. one-way: from just before the post to just after the taking. L: one-way without Os and Or, the
    /// way itself. Or-interrupt (cases `latency`, `connections` and `logp`): what a loop on the receiver's core loses to
    /// a message that a handler takes there. Cases that measure streams or calls have no such parts and run as without
    /// it. Takes five or six times as long, and a core for each end.
    #[arg(long)]
    pub(crate) logp: bool,
    /// Also measure out of the cache: other buffers each time, through more memory than the cache (latency, bandwidth)
    #[arg(long)]
    pub(crate) cold: bool,
    /// Cores of the two processes; twice the same to share one [default: the first two]
    #[arg(long, value_delimiter = ',', value_name = "A,B", num_args = 1..=2)]
    pub(crate) cpus: Vec<usize>,
    /// Messages under way at once [default: by case]
    #[arg(long)]
    pub(crate) window: Option<usize>,
    /// Messages that the receiver takes, and receives that it posts, at a time (case `rate`) [default: 16]
    #[arg(long)]
    pub(crate) batch: Option<usize>,
    /// Time every message of a ping-pong by itself: all percentiles are then of single messages, not of the means of batches. Each value
    /// contains one reading of the clock, whose cost stands above the table
    #[arg(long)]
    pub(crate) single: bool,
    /// Numbers of open connections (cases `connections` and `cq`)
    #[arg(long, value_delimiter = ',', value_name = "N,..")]
    pub(crate) connections: Vec<usize>,
    /// Seconds for each layer at each size
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) time: f64,
    /// A fifth of the time, three launches at most: a first impression
    #[arg(long)]
    pub(crate) quick: bool,
    /// Cases that `all` leaves out
    #[arg(long, value_delimiter = ',', value_name = "CASE,..")]
    pub(crate) skip: Vec<String>,
    /// Fresh starts of the second process within a point: page placement differs from one to the next
    #[arg(long, default_value_t = 10)]
    pub(crate) launches: usize,
    /// Also start programs on these hosts, one a slot, beside ssh with --compare ssh (case `launch`)
    #[arg(long, value_name = "LIST")]
    pub(crate) hosts: Option<String>,
    /// Also with these fan-outs of the tree of agents
    #[arg(long, value_delimiter = ',', value_name = "N,..", requires = "hosts")]
    pub(crate) fan_out: Vec<usize>,
    /// Start agents on those hosts even as root
    #[arg(long, requires = "hosts")]
    pub(crate) allow_root: bool,
    /// Seed of the random order of layers and sizes
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How results are written
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: BenchFormat,
    /// Also write the JSON lines to this file, each as soon as it is known; `viaduct report` reads it
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Result files of `bench -o`; `-` for standard input
    #[arg(required = true)]
    pub(crate) results: Vec<PathBuf>,
    /// The page to write; `-` for standard output
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub(crate) output: PathBuf,
    /// Compare the second file with the first, and mark what changed for sure
    #[arg(long)]
    pub(crate) compare: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The verb
    pub(crate) verb: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct PeerArgs {
    #[arg(long)]
    pub(crate) cpu: usize,
    #[arg(long)]
    pub(crate) parent: u32,
    #[arg(long)]
    pub(crate) one_core: bool,
    /// The first process is on another host; standard input is the connection with it
    #[arg(long)]
    pub(crate) far: bool,
    /// Wait for a connection at this address instead of taking orders
    #[arg(long, requires = "provider")]
    pub(crate) standby: Option<String>,
    #[arg(long)]
    pub(crate) provider: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ToolArgs {
    #[arg(long)]
    pub(crate) parent: u32,
    #[arg(long)]
    pub(crate) cpu: Option<usize>,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct TourTcpArgs {
    /// The port of the server; without it this is the server
    #[arg(long)]
    pub(crate) connect: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct TourPeerArgs {
    #[arg(long)]
    pub(crate) provider: String,
    #[arg(long)]
    pub(crate) address: String,
}

/// How results are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Table,
    /// One object a line
    Json,
    /// Comma-separated, with a heading
    Csv,
}

/// How benchmark results are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchFormat {
    /// For people
    #[default]
    Table,
    /// One object a line
    Json,
    /// Comma-separated, with a heading
    Csv,
    /// Two columns like those of the OSU benchmarks, a block for each layer
    Osu,
}

impl BenchFormat {
    /// For lists, which have no columns of sizes.
    pub(crate) fn plain(self) -> Format {
        match self {
            BenchFormat::Table | BenchFormat::Osu => Format::Table,
            BenchFormat::Json => Format::Json,
            BenchFormat::Csv => Format::Csv,
        }
    }
}

/// How receivers wait.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum WaitArg {
    /// Look again and again: lowest latency, a whole core
    #[default]
    Poll,
    /// Look for a moment, as long as that has paid (50 us at most), then sleep until something arrives. The cases
    /// `wakeup` and `blocking` show what a sleep costs; VIADUCT_WAIT_SPIN=never sleeps at once
    Block,
}

/// How a provider's messages are sent.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum SendArg {
    /// Small ones by value, without descriptor and completion
    #[default]
    Auto,
    /// All by descriptor, with a completion each
    Descriptor,
}

/// When the receive of a ping-pong is posted again.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum RepostArg {
    /// Once the answer is on its way
    #[default]
    After,
    /// Before the answer is sent, as in the thesis
    Before,
}

fn case_names() -> PossibleValuesParser {
    PossibleValuesParser::new(
        cases::ALL
            .iter()
            .map(|case| case.name)
            .chain(["sockets", "all", "rivals", "launch", "ftp", "rpc", "apps", "list"])
            .chain(crate::cmd::bench_dsm::NAMES)
            .chain(crate::cmd::bench_sort::NAMES)
            .chain(crate::cmd::bench_mpi::names()),
    )
}

const REPORT_HELP: &str = "\
Examples:
  viaduct bench all --quick -o results.jsonl && viaduct report results.jsonl -o report.html
  viaduct report before.jsonl after.jsonl --compare -o changes.html";

const BENCH_HELP: &str = "\
Examples:
  viaduct bench latency --compare raw,unix,tcp
  viaduct bench bandwidth --compare copy,tcp --sizes 64K,1M
  viaduct bench latency --provider ofi:tcp --compare ofi,tcp
  viaduct bench bandwidth --cold
  viaduct bench latency --cpus 0,0 --wait block --compare tcp
  viaduct bench all --quick -o results.jsonl
  viaduct bench rivals
  viaduct bench mpi --compare openmpi,mpich -o results.jsonl
  viaduct bench launch --compare hydra,openmpi,parallel,ssh
  viaduct bench apps -o results.jsonl
  viaduct bench list
Two hosts, with the same token in the file on both:
  there$ VIADUCT_TOKEN_FILE=~/token viaduct bench --listen
  here$  VIADUCT_TOKEN_FILE=~/token viaduct bench latency --connect there
  here$  VIADUCT_TOKEN_FILE=~/token viaduct bench rivals --connect there";

#[cfg(test)]
mod tests;
