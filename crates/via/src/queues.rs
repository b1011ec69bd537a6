//! The two queues of a VI as its endpoint sees them while it is polled.

use std::fmt;

use crate::descriptor::{Op, Status, Work};
use crate::handle::ProtectionTag;
use crate::queue::{Outcome, WorkQueue};
use crate::raw::WatchWord;
use crate::srq::SrqCore;

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The remote side disconnected in good order.
    Disconnected,
    /// The remote process died, or the link did.
    Lost,
    /// A message met no receive descriptor.
    ReceiveQueueEmpty,
    /// A message was longer than the receive descriptor it met.
    TooLong,
    /// A message met a receive descriptor whose memory it may not use: beyond the end of the region, or of another tag.
    ReceiveProtection,
    /// A message met a receive descriptor that contradicts itself.
    BadReceive,
    /// The remote side wrote nonsense into shared memory or broke the protocol.
    Protocol,
    /// The remote side reported that one of our descriptors failed there.
    Remote(Status),
    /// A peer's RDMA operation was refused here.
    RdmaRefused,
}

impl Fault {
    /// Why a reliable connection ends whose message met a receive that ended with `status`.
    pub fn of_receive(status: Status) -> Fault {
        match status {
            Status::LengthError => Fault::TooLong,
            Status::ProtectionError => Fault::ReceiveProtection,
            _ => Fault::BadReceive,
        }
    }
}

/// Access to the ledger of one VI during [`Endpoint::poll`](crate::provider::Endpoint::poll).
pub struct Queues<'a> {
    pub(crate) send: &'a mut WorkQueue,
    pub(crate) recv: &'a mut WorkQueue,
    pub(crate) srq: Option<&'a mut SrqCore>,
    pub(crate) ptag: ProtectionTag,
    pub(crate) reads_in_flight: &'a mut u32,
    pub(crate) fault: Option<Fault>,
    pub(crate) dropped: u32,
    pub(crate) received: u32,
    pub(crate) received_bytes: u64,
    pub(crate) watch: WatchWord,
    pub(crate) stalled: bool,
}

impl fmt::Debug for Queues<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queues")
            .field("ptag", &self.ptag)
            .field("received", &self.received)
            .field("stalled", &self.stalled)
            .finish_non_exhaustive()
    }
}

impl Queues<'_> {
    /// The receive descriptor the next message goes to.
    #[inline]
    pub fn next_recv(&mut self) -> Option<&mut Work> {
        if self.recv.waiting() == 0
            && let Some(srq) = self.srq.as_deref_mut()
            && !self.recv.is_full()
        {
            self.recv.push(srq.draw(self.ptag)?);
        }
        self.recv.at_cursor()
    }

    /// Whether a message must stay where it is because the VI's own ledger is full of unreaped completions.
    #[inline]
    pub fn must_hold(&self) -> bool {
        self.srq.is_some() && self.recv.waiting() == 0 && self.recv.is_full()
    }

    /// Completes the receive descriptor that [`next_recv`](Self::next_recv) gave.
    #[inline]
    pub fn complete_recv(&mut self, op: Op, status: Status, length: u32, immediate: Option<u32>) {
        self.recv.finish_cursor(Outcome { op, status, length, immediate });
        self.received += 1;
        self.received_bytes += u64::from(length);
    }

    /// Completes a send-queue descriptor that was pending.
    #[inline]
    pub fn complete_send(&mut self, index: u32, status: Status, length: u32) {
        let Some(work) = self.send.in_flight(index) else { return };
        let read = work.op.reads_remote();
        if self.send.finish(index, status, length) && read {
            *self.reads_in_flight -= 1;
        }
    }

    /// The words of a pending send-queue descriptor.
    pub fn pending_send(&mut self, index: u32) -> Option<&mut Work> {
        self.send.in_flight(index)
    }

    /// The peer takes nothing more, and messages that it sent before wait here for room: everything in the send queue that
    /// is not done is flushed at once, and the connection goes on until those messages were taken. The endpoint uses no
    /// memory of these descriptors any more.
    #[cold]
    pub fn flush_sends(&mut self) {
        self.send.flush();
        *self.reads_in_flight = 0;
    }

    /// Receive descriptors completed during this poll.
    #[inline]
    pub fn received(&self) -> u32 {
        self.received
    }

    /// An unreliable message was dropped for want of a receive descriptor.
    pub fn dropped(&mut self) {
        self.dropped += 1;
    }

    /// Something has arrived that cannot be taken yet. The peer will not announce it once more, so the NIC polls
    /// again.
    #[inline]
    pub fn stalled(&mut self) {
        self.stalled = true;
    }

    /// Nothing is under way but what this word will show.
    #[inline]
    pub fn watch(&mut self, watch: WatchWord) {
        self.watch = watch;
    }

    /// The connection is over; what is still posted will be flushed.
    pub fn broken(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }
}
