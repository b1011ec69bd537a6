//! Arguments of the verbs that launch programs and look after them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, Command, CommandFactory, Parser, Subcommand, ValueEnum};
use viaduct_catapult::words::Options;

use super::Format;

#[derive(Debug, Args)]
pub(crate) struct LaunchArgs {
    /// Ranks [default: as many as the hosts have slots; 1 on this host]
    #[arg(short = 'n', value_name = "N", value_parser = count, allow_hyphen_values = true)]
    pub(crate) ranks: Option<usize>,
    /// Hosts: node[1-4],big*2,@group,file:PATH; `!` takes away, `&` keeps [default: the batch system's, else this host]
    #[arg(long, value_name = "LIST")]
    pub(crate) hosts: Option<String>,
    /// A file of hosts, one a line: `host`, `host:4`, `host slots=4`
    #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
    pub(crate) hostfile: Option<PathBuf>,
    /// Ranks on each host, whatever its slots
    #[arg(long, value_name = "N")]
    pub(crate) ppn: Option<usize>,
    /// Order in which ranks go to hosts (slot, node, ppr:N:node) and get their CPUs (core, hwthread, socket, numa) [default: slot]
    #[arg(long, value_name = "WHAT")]
    pub(crate) map_by: Option<String>,
    /// CPUs of each rank: core, hwthread, socket, numa, none, core:2 for two cores, user:0,2-3,4+6 [default: none]
    #[arg(long, value_name = "WHAT")]
    pub(crate) bind_to: Option<String>,
    /// Say which CPUs each rank is bound to
    #[arg(long)]
    pub(crate) report_bindings: bool,
    /// Folder to run in [default: this one here, the home folder elsewhere if this one is not there]
    #[arg(long, value_name = "DIR")]
    pub(crate) wdir: Option<String>,
    /// A variable for this program
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// A variable for all programs
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) genv: Vec<String>,
    /// Variables of ours that go along to other hosts, or a variable for all programs
    #[arg(short = 'x', value_name = "NAME,..|NAME=VALUE")]
    pub(crate) forward: Vec<String>,
    /// All of our variables go along to other hosts
    #[arg(long)]
    pub(crate) genvall: bool,
    /// Rank and host before each line
    #[arg(short, long)]
    pub(crate) label: bool,
    /// Equal output once, with the ranks that wrote it, at the end
    #[arg(long, conflicts_with_all = ["label", "raw", "json"])]
    pub(crate) fold: bool,
    /// Bytes as they come, whatever they are
    #[arg(long, conflicts_with_all = ["label", "json"])]
    pub(crate) raw: bool,
    /// An object for each line and for each rank's end
    #[arg(long, conflicts_with = "label")]
    pub(crate) json: bool,
    /// Standard output of each rank goes to a file here: %r rank, %h host, %j job
    #[arg(long, value_name = "PATTERN")]
    pub(crate) output_file: Option<String>,
    /// Standard error of each rank goes to a file here
    #[arg(long, value_name = "PATTERN")]
    pub(crate) error_file: Option<String>,
    /// What standard input goes to: a rank, `all` or `none`
    #[arg(long, value_name = "RANK", default_value = "0")]
    pub(crate) stdin: String,
    /// Longest time for all, in seconds; then everything ends and the exit status is 124
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<f64>,
    /// Longest time to reach a host, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0)]
    pub(crate) connect_timeout: f64,
    /// Silence after which a host or the launcher is taken for lost, in seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) silence: Option<f64>,
    /// How often a host that cannot be reached is tried again
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) retries: u32,
    /// Seconds between asking ranks to end and killing them
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub(crate) grace: f64,
    /// End everything as soon as one rank ends badly
    #[arg(short = 'K', long)]
    pub(crate) kill_on_bad_exit: bool,
    /// When to show what became of each rank, on standard error
    #[arg(long, value_enum, value_name = "WHEN", default_value_t)]
    pub(crate) table: When,
    /// Say nothing but what ranks say
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Start nothing; print the command and the variables of each rank
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Start this rank in gdb, on whatever host it is; standard input goes to gdb
    #[arg(long, value_name = "RANK")]
    pub(crate) debug: Option<u32>,
    /// Take the program along to the hosts, by content: nothing has to be installed there
    #[arg(long)]
    pub(crate) stage: bool,
    /// Copy a file to every host before the start
    #[arg(long, value_name = "HERE[:THERE]")]
    pub(crate) put: Vec<String>,
    /// Copy a file from every host after the end; with several hosts the host's name is added
    #[arg(long, value_name = "THERE[:HERE]")]
    pub(crate) get: Vec<String>,
    /// Hosts that one host starts by itself; the others are started by those
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) fan_out: usize,
    /// Start agents on other hosts even as root
    #[arg(long)]
    pub(crate) allow_root: bool,
    /// Start programs of Open MPI although each of their ranks is a job of its own here
    #[arg(long)]
    pub(crate) allow_singletons: bool,
    /// The program and its arguments; `:` begins another program, with -n, --hosts, --wdir and --env of its own
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
    /// `:` is a word of the program like any other. For verbs that are jobs; it has no word of its own.
    #[arg(skip)]
    pub(crate) one_program: bool,
}

fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&n| n > 0).ok_or_else(|| "write a number of ranks, 1 or more".to_owned())
}

/// A program after `:`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, name = "launch ... :")]
pub(crate) struct SectionArgs {
    #[arg(short = 'n', value_name = "N", value_parser = count, allow_hyphen_values = true)]
    pub(crate) ranks: Option<usize>,
    /// Hosts of this program; those of the job if not said
    #[arg(long)]
    pub(crate) hosts: Option<String>,
    #[arg(long, conflicts_with = "hosts")]
    pub(crate) hostfile: Option<PathBuf>,
    #[arg(long)]
    pub(crate) wdir: Option<String>,
    #[arg(long)]
    pub(crate) env: Vec<String>,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// How results are written
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Only this host
    #[arg(long)]
    pub(crate) local: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// The job, as `viaduct ps` shows it; the beginning of its name is enough
    #[arg(required_unless_present = "all")]
    pub(crate) job: Option<String>,
    /// Every job of this user
    #[arg(long, conflicts_with = "job")]
    pub(crate) all: bool,
    /// The signal; with TERM, what does not end is killed
    #[arg(short, long, default_value = "TERM")]
    pub(crate) signal: String,
    /// Only this host
    #[arg(long)]
    pub(crate) local: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    pub(crate) what: AgentVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentVerb {
    /// Be the agent of this user and host
    Serve {
        /// Seconds without work after which it leaves
        #[arg(long, value_name = "SECONDS", default_value_t = 1800.0)]
        idle: f64,
        /// Do it even as root
        #[arg(long)]
        allow_root: bool,
        /// Leave the session of the process that starts it
        #[arg(long)]
        detach: bool,
    },
    /// Start it if it is not there, let in the one whose key is on standard input, and say where it is
    Join {
        /// Do it even as root
        #[arg(long)]
        allow_root: bool,
    },
    /// Ask the agent of this host to leave
    Leave,
    /// Be the agent that programs under `viaduct run` need; it has no network. Started by `run` itself
    #[command(hide = true)]
    Claims(super::run::ClaimsArgs),
    /// The agents that are known here
    List(super::FormatArgs),
    /// Meet the agent of another user of this host, and name its process
    Meet {
        /// The user, by name or number
        user: String,
    },
}

/// When something is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// If a rank ended badly, and there are several
    #[default]
    Auto,
    /// In any case
    Always,
    /// Never
    Never,
}

/// The options of `launch`, to tell them from unknown ones before the arguments are parsed.
pub(crate) fn options() -> Options {
    let command = super::Cli::command();
    command.find_subcommand("launch").map(options_of).unwrap_or_default()
}

/// Those of a program after `:`.
pub(crate) fn section_options() -> Options {
    options_of(&SectionArgs::command())
}

fn options_of(command: &Command) -> Options {
    let mut options = Options::default();
    options.add(Some("help"), Some('h'), false);
    for option in command.get_opts() {
        let valued = matches!(option.get_action(), ArgAction::Set | ArgAction::Append);
        options.add(option.get_long(), option.get_short(), valued);
    }
    options
}

pub(super) const LAUNCH_HELP: &str = "\
The words of mpiexec are understood as well: -np -host -hostfile -f -wdir -env -genv -genvall -ppn -l -bind-to
-map-by -outfile-pattern and `:`. Exit status: that of the rank that ended the job, else the worst of all;
124 time is up, 126 not executable, 127 not found, 255 a host cannot be reached.

Examples:
  viaduct launch -n 4 ./program
  viaduct launch --hosts node[1-4] --fold uname -r
  viaduct launch -n 16 --hosts node[1-4]*4 --stage ./program
  viaduct launch -n 1 ./master : -n 3 ./worker";
