//! What a provider does: move bytes and report. Queues, ledger, completion queues and handles are the model's.
//!
//! A [`Provider`] belongs to one [`Nic`](crate::Nic); each connection it makes is an [`Endpoint`], bound to a VI when
//! the connection stands. Providers are not called from several threads; if one runs threads of its own, it reports
//! through [`Signal`] and [`Provider::next_event`].

#[allow(unsafe_code)]
mod raw;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::thread::Thread;
use viaduct_os::wait::Sleep;

use crate::address::NetAddress;
use crate::attributes::{Reach, RemoteAttributes};
use crate::error::Error;
use crate::handle::Vi;
use crate::raw::{Locator, RawMemory};

pub use raw::{Endpoint, Provider};

/// Names a listening address within a provider.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ListenId(pub u64);

/// Names an incoming connection request within a provider.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId(pub u64);

/// Memory that peers can reach directly, fresh from the provider's allocator.
#[derive(Debug)]
pub struct SharedMemory {
    /// The bytes.
    pub memory: RawMemory,
    /// Where they lie.
    pub locator: Option<Locator>,
}

/// How a message is handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Submit {
    /// Carried out; the buffers are free.
    Done,
    /// Taken; [`Queues::complete_send`](crate::Queues::complete_send) will be called for it.
    Pending,
    /// Not now; offer it again after some progress.
    Busy,
    /// It cannot be carried out; the descriptor ends so and, on a reliable VI, the connection with it.
    Failed(crate::Status),
}

/// A message that was taken by [`Endpoint::take_small`]: its length, and what came along. One word, so that it is handed over in
/// registers.
///
/// ```text
///   63          32 31          30         0
///   immediate data there is    length
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Small(u64);

const HAS_IMMEDIATE: u64 = 1 << 31;

impl Small {
    /// So many bytes, less than 2 GiB, and immediate data.
    #[inline(always)]
    pub fn new(length: u32, immediate: Option<u32>) -> Small {
        let along = immediate.map_or(0, |immediate| u64::from(immediate) << 32 | HAS_IMMEDIATE);
        Small(along | u64::from(length) & (HAS_IMMEDIATE - 1))
    }

    /// Bytes.
    #[inline(always)]
    pub fn length(self) -> u32 {
        (self.0 & (HAS_IMMEDIATE - 1)) as u32
    }

    /// What came along.
    #[inline(always)]
    pub fn immediate(self) -> Option<u32> {
        (self.0 & HAS_IMMEDIATE != 0).then_some((self.0 >> 32) as u32)
    }
}

/// News from connection set-up.
pub enum Event {
    /// A client asks for a connection.
    Incoming {
        /// Where.
        listener: ListenId,
        /// To be named in the answer.
        request: RequestId,
        /// Address of the client.
        from: NetAddress,
        /// What the remote VI is.
        remote: RemoteAttributes,
        /// How the connection would reach it.
        reach: Reach,
    },
    /// A connection we asked for stands.
    Established {
        /// Our VI.
        vi: Vi,
        /// Its transport.
        endpoint: Box<dyn Endpoint>,
        /// What the remote VI is.
        remote: RemoteAttributes,
    },
    /// A connection we asked for will not be.
    Refused {
        /// Our VI.
        vi: Vi,
        /// Why.
        error: Error,
    },
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Incoming { listener, request, from, .. } => f
                .debug_struct("Incoming")
                .field("listener", listener)
                .field("request", request)
                .field("from", from)
                .finish_non_exhaustive(),
            Event::Established { vi, remote, .. } => {
                f.debug_struct("Established").field("vi", vi).field("remote", remote).finish_non_exhaustive()
            }
            Event::Refused { vi, error } => {
                f.debug_struct("Refused").field("vi", vi).field("error", error).finish()
            }
        }
    }
}

