//! What a provider does: move bytes and report. Queues, ledger, completion queues and handles are the model's.
//!
//! A [`Provider`] belongs to one [`Nic`](crate::Nic); each connection it makes is an [`Endpoint`], bound to a VI when
//! the connection stands. Providers are not called from several threads; if one runs threads of its own, it reports
//! through [`Signal`] and [`Provider::next_event`].

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::Duration;

use crate::address::NetAddress;
use crate::attributes::{NicAttributes, Reach, RemoteAttributes};
use crate::counters::CounterSlot;
use crate::descriptor::{RemoteAddress, Work};
use crate::error::Error;
use crate::handle::Vi;
use crate::memory::{MemHandle, RegionInfo};
use crate::queues::Queues;
use crate::raw::{Locator, RawMemory, Watch};

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
    /// Taken; [`Queues::complete_send`] will be called for it.
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

/// What a VI's connection asks of the transport.
pub trait Endpoint: Send {
    /// Hands over the send-queue descriptor with this ledger index.
    fn submit(&mut self, work: &mut Work, index: u32) -> Submit;

    /// Sends up to [`NicAttributes::max_inline`] bytes at once, or is busy.
    fn submit_inline(&mut self, bytes: &[u8], immediate: Option<u32>) -> Submit;

    /// Writes bytes to remote memory at once, from wherever they lie, or is busy: then the same goes by a descriptor. With
    /// immediate data it uses up a receive of the peer. Transports that cannot do it at once are always busy.
    fn write_inline(&mut self, bytes: &[u8], to: RemoteAddress, immediate: Option<u32>) -> Submit {
        let _ = (bytes, to, immediate);
        Submit::Busy
    }

    /// Receives of so many bytes and more are told of; shorter ones are not.
    fn tell_receives_from(&self) -> u32;

    /// Tells of a receive descriptor that joined the queue: the `number`th of this connection, from 0, modulo 2^32.
    fn recv_posted(&mut self, work: &Work, number: u32);

    /// The shortest way for a message: copies the next one into this descriptor, which is the next to be used, and says
    /// what it was. None if no message is there, or it is not that simple; then nothing was done.
    #[inline]
    fn take_small(&mut self, work: &Work) -> Option<Small> {
        let _ = work;
        None
    }

    /// After [`take_small`](Self::take_small): what shows the message after that one, if nothing else is under way.
    fn watch(&self) -> Watch {
        Watch::NONE
    }

