//! What can go wrong with a launch before a program runs. What happens to a program is its outcome, not an error.

/// Why a launch was refused or failed.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A list of hosts makes no sense.
    #[error("hosts `{text}`: {why}")]
    BadHosts {
        /// The part that is wrong.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A line of a file of hosts makes no sense.
    #[error("{file}, line {number}: `{line}`: {why}")]
    BadHostFile {
        /// The file.
        file: String,
        /// The number of the line.
        number: usize,
        /// What is in it.
        line: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is no such group of hosts.
    #[error("there is no group `{name}` of hosts: {why}")]
    NoGroup {
        /// Its name.
        name: String,
        /// Where it was looked for, and what was wrong.
        why: String,
    },
    /// A word that begins like an option and is none, or has no place here.
    #[error("`{word}` {why}")]
    Option {
        /// The word.
        word: String,
        /// What is wrong with it.
        why: &'static str,
        /// What to write instead.
        hint: String,
    },
    /// The request makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Something of the system failed.
    #[error("{what}: {why}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        why: String,
    },
    /// A host cannot be reached, or its agent cannot be started.
    #[error("{host}: {why}")]
    Unreachable {
        /// Which one.
        host: String,
        /// Why.
        why: String,
    },
}

impl Error {
    /// Something of the system failed while doing `what`.
    pub fn system(what: impl Into<String>, why: impl ToString) -> Error {
        Error::System { what: what.into(), why: why.to_string() }
    }

    /// One way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Option { hint, .. } => Some(hint.clone()),
            Error::BadHostFile { .. } => Some("a line reads `host`, `host:4` or `host slots=4`".to_owned()),
            Error::NoGroup { name, .. } => Some(format!("a line there reads `{name}: node[1-4]`")),
            Error::BadHosts { .. } => {
                Some("write node[1-4],big*2 or @group or file:PATH; `!` takes away, `&` keeps".to_owned())
            }
            Error::Unreachable { .. } => {
                Some("try `ssh HOST true`: it has to work without a question".to_owned())
            }
            _ => None,
        }
    }
}
