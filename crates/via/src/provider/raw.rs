//! The two promises of a provider: traits that are unsafe to implement, because the model trusts them with addresses. No method
//! has a body of its own: a wrapper that forgets to pass one on does not compile.

use std::ops::Range;
use std::sync::Arc;

use viaduct_os::segment::Segment;

use super::{Event, ListenId, RequestId, SharedMemory, Signal, Sleeper, Small, Submit};
use crate::address::NetAddress;
use crate::attributes::{NicAttributes, Reach, RemoteAttributes};
use crate::counters::CounterSlot;
use crate::descriptor::{RemoteAddress, Work};
use crate::error::Error;
use crate::handle::Vi;
use crate::memory::{MemHandle, RegionInfo};
use crate::queues::Queues;
#[cfg(doc)]
use crate::raw::RawMemory;
use crate::raw::WatchWord;

/// What a VI's connection asks of the transport.
///
/// # Safety
/// The model hands over addresses of the program's memory, and takes the implementation's word for when it is through with
/// them. An implementation
/// - reads and writes only the first [`Work::total`] bytes of a descriptor's segments, in their order, and only from the time
///   it is handed over (or, for a receive, is the next one, or was told of) until it is completed or [`close`](Self::close)
///   returns; segments of sends and writes it only reads;
/// - judges a message by [`Work::judge_message`] before a byte of it goes into a receive;
/// - reports through [`Queues`] only what happened, and hands out [`WatchWord`]s of words that live as long as it says there.
pub unsafe trait Endpoint: Send {
    /// Hands over the send-queue descriptor with this ledger index.
    fn submit(&mut self, work: &mut Work, index: u32) -> Submit;

    /// Sends up to [`NicAttributes::max_inline`] bytes at once, or is busy.
    fn submit_inline(&mut self, bytes: &[u8], immediate: Option<u32>) -> Submit;

    /// Writes bytes to remote memory at once, from wherever they lie, or is busy: then the write goes by a descriptor. With
    /// immediate data it uses up a receive of the peer. Transports that cannot do it at once are always busy.
    fn write_inline(&mut self, bytes: &[u8], to: RemoteAddress, immediate: Option<u32>) -> Submit;

    /// The longest message that [`submit_value`](Self::submit_value) can ever take.
    fn most_by_value(&self) -> u32;

    /// Sends all these bytes, `total` in sum, as one message, or is busy and sends none of them. Nothing of the parts is used
    /// after it has returned.
    fn submit_value(&mut self, parts: &[&[u8]], total: u32, immediate: Option<u32>) -> Submit;

    /// Wakes the peer's owner, if it sleeps, after everything that was carried out before.
    fn nudge(&mut self);

    /// Whether [`read_private`](Self::read_private) works with this peer.
    fn reads_private(&self) -> bool;

    /// Copies memory of the peer's process, which it need not have registered.
    fn read_private(&mut self, address: u64, into: &mut [u8]) -> Result<(), Error>;

    /// Receives of so many bytes and more are told of; shorter ones are not.
    fn tell_receives_from(&self) -> u32;

    /// Tells of a receive descriptor that joined the queue: the `number`th of this connection, from 0, modulo 2^32.
    fn recv_posted(&mut self, work: &Work, number: u32);

    /// The fast path of a message: copies the next one into this descriptor, which is the next to be used, and says
    /// what it was. Returns None, and does nothing, if no message is there or it is not that simple; transports without a
    /// fast path always do.
    fn take_small(&mut self, work: &Work) -> Option<Small>;

    /// After [`take_small`](Self::take_small): what shows the message after that one, if nothing else is under way;
    /// [`WatchWord::NONE`] if no word shows it.
    fn watch(&self) -> WatchWord;

    /// Moves things on: delivers what arrived and completes what was pending. One that takes no message has looked at
    /// everything, the peer's end included; one that takes some may leave the rest for the next poll.
    fn poll(&mut self, queues: &mut Queues<'_>);

    /// Whether arrivals must be announced through [`Provider::ready`], because the NIC does not poll this endpoint.
    fn set_armed(&mut self, armed: bool);

    /// Ends the connection; the peer is told. When it returns, the transport no longer touches any buffer.
    fn close(&mut self);

    /// Name of the provider that carries this connection.
    fn provider(&self) -> &'static str;

    /// How the ends of this connection reach each other.
    fn reach(&self) -> Reach;
}

/// A source of connections and directly shareable memory.
///
/// # Safety
/// The model publishes addresses of the program's memory, and frees the memory when they are withdrawn. An implementation
/// - lets peers reach a region only between [`publish`](Self::publish) and the return of [`withdraw`](Self::withdraw), within
///   its bounds, and by the rights and the tag that it was published with;
/// - gives memory out of [`allocate`](Self::allocate) and [`share`](Self::share) that is valid as [`RawMemory`] demands, with a
///   true locator.
pub unsafe trait Provider: Send {
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

    /// Makes memory that peers can reach directly, at a multiple of `align`: 0, or a power of two.
    fn allocate(&mut self, len: usize, align: usize) -> Result<SharedMemory, Error>;

    /// Makes bytes of a caller's segment reachable, if the provider has peers that map memory; else they are as any memory
    /// of this process. The segment is mapped for reading and writing and has its descriptor, and the range lies in it.
    fn share(&mut self, segment: &Arc<Segment>, range: Range<usize>) -> Result<SharedMemory, Error>;

    /// A region was registered.
    fn publish(&mut self, handle: MemHandle, region: &RegionInfo) -> Result<(), Error>;

    /// A region is withdrawn. When it returns, no peer touches it any more.
    fn withdraw(&mut self, handle: MemHandle);

    /// How a connection with a peer at this address would reach it, as far as can be known before the peer has answered.
    fn reach(&self, remote: &NetAddress) -> Reach;

    /// Starts to listen; up to `backlog` requests wait for an answer, more are answered with [`Error::NoRoom`], or with
    /// [`Error::NoMatch`] if the backlog is 0.
    fn listen(&mut self, address: &NetAddress, backlog: usize) -> Result<ListenId, Error>;

    /// A thread waits (or no thread waits any more) at a listener whose backlog is 0.
    fn set_waiting(&mut self, listener: ListenId, waiting: bool);

    /// Stops listening; requests that come later are answered with [`Error::NoMatch`]. Those reported before are
    /// answered by `accept` or `reject`, as ever.
    fn unlisten(&mut self, listener: ListenId);

    /// Asks for a connection; the answer is an [`Event`].
    fn request(
        &mut self,
        vi: Vi,
        local: Option<&NetAddress>,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error>;

    /// Asks for a connection with a peer that asks for one with us (addresses crossed); the answer is an [`Event`].
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
