//! Waiting for a list of descriptors that another library keeps, for a control thread.
//!
//! Unlike [`crate::epoll`] nothing is left behind in the kernel between two waits: a descriptor that changes often while
//! no thread waits costs nothing.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// A descriptor and what to wait for, as the kernel has it (`struct pollfd`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The descriptor. One that is closed meanwhile is told as ready.
    pub fd: RawFd,
    /// What to wait for.
    pub events: i16,
    /// What there is.
    pub found: i16,
}

impl Watched {
    /// Waits until there is something to read.
    pub fn read(fd: RawFd) -> Watched {
        Watched { fd, events: libc::POLLIN, found: 0 }
    }

    /// Waits until something can be written.
    pub fn write(fd: RawFd) -> Watched {
        Watched { fd, events: libc::POLLOUT, found: 0 }
    }
}

/// Waits until one of them is ready, at most `timeout` (`None`: without limit). How many are; 0 also after a signal.
///
/// # Errors
/// The kernel's: `EINVAL` if there are more than the process may have open.
pub fn wait(list: &mut [Watched], timeout: Option<Duration>) -> io::Result<usize> {
    let ms = timeout.map_or(-1, |t| t.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32);
    // SAFETY: the structure is the kernel's, and there are as many as is said. Descriptors are only looked at.
    let n = unsafe { libc::poll(list.as_mut_ptr().cast(), list.len() as libc::nfds_t, ms) };
    match usize::try_from(n) {
        Ok(n) => Ok(n),
        Err(_) => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            e => Err(e),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;
    use crate::eventfd::EventFd;

    #[test]
    fn a_descriptor_that_is_ready_is_marked() {
        assert_eq!(size_of::<Watched>(), size_of::<libc::pollfd>());
        let (a, b) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        let mut list = [&a, &b].map(|fd| Watched::read(fd.as_fd().as_raw_fd()));
        assert_eq!(wait(&mut list, Some(Duration::ZERO)).unwrap(), 0);
        b.signal();
        assert_eq!(wait(&mut list, None).unwrap(), 1);
        assert!(list[0].found == 0 && list[1].found & libc::POLLIN != 0);
    }
}
