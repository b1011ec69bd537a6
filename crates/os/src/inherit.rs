//! Descriptors that a launcher left open for this process, named by number in the environment.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::io::fcntl_dupfd_cloexec;

/// A second descriptor for the socket that stands at this number, closed on exec as every one of ours.
///
/// A second one, since the number may be claimed by another library in this process as well: an MPI library beside us
/// reads the same variable.
///
/// # Errors
/// If nothing is open there, or no socket is.
pub fn socket_at(number: RawFd) -> io::Result<OwnedFd> {
    if number < 3 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: borrowed for the two calls below, both of which check the number.
    let there = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_getfd(there)?;
    let own = fcntl_dupfd_cloexec(there, 3)?;
    rustix::net::sockopt::socket_type(&own)?;
    Ok(own)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn sockets_are_taken_and_other_things_are_not() {
        let (a, _b) = UnixStream::pair().unwrap();
        let second = socket_at(a.as_raw_fd()).unwrap();
        assert_ne!(second.as_raw_fd(), a.as_raw_fd());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(socket_at(file.as_raw_fd()).is_err());
        for number in [-1, 0, 2, 987_654] {
            assert!(socket_at(number).is_err(), "{number}");
        }
    }
}
