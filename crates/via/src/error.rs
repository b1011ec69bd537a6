//! What can go wrong in a call. Failures of a posted descriptor are not here: they are its [`Status`](crate::Status).
//!
//! Serves the return codes of the VIA interface; the C library maps each variant to one code.

use std::fmt;

use viaduct_os::error::OsError;
use viaduct_os::knob::BadKnob;

use crate::accepting::ConnRequest;
use crate::completion::Completion;
use crate::descriptor::Descriptor;
use crate::vi::ViState;

/// Why a call was refused. Nothing was changed when a call returns one of these, unless its variant says so.
#[non_exhaustive]
#[derive(thiserror::Error)]
pub enum Error {
    /// The handle was destroyed, or belongs to another NIC.
    #[error("no such {0}: it was destroyed, or belongs to another NIC")]
    InvalidHandle(&'static str),
    /// An argument makes no sense.
    #[error("invalid parameter: {0}")]
    InvalidParameter(&'static str),
    /// The VI is in a state in which the call is not allowed.
    #[error("the VI is {found}, but {call} needs it {wanted}")]
    InvalidState {
        /// The call that was refused.
        call: &'static str,
        /// What the call needs.
        wanted: &'static str,
        /// What the VI is.
        found: ViState,
    },
    /// The work queue holds as many descriptors as it was made for.
    #[error(
        "the work queue is full ({depth} descriptors); reap completions or create the VI with a larger depth"
    )]
    QueueFull {
        /// Capacity of the queue.
        depth: usize,
    },
    /// Nothing is posted that could complete.
    #[error("the work queue is empty: nothing posted can complete")]
    QueueEmpty,
    /// Every entry of the completion queue is spoken for by a posted descriptor.
    #[error("the completion queue is full ({capacity} entries reserved); poll it or resize it")]
    CqFull {
        /// Capacity of the completion queue.
        capacity: usize,
    },
    /// The transport cannot take the message now; nothing was queued.
    #[error("the transport is busy; poll for completions and try again")]
    Busy,
    /// The object is still used by another one.
    #[error("{0} is still in use")]
    InUse(&'static str),
    /// A limit of the NIC was reached.
    #[error("limit reached: {what} (at most {limit})")]
    Limit {
        /// Which limit.
        what: &'static str,
        /// Its value.
        limit: u64,
    },
    /// A descriptor came back that was not carried out. The completion is attached, with the descriptor and its buffers.
    #[error("a descriptor of {} was not carried out: {}", .0.queue, .0.status)]
    Unsuccessful(Box<Completion>),
    /// Nothing happened within the given time.
    #[error("timed out")]
    Timeout,
    /// No listener waits at the remote address. A listener that is there and has no room is [`Error::NoRoom`].
    #[error("no listener waits at {0}; is the server there yet?")]
    NoMatch(String),
    /// A listener is at the remote address and cannot take one client more now; later it may.
    #[error("the listener at {address} has no room now: {why}; try again")]
    NoRoom {
        /// Where it listens.
        address: String,
        /// What it has no room for.
        why: &'static str,
    },
    /// The remote side said no; its private data is attached.
    #[error("the remote side rejected the connection{}", in_words(.0))]
    Rejected(Vec<u8>),
    /// The address cannot be reached by this provider.
    #[error("not reachable: {0}")]
    NotReachable(String),
    /// Both ends must ask for the same reliability level.
    #[error("reliability levels differ: ours {ours:?}, theirs {theirs:?}")]
    ReliabilityMismatch {
        /// Level of the local VI.
        ours: crate::Reliability,
        /// Level asked for by the remote VI.
        theirs: crate::Reliability,
    },
    /// Both ends must ask for the same maximum transfer size.
    #[error("maximum transfer sizes differ: ours {ours}, theirs {theirs}")]
    TransferSizeMismatch {
        /// Of the local VI.
        ours: u32,
        /// Of the remote VI.
        theirs: u32,
    },
    /// Both ends must ask for the same quality of service.
    #[error("quality of service differs: ours {ours}, theirs {theirs}")]
    QosMismatch {
        /// Of the local VI.
        ours: u32,
        /// Of the remote VI.
        theirs: u32,
    },
    /// The protection tag is unknown or was destroyed.
    #[error("invalid protection tag")]
    InvalidPtag,
    /// RDMA read was asked for where the reliability level does not offer it.
    #[error("RDMA read needs a reliable VI")]
    InvalidRdmaRead,
    /// The queue reports to a completion queue; wait there.
    #[error("the queue is bound to a completion queue; wait on that instead")]
    BoundToCq,
    /// Another listener has the address.
    #[error("address {0} is in use")]
    AddressInUse(String),
    /// The process forked after the NIC was opened; a child opens a NIC of its own.
    #[error("this NIC belongs to the parent process; open a new one after fork")]
    Forked,
    /// The NIC was closed.
    #[error("the NIC was closed")]
    Closed,
    /// The provider does not offer this.
    #[error("{0} is not supported by this provider")]
    NotSupported(&'static str),
    /// The provider needs something that this machine does not have, or have right.
    #[error("provider {provider} cannot be used: {why}; {hint}")]
    Unavailable {
        /// Which provider.
        provider: &'static str,
        /// What is missing.
        why: String,
        /// What to do.
        hint: &'static str,
    },
    /// The transport below a provider said no.
    #[error("{provider}: {call}: {why}")]
    Transport {
        /// Which provider.
        provider: &'static str,
        /// What was tried.
        call: &'static str,
        /// What it said.
        why: String,
    },
    /// The two ends do not have the same job token, or one has none.
    #[error("not of this job: {0}")]
    NotOfThisJob(&'static str),
    /// The two ends speak different versions.
    #[error("protocol versions differ: ours {ours}, theirs {theirs}")]
    VersionMismatch {
        /// Our version.
        ours: u32,
        /// The peer's.
        theirs: u32,
    },
    /// The peer broke the rules of connection set-up.
    #[error("the peer broke the connection protocol: {0}")]
    Protocol(&'static str),
    /// A setting has a value that is not understood.
    #[error(transparent)]
    Setting(#[from] BadKnob),
    /// The operating system said no.
    #[error(transparent)]
    Os(#[from] OsError),
}

impl Error {
    /// As many clients wait at this address as the backlog of its listener allows.
    #[doc(hidden)]
    pub fn backlog_full(address: impl fmt::Display) -> Error {
        let why = "as many clients wait there as its backlog allows";
        Error::NoRoom { address: address.to_string(), why }
    }

    /// The process that listens at this address is out of descriptors or memory.
    #[doc(hidden)]
    pub fn listener_exhausted(address: impl fmt::Display) -> Error {
        let why = "its process is out of file descriptors or memory";
        Error::NoRoom { address: address.to_string(), why }
    }

    /// Whether the VIs of the two ends do not go together.
    pub(crate) fn is_mismatch(&self) -> bool {
        matches!(
            self,
            Error::ReliabilityMismatch { .. }
                | Error::TransferSizeMismatch { .. }
                | Error::QosMismatch { .. }
        )
    }
}

impl fmt::Debug for Error {
    /// The text that users read: it is what comes of an error that `main` returns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Private data of a rejection that is text, to be read behind the rest.
fn in_words(data: &[u8]) -> String {
    match std::str::from_utf8(data) {
        Ok(text) if !text.is_empty() && !text.contains(char::is_control) => format!(": {text}"),
        _ => String::new(),
    }
}

/// A refused post: the reason, and the descriptor back.
#[derive(Debug)]
pub struct PostError {
    /// Why the post was refused.
    pub error: Error,
    /// The descriptor, untouched.
    pub descriptor: Descriptor,
}

impl std::fmt::Display for PostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "post refused: {}", self.error)
    }
}

impl std::error::Error for PostError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// A batch of posts of which one was refused.
#[derive(Debug)]
pub struct BatchError {
    /// Descriptors that were posted before it.
    pub posted: usize,
    /// The first that was refused. Those behind it are still in the iterator of the caller.
    pub refused: PostError,
}

impl std::fmt::Display for BatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} posted, then a {}", self.posted, self.refused)
    }
}

impl std::error::Error for BatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.refused.error)
    }
}

impl From<BatchError> for Error {
    fn from(e: BatchError) -> Error {
        e.refused.error
    }
}

/// An answer that could not be given: the reason, and the request back, for another VI or a rejection.
#[derive(Debug)]
pub struct AcceptError {
    /// Why the request was not accepted.
    pub error: Error,
    /// The request. Dropping it rejects it.
    pub request: ConnRequest,
}

impl std::fmt::Display for AcceptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the request of {} was not accepted: {}", self.request.from(), self.error)
    }
}

impl std::error::Error for AcceptError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<AcceptError> for Error {
    fn from(e: AcceptError) -> Error {
        e.error
    }
}

impl From<PostError> for Error {
    fn from(e: PostError) -> Error {
        e.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn main_prints_the_text_of_an_error() {
        let error = Error::NoMatch("shout".into());
        assert_eq!(format!("{error:?}"), "no listener waits at shout; is the server there yet?");
    }
}