    /// Moves things on: delivers what arrived and completes what was pending. One that takes no message has looked at
    /// everything, the peer's end included; one that takes some may leave the rest for the next poll.
    fn poll(&mut self, queues: &mut Queues<'_>);

    /// Whether arrivals must be announced through [`Provider::ready`], because nobody looks at this endpoint.
    fn set_armed(&mut self, armed: bool);

    /// Ends the connection; the peer is told. When it returns, the transport no longer touches any buffer.
    fn close(&mut self);

    /// Name of the provider that carries this connection.
    fn provider(&self) -> &'static str;

    /// How the ends of this connection reach each other.
    fn reach(&self) -> Reach;
}

/// News from connection set-up.
pub enum Event {
    /// Somebody asks for a connection.
    Incoming {
        /// Where.
        listener: ListenId,
        /// To be named in the answer.
        request: RequestId,
        /// Who asks.
        from: NetAddress,
        /// What the remote VI is.
        remote: RemoteAttributes,
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

/// A source of connections and directly shareable memory.
pub trait Provider: Send {
    /// Short name: `shm`, `loopback`.
    fn name(&self) -> &'static str;

    /// What it offers.
    fn attributes(&self) -> NicAttributes;

    /// Counters of this NIC.
    fn counters(&self) -> CounterSlot;

    /// Flags shared with the provider's threads.
    fn signal(&self) -> Arc<Signal>;

    /// How to sleep until something happens.
    fn sleeper(&self) -> Arc<dyn Sleeper>;

    /// Makes memory that peers can reach directly.
    fn allocate(&mut self, len: usize) -> Result<SharedMemory, Error>;

    /// A region was registered.
    fn publish(&mut self, handle: MemHandle, region: &RegionInfo) -> Result<(), Error>;

    /// A region is withdrawn. When it returns, no peer touches it any more.
    fn withdraw(&mut self, handle: MemHandle);

    /// Whether a connection with a peer at this address would be [direct](Reach::Direct), as far as can be known before
    /// the peer has answered.
    fn is_direct(&self, _remote: &NetAddress) -> bool {
        self.attributes().direct
    }

    /// Whether the connection that a peer asks for would be [direct](Reach::Direct).
    fn would_be_direct(&self, _request: RequestId) -> bool {
        self.attributes().direct
    }

    /// Starts to listen; up to `backlog` requests wait for an answer, more are told that nobody is there.
    fn listen(&mut self, address: &NetAddress, backlog: usize) -> Result<ListenId, Error>;

    /// Somebody waits (or no longer waits) at a listener whose backlog is 0.
    fn set_waiting(&mut self, listener: ListenId, waiting: bool);

    /// Stops listening; requests that come later are told that nobody is there. Those reported before are answered
    /// by `accept` or `reject`, as ever.
    fn unlisten(&mut self, listener: ListenId);

    /// Asks for a connection; the answer is an [`Event`].
    fn request(
        &mut self,
        vi: Vi,
        local: Option<&NetAddress>,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error>;

    /// Asks for a connection with a peer who asks for one with us (addresses crossed); the answer is an [`Event`].
    fn request_peer(
        &mut self,
        vi: Vi,
        local: &NetAddress,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error>;

    /// Gives up a request. No event that belongs to it comes after this has returned.
    fn cancel(&mut self, vi: Vi);

    /// Says yes to a request.
    fn accept(
        &mut self,
        request: RequestId,
        vi: Vi,
        ours: &RemoteAttributes,
    ) -> Result<Box<dyn Endpoint>, Error>;

    /// Says no to a request.
    fn reject(&mut self, request: RequestId, private_data: &[u8]) -> Result<(), Error>;

    /// The next piece of news; only asked when [`Signal::take_events`] said so.
    fn next_event(&mut self) -> Option<Event>;

    /// Collects the VIs whose armed endpoints have something.
    fn ready(&mut self, into: &mut Vec<Vi>);
}

/// A thread is about to park.
pub(crate) const PARKING: u32 = 1;
/// The pollable descriptor is armed.
pub(crate) const FD_ARMED: u32 = 2;
/// There is something for [`Provider::next_event`].
const NEWS: u32 = 4;

/// Flags by which a provider's threads catch the NIC's eye.
#[derive(Debug, Default)]
pub struct Signal {
    /// [`PARKING`], [`FD_ARMED`], [`NEWS`]: one word, so that a poll needs one look.
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

    /// Whether there is no news and nobody is about to sleep: what arrived is all there is to see.
    #[inline]
    pub(crate) fn is_calm(&self) -> bool {
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
        // Before the barrier: who raises a flag and does not see this has raised it before the barrier.
        self.attention.fetch_or(how, Ordering::Relaxed);
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let ticket = barrier();
        self.passed.fetch_max(number, Ordering::Relaxed);
        ticket
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

/// A place to sleep until a peer, or a thread of the provider, rings.
pub trait Sleeper: Send + Sync {
    /// From now on whoever has news rings. To be followed by a last look. The ticket is for [`park`](Self::park).
    fn announce(&self) -> u32;

    /// Awake again.
    fn cancel(&self);

    /// Sleeps until rung since the announcement that gave the ticket, but not longer than `timeout`; may return early.
    fn park(&self, ticket: u32, timeout: Option<Duration>);

    /// Wakes whoever is parked.
    fn ring(&self);

    /// Arms the pollable descriptor: it becomes readable at the next ring. To be followed by a last look.
    fn arm_fd(&self) -> Result<(), Error>;

    /// Makes the pollable descriptor unreadable again.
    fn drain_fd(&self);

    /// The pollable descriptor.
    fn fd(&self) -> Result<BorrowedFd<'_>, Error>;
}
