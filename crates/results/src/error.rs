//! The one error of this crate: a file or a word that does not make sense, and what to do instead.

/// Short form used throughout the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Something that the caller must change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    message: String,
    hint: String,
}

impl Error {
    /// Says what is wrong, and what to write instead.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Error {
        Error { message: message.into(), hint: hint.into() }
    }

    /// What to write instead.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}
