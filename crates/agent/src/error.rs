//! What can go wrong between a launcher and an agent.

/// Why an agent cannot be had.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something of the system failed.
    #[error("{what}: {why}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        why: String,
    },
    /// The other end has not the key that it should have, or speaks something else.
    #[error("refused: {0}")]
    Refused(&'static str),
    /// No agent of this user runs on this host.
    #[error("no agent of yours runs on this host")]
    NoAgent,
    /// ssh did not bring up an agent.
    #[error("{0}")]
    Bootstrap(String),
    /// An agent on the network as root was not asked for.
    #[error("an agent of root that listens on the network is refused; --allow-root allows it")]
    Root,
}

impl Error {
    pub(crate) fn system(what: impl Into<String>, why: impl ToString) -> Error {
        Error::System { what: what.into(), why: why.to_string() }
    }
}
