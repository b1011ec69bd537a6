//! The engine that works everywhere: mprotect (the paper's own).

use super::Protection;
use super::engine::{Engine, EngineKind, Pages};
use crate::error::OsError;

/// The protection of a mapping itself, which the kernel keeps.
#[derive(Debug)]
pub(super) struct Mprotect;

impl Mprotect {
    /// Closes all pages.
    pub(super) fn start(pages: Pages) -> Result<Mprotect, OsError> {
        Mprotect.protect(pages, Protection::Closed)?;
        Ok(Mprotect)
    }
}

impl Engine for Mprotect {
    fn kind(&self) -> EngineKind {
        EngineKind::Mprotect
    }

    fn protect(&self, pages: Pages, protection: Protection) -> Result<(), OsError> {
        let flags = match protection {
            Protection::Closed => libc::PROT_NONE,
            Protection::Read => libc::PROT_READ,
            Protection::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a range of a mapping of the window, which gives its memory out as an address only.
        match unsafe { libc::mprotect(pages.at as *mut libc::c_void, pages.len, flags) } {
            0 => Ok(()),
            _ => Err(OsError::sys("mprotect", std::io::Error::last_os_error())),
        }
    }
}
