//! A NIC's sleeping place over a bell word and an eventfd, wherever the word lies.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// The descriptor may be readable: it was armed, or signalled from here, since it was last drained. A drain costs a system
    /// call, and there is one before and one after each sleep.
    unclean: AtomicBool,
    /// Called before each sleep.
    before_sleep: Option<Box<dyn Fn() + Send + Sync>>,
    /// The longest sleep, where a peer could write to the word that no thread sleeps, and so keep the others from ringing.
    longest: Option<Duration>,
}

impl<W: HasBell> Bell<W> {
    pub(crate) fn new(holder: W) -> Bell<W> {
        let unclean = AtomicBool::new(false);
        Bell { holder, fd: OnceLock::new(), unclean, before_sleep: None, longest: None }
    }

    pub(crate) fn with_fd(
        holder: W,
        fd: EventFd,
        longest: Option<Duration>,
        before_sleep: impl Fn() + Send + Sync + 'static,
    ) -> Bell<W> {
        let (fd, unclean) = (OnceLock::from(fd), AtomicBool::new(false));
        Bell { holder, fd, unclean, before_sleep: Some(Box::new(before_sleep)), longest }
    }

    /// Wakes the owner even if a peer took its announcement and died.
    pub(crate) fn alarm(&self) {
        self.unclean.store(true, Ordering::SeqCst);
        self.holder.word().alarm(self.fd.get().map(AsFd::as_fd));
    }

    /// Wakes an owner that sleeps in poll or epoll: a peer without our descriptor asks for it.
    pub(crate) fn signal_fd(&self) {
        if let Some(fd) = self.fd.get() {
            self.unclean.store(true, Ordering::SeqCst);
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
        if let Some(before_sleep) = &self.before_sleep {
            before_sleep();
        }
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
        if let Some(before_sleep) = &self.before_sleep {
            before_sleep();
        }
        self.unclean.store(true, Ordering::SeqCst);
        self.holder.word().announce(FD);
        Ok(())
    }

    fn drain_fd(&self) {
        self.holder.word().disarm(FD);
        // A peer that saw the announcement may signal after this: that wakes the next sleeper for nothing, which drains.
        if let Some(fd) = self.fd.get()
            && self.unclean.swap(false, Ordering::SeqCst)
        {
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
