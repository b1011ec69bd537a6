//! What can go wrong with tokens, cards and launchers.

use std::fmt;
use std::path::PathBuf;

/// Why something was refused. No variant holds any part of a token.
#[non_exhaustive]
#[derive(thiserror::Error)]
pub enum Error {
    /// A token is not 64 hexadecimal digits.
    #[error(
        "not a job token: it has 64 hexadecimal digits; `head -c 32 /dev/urandom | xxd -p -c 64` makes one"
    )]
    BadToken,
    /// The file of a token cannot be read.
    #[error("job token: {path}: {why}")]
    TokenFile {
        /// Which file.
        path: PathBuf,
        /// What the kernel said.
        why: std::io::Error,
    },
    /// Others could read the token.
    #[error("job token: {path}: {what}; {hint}")]
    TokenNotPrivate {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// A rank has not the token that rank 0 has.
    #[error(
        "rank {rank} has another job token than rank 0, or none; give all ranks one VIADUCT_TOKEN_FILE, or none of them"
    )]
    OtherToken {
        /// Which one.
        rank: usize,
    },
    /// The host cannot be told from others.
    #[error("host identity: {path}: {why}; set VIADUCT_HOST to a name that no other host has")]
    NoHost {
        /// What could not be read.
        path: &'static str,
        /// What the kernel said.
        why: std::io::Error,
    },
    /// A card is damaged, or not one.
    #[error("not an address card: {0}")]
    BadCard(&'static str),
    /// A card of another version.
    #[error(
        "address card of version {theirs}, this is version {ours}; use the same version of Viaduct on all hosts"
    )]
    CardVersion {
        /// What we read.
        ours: u8,
        /// What was written.
        theirs: u8,
    },
    /// The connection to the launcher failed.
    #[error("PMI: {what}: {why}; is the launcher still there?")]
    Pmi {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        why: std::io::Error,
    },
    /// The launcher said something that it should not have said.
    #[error("PMI: the launcher said {0}")]
    PmiSaid(String),
    /// A variable that a launcher sets makes no sense.
    #[error("{name}={value} makes no sense; it is set by the launcher, or should not be set")]
    BadVariable {
        /// Which one.
        name: &'static str,
        /// What it says.
        value: String,
    },
    /// The processes were started by a launcher that we do not speak to.
    #[error("started by {launcher}, which does not speak PMI-1; {hint}")]
    ForeignLauncher {
        /// Which one.
        launcher: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// The ranks of a host could not share memory.
    #[error("job segment: {what}: {why}")]
    Segment {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        why: String,
    },
}

impl fmt::Debug for Error {
    /// The text that users read: it is what comes of an error that `main` returns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
