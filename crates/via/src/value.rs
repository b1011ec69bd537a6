//! Bytes by value: they lie anywhere and are taken before the call returns. No buffer, no completion, and no descriptor but that
//! of a message that the transport cannot take at once.

use crate::buffer::Buffer;
use crate::counters::Counter;
use crate::descriptor::{Descriptor, RemoteAddress};
use crate::error::Error;
use crate::handle::Vi;
use crate::nic::Nic;
use crate::provider::{Endpoint, Submit};
use crate::queues::Fault;
use crate::vi::{ViCore, ViState};

impl Nic {
    /// Sends a few bytes by value.
    ///
    /// # Errors
    /// [`Error::Busy`]: nothing was sent, poll and try again; [`Error::Limit`] for more than `max_inline` bytes;
    /// [`Error::InvalidState`] if it is not connected.
    #[inline]
    pub fn send_inline(&mut self, vi: Vi, bytes: &[u8], immediate: Option<u32>) -> Result<(), Error> {
        let call = Call { name: "send_inline", what: "bytes sent inline", count: SENT };
        let limit = |core: &ViCore| Ok(core.max_inline);
        self.by_value(vi, call, bytes.len(), limit, |endpoint| endpoint.submit_inline(bytes, immediate))
    }

    /// Sends bytes by value: the parts, one behind the other, are one message, and are the caller's again when it returns.
    /// Where the peer's posted receive can be reached the message is written straight into it, with one copy.
    ///
    /// # Errors
    /// [`Error::Busy`]: nothing was sent; poll and try again, or post a descriptor. A message of more than 384 KiB may be refused so
    /// as long as the peer has no receive posted that can be reached, and nothing wakes its sender when it has: that one
    /// is for a descriptor. [`Error::Limit`]: this connection cannot carry so much by value.
    pub fn send_value(&mut self, vi: Vi, parts: &[&[u8]], immediate: Option<u32>) -> Result<(), Error> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let limit = |core: &ViCore| {
            let most = core.endpoint.as_ref().map_or(0, |endpoint| endpoint.most_by_value());
            Ok(core.attributes.max_transfer_size.min(most) as usize)
        };
        let call = Call { name: "send_value", what: "bytes sent by value", count: SENT };
        self.by_value(vi, call, total, limit, |endpoint| {
            endpoint.submit_value(parts, total as u32, immediate)
        })
    }

    /// Sends a message of any length, whose parts are the caller's again when it returns: [by value](Self::send_value) where the
    /// transport takes it at once, else as a descriptor with a copy, which the NIC drops when it is done.
    ///
    /// Nothing comes back of a message that was sent. Of a copy that could not be, a completion of the send queue says why; what the
    /// transport had taken when its connection broke is told by the state of the VI alone.
    ///
    /// # Errors
    /// [`Error::QueueFull`]: as many copies are under way as the send queue has places, poll and try again, or [`Error::CqFull`];
    /// [`Error::Limit`] for more than the VI's `max_transfer_size`; [`Error::InvalidState`] if it is not connected.
    pub fn send(&mut self, vi: Vi, parts: &[&[u8]], immediate: Option<u32>) -> Result<(), Error> {
        match self.send_value(vi, parts, immediate) {
            Err(refused @ (Error::Busy | Error::Limit { .. })) => {
                self.post_copy(vi, parts, immediate, refused)
            }
            done => done,
        }
    }

    /// Posts a copy of what was refused by value, unless it would be refused in any form.
    #[cold]
    fn post_copy(
        &mut self,
        vi: Vi,
        parts: &[&[u8]],
        immediate: Option<u32>,
        refused: Error,
    ) -> Result<(), Error> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let most = self.vis.get(vi.0).map_or(0, |core| core.attributes.max_transfer_size);
        if total > most as usize {
            return Err(match refused {
                Error::Limit { what, .. } => Error::Limit { what, limit: u64::from(most) },
                other => other,
            });
        }
        self.progress_vi(vi);
        self.drop_copies(vi);
        let mut copy = Descriptor::send(Buffer::from(parts.concat())).unsignalled();
        let work = copy.work_mut();
        (work.immediate, work.is_copy) = (immediate, true);
        Ok(self.post_send(vi, copy)?)
    }

    /// Writes bytes to the peer's memory by value. [`Error::Busy`] says that it has to go by a descriptor, now or always. For the
    /// layers of this project that have a descriptor ready for that answer: streams, and Cashmere.
    #[doc(hidden)]
    pub fn write_inline(
        &mut self,
        vi: Vi,
        bytes: &[u8],
        to: RemoteAddress,
        immediate: Option<u32>,
    ) -> Result<(), Error> {
        let call = Call { name: "write_inline", what: "bytes written inline", count: WRITTEN };
        let limit = |core: &ViCore| match &core.remote {
            Some(remote) if remote.rdma_write => Ok(core.attributes.max_transfer_size as usize),
            _ => Err(Error::InvalidParameter("the remote VI does not allow RDMA writes")),
        };
        self.by_value(vi, call, bytes.len(), limit, |endpoint| endpoint.write_inline(bytes, to, immediate))
    }

    /// Hands bytes to the transport of a VI, if it is connected, nothing waits before them, and they are not too many.
    #[inline(always)]
    fn by_value(
        &mut self,
        vi: Vi,
        call: Call,
        len: usize,
        limit: impl FnOnce(&ViCore) -> Result<usize, Error>,
        hand_over: impl FnOnce(&mut dyn Endpoint) -> Submit,
    ) -> Result<(), Error> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        let Some(core) = self.vis.get_mut(vi.0) else { return Err(Error::InvalidHandle("VI")) };
        if core.endpoint.is_none() {
            return Err(not_connected(call.name, core.state));
        }
        let limit = limit(core)?;
        if len > limit {
            return Err(Error::Limit { what: call.what, limit: limit as u64 });
        }
        if core.send.waiting() > 0 {
            return Err(Error::Busy);
        }
        let Some(endpoint) = core.endpoint.as_mut() else { return Err(not_connected(call.name, core.state)) };
        match hand_over(&mut **endpoint) {
            Submit::Done | Submit::Pending => {
                self.counters.add(call.count.0, 1);
                self.counters.add(call.count.1, len as u64);
                Ok(())
            }
            Submit::Busy => Err(Error::Busy),
            Submit::Failed(status) => {
                self.break_vi(vi, if call.count == WRITTEN { Fault::Remote(status) } else { Fault::Lost });
                Err(not_connected(call.name, ViState::Error))
            }
        }
    }
}

/// A call by value, as errors and counters name it.
#[derive(Clone, Copy)]
struct Call {
    name: &'static str,
    what: &'static str,
    /// Of calls, and of their bytes.
    count: (Counter, Counter),
}

const SENT: (Counter, Counter) = (Counter::InlineSends, Counter::BytesSent);
const WRITTEN: (Counter, Counter) = (Counter::RdmaWrites, Counter::BytesWritten);

#[cold]
pub(crate) fn not_connected(call: &'static str, found: ViState) -> Error {
    Error::InvalidState { call, wanted: "connected", found }
}
