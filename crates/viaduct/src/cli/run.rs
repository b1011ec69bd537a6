//! Arguments of `viaduct run`.

use std::ffi::OsString;

use clap::Args;

pub(crate) const RUN_HELP: &str = "\
Connections over TCP whose both ends run under Viaduct on this host, as one user, move to shared memory; all others stay \
as they are.

Examples:
  viaduct run -- redis-server --port 7000
  viaduct run -- redis-benchmark -p 7000 -c 1 -t get
  viaduct run --explain -- curl http://localhost:8000/";

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Say of each connection whether it was upgraded, and why not, on standard error when the program has ended
    #[arg(long)]
    pub(crate) explain: bool,
    /// Load the library and upgrade nothing: for comparisons
    #[arg(long)]
    pub(crate) no_upgrade: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROG")]
    pub(crate) program: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ClaimsArgs {
    /// Seconds without a program to serve after which it leaves
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub(crate) idle: f64,
    /// The abstract name at which it takes claims [default: that of this user]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}
