//! Arguments of `viaduct mpi`.

use clap::{Args, Subcommand, ValueEnum};

use super::Format;

#[derive(Debug, Args)]
pub(crate) struct MpiArgs {
    #[command(subcommand)]
    pub(crate) what: MpiVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MpiVerb {
    /// The folder with libraries, headers, compilers and mpiexec, which is made if it is not there
    Path {
        /// One part of it
        #[arg(value_enum, default_value_t)]
        part: Part,
    },
    /// What a shell sets so that programs find it: eval "$(viaduct mpi env)"
    Env,
    /// Every function of MPI 3.1: there or refused by name, and the programs of our tests that are linked with it
    Coverage(CoverageArgs),
}

/// A part of the folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The folder itself
    #[default]
    All,
    /// Compilers and mpiexec
    Bin,
    /// Headers
    Include,
    /// Libraries, for LD_LIBRARY_PATH
    Lib,
}

#[derive(Debug, Args)]
pub(crate) struct CoverageArgs {
    /// Only what is refused
    #[arg(long)]
    pub(crate) refused: bool,
    /// How it is written
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}
