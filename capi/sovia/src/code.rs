//! Errors as `errno`, and results as C has them.

use std::io::{Error, ErrorKind};

use libc::{c_int, ssize_t};

/// The `errno` of an error: what the kernel would say in its place.
pub(crate) fn errno_of(error: &Error) -> c_int {
    if let Some(code) = error.raw_os_error() {
        return code;
    }
    match error.kind() {
        ErrorKind::WouldBlock => libc::EAGAIN,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
        ErrorKind::ConnectionReset => libc::ECONNRESET,
        ErrorKind::ConnectionAborted => libc::ECONNABORTED,
        ErrorKind::BrokenPipe => libc::EPIPE,
        ErrorKind::NotConnected => libc::ENOTCONN,
        ErrorKind::AddrInUse => libc::EADDRINUSE,
        ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
        ErrorKind::HostUnreachable => libc::EHOSTUNREACH,
        ErrorKind::InvalidInput => libc::EINVAL,
        ErrorKind::InvalidData => libc::EPROTO,
        ErrorKind::OutOfMemory => libc::ENOMEM,
        ErrorKind::Interrupted => libc::EINTR,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    }
}

/// Sets `errno`; -1.
pub(crate) fn fail(errno: c_int) -> c_int {
    // SAFETY: the address of this thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// What a function of C returns.
pub(crate) trait Answer {
    fn from_int(value: c_int) -> Self;
}

impl Answer for c_int {
    fn from_int(value: c_int) -> c_int {
        value
    }
}

impl Answer for ssize_t {
    fn from_int(value: c_int) -> ssize_t {
        value as ssize_t
    }
}

/// A result: the value, or -1 and `errno`.
pub(crate) fn answer<T: Answer>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| T::from_int(fail(errno_of(&error))))
}

/// An error by its number.
pub(crate) fn err(errno: c_int) -> Error {
    Error::from_raw_os_error(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_as_sockets_do() {
        let failed: ssize_t = answer(Err(ErrorKind::BrokenPipe.into()));
        assert_eq!((failed, Error::last_os_error().raw_os_error()), (-1, Some(libc::EPIPE)));
        assert_eq!(answer::<c_int>(Ok(7)), 7);
        assert_eq!(errno_of(&err(libc::ENOPROTOOPT)), libc::ENOPROTOOPT);
    }
}
