//! What can go wrong in a flow. Errors can be cloned, because one failure stops every part of a flow.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The failure of a flow, with its cause.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be used.
    #[error("{what} {path}: {source}", path = path.display())]
    File {
        /// What was tried: `reading`, `writing` and so on.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The answer of the kernel.
        source: Arc<io::Error>,
    },
    /// A file ends inside a record.
    #[error(
        "{path}: the last record is cut: {rest} bytes at offset {offset}, a record has {size}; \
         hint: give the right record size, or say what to do with a partial record",
        path = path.display()
    )]
    Partial {
        /// The file.
        path: PathBuf,
        /// Where the piece begins.
        offset: u64,
        /// Its length.
        rest: u64,
        /// Length of a whole record.
        size: u64,
    },
    /// Buffers of a flow do not fit together in a file.
    #[error("writing {path}: {cause}", path = path.display())]
    Place {
        /// The file.
        path: PathBuf,
        /// What is wrong with their places.
        cause: String,
    },
    /// Memory could not be had.
    #[error("memory for buffers: {0}")]
    Memory(String),
    /// An edge to another node broke.
    #[error("{what} node {node}: {cause}")]
    Net {
        /// What was tried.
        what: &'static str,
        /// The other node.
        node: u32,
        /// Why it failed.
        cause: String,
    },
    /// The nodes of a job did not come together.
    #[error("the network of the nodes: {0}")]
    Network(String),
    /// Another node failed and said why.
    #[error("node {node}: {cause}")]
    Node {
        /// The node where it happened.
        node: u32,
        /// Its own words.
        cause: String,
    },
    /// Records that do not follow their format.
    #[error("{0}")]
    Format(String),
    /// The flow was stopped by its owner.
    #[error("stopped")]
    Stopped,
}

impl Error {
    /// A failed call on a file.
    pub fn file(what: &'static str, path: &Path, source: io::Error) -> Error {
        Error::File { what, path: path.to_owned(), source: Arc::new(source) }
    }

    /// The error as another node sees it: with the node where it happened.
    pub fn at_node(self, node: u32) -> Error {
        match self {
            Error::Node { .. } => self,
            other => Error::Node { node, cause: other.to_string() },
        }
    }

    /// Whether a file system was full.
    pub fn is_full(&self) -> bool {
        matches!(self, Error::File { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    }
}
