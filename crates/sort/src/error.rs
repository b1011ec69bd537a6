//! What can go wrong with a sort.

use std::path::PathBuf;

/// Why a sort, a generation or a check could not be done.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A flow failed.
    #[error(transparent)]
    River(#[from] viaduct_river::Error),
    /// A file is no list of summaries.
    #[error("{path}: no list of partition summaries: {why}; hint: these are written by `check -o`", path = path.display())]
    Summary {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The output is not what it has to be: a defect, which is found before the output gets its name.
    #[error("the proof failed: {0}; hint: this is a defect of the program or of the machine's memory")]
    Proof(String),
    /// The job that the nodes form failed.
    #[error("the job of the nodes: {0}")]
    Job(#[from] viaduct_job::Error),
    /// Options that do not go together.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// Whether the sort ended because it was asked to, or because another part of it failed.
    pub fn is_stopped(&self) -> bool {
        matches!(self, Error::River(viaduct_river::Error::Stopped))
    }

    /// Whether a file ends inside a record.
    pub fn is_cut_record(&self) -> bool {
        matches!(self, Error::River(viaduct_river::Error::Partial { .. }))
    }

    /// Whether another node failed, and says why itself.
    pub fn is_of_another_node(&self) -> bool {
        matches!(self, Error::River(viaduct_river::Error::Node { .. }))
    }

    /// Whether a connection to another node ended: that one may say why.
    pub fn is_lost_connection(&self) -> bool {
        matches!(self, Error::River(viaduct_river::Error::Net { .. }) | Error::Job(_))
    }
}
