//! Waiting for many descriptors, for a control thread.
//!
//! Thin: set-up sockets, pidfds and eventfds of the progress thread (design, sections 2.6 and 3), each with a token of
//! the caller's. Never on the data path, which waits by [`crate::wait`].

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::error::OsError;

/// What to wait for. A hang-up or an error is always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something can be read (or accepted).
    Read,
    /// There is room to write.
    Write,
    /// Both.
    Both,
    /// Something can be read; reported once per arrival rather than until it is read.
    ReadEdge,
}

/// One descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token it was added with.
    pub token: u64,
    /// Something can be read.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// The other end is gone, or the descriptor is in error.
    pub hangup: bool,
}

/// A set of descriptors. Any thread may add and remove while another waits.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    /// An empty set.
    ///
    /// # Errors
    /// [`OsError::Fds`] when descriptors have run out.
    pub fn new() -> Result<Epoll, OsError> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| OsError::sys("epoll_create", e))?;
        Ok(Epoll { fd })
    }

    /// Adds a descriptor under `token`. It must be taken out with [`del`](Self::del) before it is closed: duplicates in
    /// other processes keep a closed one in the set.
    ///
    /// # Errors
    /// The kernel's: `EEXIST` if it is in the set, `ENOSPC` beyond the user's limit of watches.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<(), OsError> {
        epoll::add(&self.fd, fd, epoll::EventData::new_u64(token), flags(interest))
            .map_err(|e| OsError::sys("epoll_ctl(ADD)", e))
    }

    /// Changes what a descriptor in the set is watched for.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` if it is not in the set.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<(), OsError> {
        epoll::modify(&self.fd, fd, epoll::EventData::new_u64(token), flags(interest))
            .map_err(|e| OsError::sys("epoll_ctl(MOD)", e))
    }

    /// Takes a descriptor out.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` if it is not in the set.
    pub fn del(&self, fd: impl AsFd) -> Result<(), OsError> {
        epoll::delete(&self.fd, fd).map_err(|e| OsError::sys("epoll_ctl(DEL)", e))
    }

    /// Waits at most `timeout` (`None`: without limit) and appends what is ready to `events`; says how many that were.
    ///
    /// 0 also when a signal interrupted the wait.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&self, events: &mut Vec<Event>, timeout: Option<Duration>) -> Result<usize, OsError> {
        let timeout = timeout.map(round_up);
        let mut space = [MaybeUninit::uninit(); 64];
        let ready = match epoll::wait(&self.fd, &mut space, timeout.as_ref()) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => return Ok(0),
            Err(e) => return Err(OsError::sys("epoll_wait", e)),
        };
        events.extend(ready.iter().map(|event| {
            // Copied out, as the kernel's structure is packed.
            let (set, data) = (event.flags, event.data);
            Event {
                token: data.u64(),
                readable: set.contains(epoll::EventFlags::IN),
                writable: set.contains(epoll::EventFlags::OUT),
                hangup: set
                    .intersects(epoll::EventFlags::HUP | epoll::EventFlags::RDHUP | epoll::EventFlags::ERR),
            }
        }));
        Ok(ready.len())
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn flags(interest: Interest) -> epoll::EventFlags {
    epoll::EventFlags::RDHUP
        | match interest {
            Interest::Read => epoll::EventFlags::IN,
            Interest::Write => epoll::EventFlags::OUT,
            Interest::Both => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            Interest::ReadEdge => epoll::EventFlags::IN | epoll::EventFlags::ET,
        }
}

/// Whole milliseconds, upwards (a wait must not turn into a loop just before its end), within what the call takes.
fn round_up(timeout: Duration) -> Timespec {
    let ms = timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i64;
    Timespec { tv_sec: ms / 1000, tv_nsec: (ms % 1000) * 1_000_000 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;
    use crate::fdpass::Channel;

    #[test]
    fn tokens_come_back_and_removed_ones_do_not() {
        let (set, a, b) = (Epoll::new().unwrap(), EventFd::new().unwrap(), EventFd::new().unwrap());
        set.add(&a, u64::MAX, Interest::Read).unwrap();
        set.add(&b, 2, Interest::Read).unwrap();
        assert!(set.add(&a, 1, Interest::Read).is_err());
        let mut events = Vec::new();
        assert_eq!(set.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
        a.signal();
        b.signal();
        set.del(&b).unwrap();
        assert_eq!(set.wait(&mut events, Some(Duration::MAX)).unwrap(), 1);
        assert_eq!(events, [Event { token: u64::MAX, readable: true, writable: false, hangup: false }]);
    }

    #[test]
    fn hang_up_is_reported() {
        let (set, (a, b)) = (Epoll::new().unwrap(), Channel::pair().unwrap());
        set.add(&a, 7, Interest::Read).unwrap();
        set.modify(&a, 8, Interest::ReadEdge).unwrap();
        drop(b);
        let mut events = Vec::new();
        set.wait(&mut events, None).unwrap();
        assert!(events[0].token == 8 && events[0].hangup);
    }

    #[test]
    fn timeouts_round_up() {
        assert_eq!(round_up(Duration::from_nanos(1)).tv_nsec, 1_000_000);
        assert_eq!(round_up(Duration::from_millis(1500)), Timespec { tv_sec: 1, tv_nsec: 500_000_000 });
    }
}
