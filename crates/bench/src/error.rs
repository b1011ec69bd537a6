//! The one error of this crate: a cause, its context and, where we know one, a hint.

use std::io;

use viaduct_os::error::OsError;

/// Short form used throughout the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a benchmark could not be run. A failed validation is not an error: it is a result with `valid: false`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request itself makes no sense.
    #[error("{message}")]
    Usage {
        /// What is wrong with it.
        message: String,
        /// What to write instead.
        hint: String,
    },
    /// A size or a result that makes no sense.
    #[error(transparent)]
    Results(#[from] viaduct_results::Error),
    /// The operating system refused something.
    #[error("{doing}: {source}")]
    Os {
        /// What was attempted.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// Shared memory could not be had; the message of the cause carries its own hint.
    #[error("{doing}: {source}")]
    Memory {
        /// What was attempted.
        doing: &'static str,
        /// What was said.
        source: OsError,
    },
    /// A call of the VIA library was refused.
    #[error("VIA: {0}")]
    Via(#[from] viaduct_via::Error),
    /// A layer failed to open or to move data.
    #[error("layer {layer}: {message}")]
    Layer {
        /// Its name.
        layer: &'static str,
        /// What it said.
        message: String,
        /// What to do about it, or empty.
        hint: String,
    },
    /// The second process reported a failure.
    #[error("the peer process failed: {message}")]
    Peer {
        /// Its own words.
        message: String,
        /// Its own hint, or empty.
        hint: String,
    },
    /// The second process is gone.
    #[error("the peer process ended unexpectedly while {doing}")]
    PeerGone {
        /// What this end was doing.
        doing: &'static str,
    },
    /// The second process lives but does not answer.
    #[error("no answer from the peer process for {seconds} s while {doing}")]
    Stalled {
        /// What this end was doing.
        doing: &'static str,
        /// How long it waited.
        seconds: u64,
    },
}

impl From<viaduct_via::PostError> for Error {
    fn from(refused: viaduct_via::PostError) -> Error {
        Error::Via(refused.error)
    }
}

impl Error {
    /// A request that cannot be met.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Error {
        Error::Usage { message: message.into(), hint: hint.into() }
    }

    /// A refused system call; shaped for `map_err`.
    pub fn os<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Error {
        move |source| Error::Os { doing: doing.into(), source: source.into() }
    }

    /// A failure inside a layer.
    pub fn layer(layer: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Error {
        Error::Layer { layer, message: message.into(), hint: hint.into() }
    }

    /// One line of advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Error::Usage { hint, .. } | Error::Layer { hint, .. } | Error::Peer { hint, .. } => hint.clone(),
            Error::Results(error) => error.hint().to_owned(),
            Error::Os { source, .. } => match source.raw_os_error().map(rustix::io::Errno::from_raw_os_error)
            {
                Some(rustix::io::Errno::MFILE) => "raise the limit of open files: ulimit -n 8192".into(),
                Some(rustix::io::Errno::NOMEM | rustix::io::Errno::NOSPC) => {
                    "use smaller --sizes or a smaller --window".into()
                }
                Some(rustix::io::Errno::INVAL) => "check --cpus against `viaduct info`".into(),
                _ => String::new(),
            },
            Error::Memory { .. } | Error::Via(_) => String::new(),
            Error::PeerGone { .. } => "run again; if it repeats, run one layer alone with --layer".into(),
            Error::Stalled { .. } => "the machine may be overloaded; try --wait block or fewer layers".into(),
        };
        (!text.is_empty()).then_some(text)
    }

    /// True if the caller, not the machine, must change something.
    pub fn is_usage(&self) -> bool {
        matches!(self, Error::Usage { .. } | Error::Results(_))
    }
}
