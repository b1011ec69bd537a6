//! Errors of the operating system, sorted by what the user can do about them.
//!
//! Serves the contract of exhaustion (design, section 2.6; notes on reliability, C6): running out of descriptors,
//! memory, disk or lockable memory gives an error that names the limit, its present value and one way out. Every
//! other failed call becomes [`OsError::Sys`] with the name of the call. This is not the error type of VIA: the
//! layers above wrap it.

use std::io;
use std::path::PathBuf;

use rustix::process::{Resource, getrlimit};

/// What went wrong at the border to Linux.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum OsError {
    /// The library's own byte budget would be exceeded.
    #[error(
        "{wanted} bytes of shared memory wanted, but {used} of the budget of {limit} are in use; \
         hint: use fewer or smaller buffers, or raise the memory budget"
    )]
    Budget {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes already charged.
        used: u64,
        /// The budget's limit.
        limit: u64,
    },
    /// The process or the system ran out of file descriptors.
    #[error(
        "{call}: out of file descriptors (RLIMIT_NOFILE is {limit}); hint: raise it with `ulimit -n`, \
         or close unused connections"
    )]
    Fds {
        /// The call that failed.
        call: &'static str,
        /// The soft limit RLIMIT_NOFILE when it failed.
        limit: u64,
        /// The kernel's answer: EMFILE (process), ENFILE (system) or ETOOMANYREFS (in flight).
        #[source]
        source: io::Error,
    },
    /// The kernel has no memory, or the process no address space or mappings left.
    #[error(
        "{call}: out of memory; hint: free memory, or raise the container's limit, RLIMIT_AS or vm.max_map_count"
    )]
    NoMemory {
        /// The call that failed.
        call: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The file system (of shared memory, too) is full.
    #[error("{call}: no space left; hint: free space or memory on the file system that holds the data")]
    NoSpace {
        /// The call that failed.
        call: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The limit of locked memory was reached.
    #[error("{call}: cannot lock memory (RLIMIT_MEMLOCK is {limit} bytes); hint: raise it with `ulimit -l`")]
    Memlock {
        /// The call that failed.
        call: &'static str,
        /// The soft limit RLIMIT_MEMLOCK in bytes.
        limit: u64,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A descriptor from a peer is no segment that can be trusted.
    #[error("the peer's memory segment is refused: {0}; hint: both sides must run a compatible version")]
    BadSegment(&'static str),
    /// Memory cannot be mapped at the address that was asked for.
    #[error(
        "{len} bytes cannot be mapped at {addr:#x}: {why}; hint: choose a range of addresses that is free in every process"
    )]
    BadPlace {
        /// The address.
        addr: usize,
        /// Bytes.
        len: usize,
        /// What stands in the way.
        why: &'static str,
    },
    /// A control message from a peer was cut short or carried what it may not.
    #[error("the peer's control message is refused: {0}; hint: both sides must run a compatible version")]
    BadMessage(&'static str),
    /// The run-time folder cannot be trusted.
    #[error("run-time folder {path}: {why}; hint: {hint}", path = path.display())]
    BadDir {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
        /// What to do about it.
        hint: &'static str,
    },
    /// A live process listens on this address already.
    #[error("{path}: another process listens here; hint: choose another name, or stop that process", path = path.display())]
    InUse {
        /// The socket file.
        path: PathBuf,
    },
    /// Any other failed call.
    #[error("{call} failed: {source}")]
    Sys {
        /// The call that failed.
        call: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

impl OsError {
    /// Whether a message could not be sent because too many descriptors of this user are in messages that were not read
    /// yet. It goes when they are.
    pub fn is_crowded(&self) -> bool {
        self.raw_os_error() == Some(libc::ETOOMANYREFS)
    }

    /// Sorts a failed call into the variant that names the limit behind it.
    ///
    /// ```
    /// use viaduct_os::error::OsError;
    /// let e = OsError::sys("accept", std::io::Error::from_raw_os_error(libc::EMFILE));
    /// assert!(e.to_string().contains("RLIMIT_NOFILE"));
    /// ```
    #[cold]
    pub fn sys(call: &'static str, errno: impl Into<io::Error>) -> OsError {
        let source = errno.into();
        let locking = call.starts_with("mlock");
        match source.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ETOOMANYREFS) => {
                OsError::Fds { call, limit: soft_limit(Resource::Nofile), source }
            }
            // mlock answers ENOMEM, EPERM or EAGAIN for one and the same limit.
            Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN) if locking => {
                OsError::Memlock { call, limit: soft_limit(Resource::Memlock), source }
            }
            Some(libc::ENOMEM) => OsError::NoMemory { call, source },
            Some(libc::ENOSPC | libc::EDQUOT) => OsError::NoSpace { call, source },
            _ => OsError::Sys { call, source },
        }
    }

    /// The error number of the kernel, if a call of the kernel failed.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            OsError::Fds { source, .. }
            | OsError::NoMemory { source, .. }
            | OsError::NoSpace { source, .. }
            | OsError::Memlock { source, .. }
            | OsError::Sys { source, .. } => source.raw_os_error(),
            OsError::Budget { .. }
            | OsError::BadSegment(_)
            | OsError::BadMessage(_)
            | OsError::BadDir { .. }
            | OsError::BadPlace { .. }
            | OsError::InUse { .. } => None,
        }
    }
}

fn soft_limit(resource: Resource) -> u64 {
    // `None` is the kernel's "unlimited".
    getrlimit(resource).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(call: &'static str, errno: i32) -> OsError {
        OsError::sys(call, io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn every_limit_has_its_variant() {
        assert!(matches!(of("socket", libc::EMFILE), OsError::Fds { .. }));
        assert!(matches!(of("socket", libc::ENFILE), OsError::Fds { .. }));
        assert!(matches!(of("sendmsg", libc::ETOOMANYREFS), OsError::Fds { .. }));
        assert!(of("sendmsg", libc::ETOOMANYREFS).is_crowded() && !of("sendmsg", libc::EMFILE).is_crowded());
        assert!(matches!(of("mmap", libc::ENOMEM), OsError::NoMemory { .. }));
        assert!(matches!(of("mlock", libc::ENOMEM), OsError::Memlock { .. }));
        assert!(matches!(of("fallocate", libc::ENOSPC), OsError::NoSpace { .. }));
        assert!(matches!(of("mmap", libc::EPERM), OsError::Sys { call: "mmap", .. }));
    }

    #[test]
    fn messages_carry_cause_limit_and_hint() {
        let text = OsError::Budget { wanted: 7, used: 5, limit: 9 }.to_string();
        assert!(text.contains('7') && text.contains('9') && text.contains("hint"));
        let text = of("socket", libc::EMFILE).to_string();
        assert!(text.contains("socket") && text.contains("ulimit -n"));
        assert_eq!(of("mmap", libc::EPERM).raw_os_error(), Some(libc::EPERM));
    }
}
