//! What can go wrong before a stream stands. Afterwards errors are [`std::io::Error`]s, as users of sockets expect.

use std::fmt;
use std::io::{self, ErrorKind};

/// Why a stream or a listener could not be made.
#[non_exhaustive]
#[derive(thiserror::Error)]
pub enum Error {
    /// The settings contradict themselves.
    #[error("settings refused: {cause}; {hint}")]
    Config {
        /// What is wrong.
        cause: String,
        /// What to do.
        hint: String,
    },
    /// The address cannot be read.
    #[error("not an address: {text:?}; {hint}")]
    Address {
        /// What was given.
        text: String,
        /// What to do.
        hint: &'static str,
    },
    /// The one at the other end speaks something else, or another version.
    #[error("{address} does not speak this protocol: {why}; both ends need the same version of the library")]
    Greeting {
        /// The other end.
        address: String,
        /// What was wrong with its greeting.
        why: &'static str,
    },
    /// The library was closed, or belongs to the parent of a forked process.
    #[error("the sockets library is closed; open it again")]
    Closed,
    /// The NIC said no.
    #[error(transparent)]
    Via(#[from] viaduct_via::Error),
    /// The operating system said no.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl fmt::Debug for Error {
    /// The text that users read: it is what comes of an error that `main` returns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        use viaduct_via::Error as Via;
        let kind = match &error {
            Error::Config { .. } | Error::Address { .. } => ErrorKind::InvalidInput,
            Error::Greeting { .. } => ErrorKind::InvalidData,
            Error::Closed => ErrorKind::NotConnected,
            Error::Io(e) => e.kind(),
            Error::Via(e) => match e {
                Via::NoMatch(_) | Via::Rejected(_) | Via::NotOfThisJob(_) => ErrorKind::ConnectionRefused,
                // What had no room was asked again until the time was over.
                Via::Timeout | Via::NoRoom { .. } => ErrorKind::TimedOut,
                // It stood, and broke before anybody looked.
                Via::InvalidState { found: viaduct_via::ViState::Error, .. } => ErrorKind::ConnectionReset,
                Via::AddressInUse(_) => ErrorKind::AddrInUse,
                Via::NotReachable(_) => ErrorKind::HostUnreachable,
                Via::InvalidParameter(_) => ErrorKind::InvalidInput,
                Via::Protocol(_) | Via::VersionMismatch { .. } => ErrorKind::InvalidData,
                Via::Limit { .. } => ErrorKind::OutOfMemory,
                _ => ErrorKind::Other,
            },
        };
        io::Error::new(kind, error)
    }
}
