//! Arguments of `viaduct dsm`.

use clap::Args;
use viaduct_cashmere::variant::Variant;
use viaduct_dsm_apps::App;
use viaduct_os::fault::EngineKind;

pub(crate) const DSM_HELP: &str = "\
Each node is a server process and its workers, which share frames; pages move between nodes as the program touches them.

Examples:
  viaduct dsm sor --nodes 2 --procs 2 --check
  viaduct dsm gauss --nodes 4 --procs 1 --size 256 --variant none-mg
  viaduct dsm sor --nodes 2 --procs 2 --variant dms
  viaduct dsm sor --hosts node[1-4] --procs 8
  viaduct dsm lu --nodes 2 --procs 2 --engine mprotect --json";

#[derive(Debug, Args)]
pub(crate) struct DsmArgs {
    /// The program: sor, gauss or lu
    pub(crate) app: App,
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
    /// How accesses are seen: mprotect or uffd-sync [default: the better one that works here]
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<EngineKind>,
    /// Bytes of a page
    #[arg(long, default_value_t = 4096, value_name = "BYTES")]
    pub(crate) page: usize,
    /// Rows and columns of the problem [default: that of the program]
    #[arg(long, value_name = "ROWS")]
    pub(crate) size: Option<usize>,
    /// Rounds of the programs that have them
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub(crate) rounds: usize,
    /// Compare the result with the sequential program, bit by bit
    #[arg(long)]
    pub(crate) check: bool,
    /// Print time and statistics as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Let root start the processes
    #[arg(long)]
    pub(crate) allow_root: bool,
    /// How many nodes the hosts have; set by `dsm` itself
    #[arg(long, hide = true, value_name = "N")]
    pub(crate) of: Option<usize>,
    /// This process is a rank of the run; set by `dsm` itself
    #[arg(long, hide = true)]
    pub(crate) as_rank: bool,
}
