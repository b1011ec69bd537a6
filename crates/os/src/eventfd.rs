//! A counter behind a descriptor, for waits that must share an epoll set with other descriptors.
//!
//! The second of the two ways to sleep on a bell (design, section 2.2). Always non-blocking and close-on-exec. It
//! carries no data: one signal or a thousand look the same to the reader.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, fcntl_dupfd_cloexec, preadv2, read, write};

use crate::error::OsError;
use crate::fdpass::close_apart;

/// An eventfd of this process, or a peer's that was checked.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    /// A new one, not signalled.
    ///
    /// # Errors
    /// [`OsError::Fds`] when descriptors have run out.
    pub fn new() -> Result<EventFd, OsError> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(|fd| EventFd { fd })
            .map_err(|e| OsError::sys("eventfd", e))
    }

    /// Takes a descriptor that came from a peer, if it is an eventfd.
    ///
    /// A pipe or a socket in its place could block the thread that rings. The flag O_NONBLOCK belongs to the open file,
    /// which the peer has too: a hostile one can clear it and fill the counter, and [`signal`](Self::signal) blocks. So
    /// this is for peers that could stop this process anyway, by a signal: those of the same user. What other remedies
    /// were tried is in SECURITY.md, "Flags of open files".
    ///
    /// # Errors
    /// [`OsError::BadMessage`] if it is something else.
    pub fn from_peer(fd: OwnedFd) -> Result<EventFd, OsError> {
        if !EventFd::is_one(fd.as_fd()) {
            close_apart(vec![fd]);
            return Err(OsError::BadMessage("a descriptor that should be an eventfd is none"));
        }
        let flags = fcntl_getfl(&fd).map_err(|e| OsError::sys("fcntl", e))?;
        fcntl_setfl(&fd, flags | OFlags::NONBLOCK).map_err(|e| OsError::sys("fcntl", e))?;
        Ok(EventFd { fd })
    }

    /// Whether a peer's descriptor is an eventfd.
    pub fn is_one(fd: BorrowedFd<'_>) -> bool {
        // The kernel's own name for the file. Trying a write instead could block, or hit a file where it does harm.
        let name = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        name.is_ok_and(|name| name.as_os_str() == "anon_inode:[eventfd]")
    }

    /// Makes the descriptor readable. Never fails: a full counter is readable already. Never blocks, unless a peer that
    /// shares the open file cleared its flag, see [`from_peer`](Self::from_peer).
    pub fn signal(&self) {
        signal(self.fd.as_fd());
    }

    /// Makes the descriptor unreadable; says whether it had been signalled. Never blocks, whatever flags another holder
    /// of the open file has set.
    pub fn drain(&self) -> bool {
        let mut count = [0; 8];
        let mut into = [IoSliceMut::new(&mut count)];
        match preadv2(&self.fd, &mut into, u64::MAX, ReadWriteFlags::NOWAIT) {
            // Before Linux 5.8: by the flag alone.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => read(&self.fd, &mut count).is_ok(),
            outcome => outcome.is_ok(),
        }
    }

    /// A second descriptor of the same counter, to be passed to a peer.
    ///
    /// # Errors
    /// [`OsError::Fds`] when descriptors have run out.
    pub fn dup(&self) -> Result<OwnedFd, OsError> {
        fcntl_dupfd_cloexec(&self.fd, 0).map_err(|e| OsError::sys("fcntl(F_DUPFD_CLOEXEC)", e))
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<EventFd> for OwnedFd {
    fn from(event: EventFd) -> OwnedFd {
        event.fd
    }
}

/// Adds one to a non-blocking eventfd that is only borrowed.
pub fn signal(fd: BorrowedFd<'_>) {
    // Interruption cannot happen to a non-blocking counter; any other failure means that there is no one left to wake.
    let _ = write(fd, &1u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use rustix::pipe::pipe;

    use super::*;

    #[test]
    fn signal_then_drain_once() {
        let event = EventFd::new().unwrap();
        assert!(!event.drain());
        event.signal();
        event.signal();
        assert!(event.drain());
        assert!(!event.drain());
    }

    #[test]
    fn a_duplicate_rings_the_same_counter() {
        let event = EventFd::new().unwrap();
        let twin = EventFd::from_peer(event.dup().unwrap()).unwrap();
        assert!(!event.drain(), "the check must not signal");
        twin.signal();
        assert!(event.drain());
    }

    #[test]
    fn a_cleared_flag_does_not_block_a_look() {
        let event = EventFd::new().unwrap();
        let twin = event.dup().unwrap();
        fcntl_setfl(&twin, OFlags::empty()).unwrap();
        assert!(!event.drain());
        event.signal();
        assert!(event.drain() && !event.drain());
    }

    #[test]
    fn other_descriptors_are_refused() {
        let (_reader, writer) = pipe().unwrap();
        assert!(matches!(EventFd::from_peer(writer), Err(OsError::BadMessage(_))));
        let null = std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
        assert!(EventFd::from_peer(null.into()).is_err());
    }
}