/// A thread is about to park.
pub(crate) const PARKING: u32 = 1;
/// The pollable descriptor is armed.
pub(crate) const FD_ARMED: u32 = 2;
/// There is something for [`Provider::next_event`].
const NEWS: u32 = 4;
/// A retired VI still sends: polls go the long way, which moves it on.
const LEAVING: u32 = 8;

/// Flags by which a provider's threads catch the NIC's eye.
#[derive(Debug, Default)]
pub struct Signal {
    /// [`PARKING`], [`FD_ARMED`], [`NEWS`], [`LEAVING`]: one word, so that a poll needs one look.
    attention: AtomicU32,
    /// Barriers begun by those about to sleep; they are numbered from 1.
    begun: AtomicU64,
    /// The highest number of a barrier that was passed.
    passed: AtomicU64,
    watcher: Mutex<Option<Thread>>,
}

impl Signal {
    /// There is news to be fetched by [`Provider::next_event`], or a peer is gone. The caller rings the bell as well.
    pub fn post_events(&self) {
        self.attention.fetch_or(NEWS, Ordering::Release);
        if let Some(thread) = self.watcher.lock().unwrap_or_else(|e| e.into_inner()).as_ref() {
            thread.unpark();
        }
    }

    /// A thread to unpark at every piece of news.
    pub(crate) fn set_watcher(&self, thread: Option<Thread>) {
        *self.watcher.lock().unwrap_or_else(|e| e.into_inner()) = thread;
    }

    /// Whether there is news.
    #[inline]
    pub fn has_events(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & NEWS != 0
    }

    /// Whether there was news since the last call.
    #[inline]
    pub fn take_events(&self) -> bool {
        self.has_events() && self.attention.fetch_and(!NEWS, Ordering::Acquire) & NEWS != 0
    }

    /// Whether there is no news, no thread is about to sleep and no retired VI still sends: what arrived is all there is to
    /// see.
    #[inline]
    pub(crate) fn is_undisturbed(&self) -> bool {
        self.attention.load(Ordering::Relaxed) == 0
    }

    /// Whether the NIC is about to sleep, so that a poll must look everywhere. A provider that raises a flag for its
    /// peer meanwhile rings the bell, because the barrier that makes it visible was before: the sleeper begins again.
    #[inline]
    pub fn is_announced(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & (PARKING | FD_ARMED) != 0
    }

    /// Carries out an announcement, which contains a barrier on every CPU.
    pub(crate) fn announce<T>(&self, how: u32, barrier: impl FnOnce() -> T) -> T {
        // Before the barrier: a thread that raises a flag and does not see this has raised it before the barrier.
        self.attention.fetch_or(how, Ordering::Relaxed);
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let ticket = barrier();
        self.passed.fetch_max(number, Ordering::Relaxed);
        ticket
    }

    pub(crate) fn set_leaving(&self, leaving: bool) {
        match leaving {
            true => self.attention.fetch_or(LEAVING, Ordering::Relaxed),
            false => self.attention.fetch_and(!LEAVING, Ordering::Relaxed),
        };
    }

    pub(crate) fn take_back(&self, how: u32) {
        self.attention.fetch_and(!how, Ordering::Relaxed);
    }

    /// The number of the last barrier that may have begun before what the caller stored just now was visible.
    pub(crate) fn barriers_begun(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.begun.load(Ordering::Relaxed)
    }

    /// The number of the last barrier that was passed.
    pub(crate) fn barriers_passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }
}

/// A place to sleep until a peer, or a thread of the provider, rings: threads sleep as [`Sleep`] says, event loops on a
/// descriptor.
pub trait Sleeper: Sleep + Send + Sync {
    /// Wakes the threads that are parked.
    fn ring(&self);

    /// Arms the pollable descriptor: it becomes readable at the next ring. To be followed by a last look.
    fn arm_fd(&self) -> Result<(), Error>;

    /// Makes the pollable descriptor unreadable again.
    fn drain_fd(&self);

    /// The pollable descriptor.
    fn fd(&self) -> Result<BorrowedFd<'_>, Error>;
}
