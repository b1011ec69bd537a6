//! A NIC's sleeping place over a bell word and an eventfd, wherever the word lies.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::Duration;

use viaduct_os::bell::{BellWord, FD, FUTEX};
use viaduct_os::eventfd::EventFd;
use viaduct_os::wait::Sleep;
use viaduct_via::Error;
use viaduct_via::provider::Sleeper;

/// Something that holds a bell word: a box, or a shared segment.
pub(crate) trait HasBell: Send + Sync {
    fn word(&self) -> &BellWord;
}

/// A [`Sleeper`] on such a word.
pub(crate) struct Bell<W> {
    holder: W,
    /// Made at once by providers whose peers need it, else when first asked for.
    fd: OnceLock<EventFd>,
    /// The longest sleep, where a peer could write to the word that no thread sleeps, and so keep the others from ringing.
    longest: Option<Duration>,
}

impl<W: HasBell> Bell<W> {
    pub(crate) fn new(holder: W) -> Bell<W> {
        Bell { holder, fd: OnceLock::new(), longest: None }
    }

    pub(crate) fn with_fd(holder: W, fd: EventFd, longest: Option<Duration>) -> Bell<W> {
        Bell { holder, fd: OnceLock::from(fd), longest }
    }

    /// Wakes the owner even if a peer took its announcement and died.
    pub(crate) fn alarm(&self) {
        self.holder.word().alarm(self.fd.get().map(AsFd::as_fd));
    }

    /// Wakes an owner that sleeps in poll or epoll: a peer without our descriptor asks for it.
    pub(crate) fn signal_fd(&self) {
        if let Some(fd) = self.fd.get() {
            fd.signal();
        }
    }

    fn eventfd(&self) -> Result<&EventFd, Error> {
        if let Some(fd) = self.fd.get() {
            return Ok(fd);
        }
        let fresh = EventFd::new()?;
        Ok(self.fd.get_or_init(|| fresh))
    }
}

impl<W: HasBell> Sleep for Bell<W> {
    fn announce(&self) -> u32 {
        self.holder.word().announce(FUTEX)
    }

    fn cancel(&self) {
        self.holder.word().disarm(FUTEX);
    }

    fn park(&self, ticket: u32, timeout: Option<Duration>) {
        self.holder.word().park(ticket, timeout.into_iter().chain(self.longest).min());
    }
}

impl<W: HasBell> Sleeper for Bell<W> {
    fn ring(&self) {
        self.holder.word().ring(self.fd.get().map(AsFd::as_fd));
    }

    fn arm_fd(&self) -> Result<(), Error> {
        self.eventfd()?;
        self.holder.word().announce(FD);
        Ok(())
    }

    fn drain_fd(&self) {
        self.holder.word().disarm(FD);
        if let Some(fd) = self.fd.get() {
            fd.drain();
        }
    }

    fn fd(&self) -> Result<BorrowedFd<'_>, Error> {
        Ok(self.eventfd()?.as_fd())
    }
}

/// A bell in this process alone.
#[derive(Default)]
pub(crate) struct LocalWord(BellWord);

impl HasBell for LocalWord {
    fn word(&self) -> &BellWord {
        &self.0
    }
}
