//! The engine that works everywhere: mprotect (the paper's own).

use super::Protection;
use crate::error::OsError;

/// Protects `len` bytes at `at`.
pub(super) fn protect(at: usize, len: usize, protection: Protection) -> Result<(), OsError> {
    let flags = match protection {
        Protection::Closed => libc::PROT_NONE,
        Protection::Read => libc::PROT_READ,
        Protection::Write => libc::PROT_READ | libc::PROT_WRITE,
    };
    // SAFETY: a range of a mapping of the window, which gives its memory out as an address only.
    match unsafe { libc::mprotect(at as *mut libc::c_void, len, flags) } {
        0 => Ok(()),
        _ => Err(OsError::sys("mprotect", std::io::Error::last_os_error())),
    }
}
