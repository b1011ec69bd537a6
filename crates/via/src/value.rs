//! Messages by value: bytes that lie anywhere, taken before the call returns.

use crate::counters::Counter;
use crate::error::Error;
use crate::handle::Vi;
use crate::nic::Nic;
use crate::post::not_connected;
use crate::provider::Submit;
use crate::queues::Fault;
use crate::vi::ViState;

impl Nic {
    /// Sends bytes by value: the parts, one behind the other, are one message. No buffer, no descriptor, no completion; when
    /// it returns the parts are the caller's again. Where the peer's posted receive can be reached the message is written
    /// straight into it, with one copy.
    ///
    /// # Errors
    /// [`Error::Busy`]: nothing was sent; poll and try again, or post a descriptor. A message of more than 384 KiB may be refused so
    /// as long as the peer has no receive posted that can be reached, and nothing wakes its sender when it has: that one
    /// is for a descriptor. [`Error::Limit`]: this connection cannot carry so much by value.
    pub fn send_value(&mut self, vi: Vi, parts: &[&[u8]], immediate: Option<u32>) -> Result<(), Error> {
        self.check_fork()?;
        let core = self.vis.get_mut(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        let Some(endpoint) = core.endpoint.as_mut() else {
            return Err(not_connected("send_value", core.state));
        };
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let limit = core.attributes.max_transfer_size.min(endpoint.most_by_value());
        let Some(total) = u32::try_from(total).ok().filter(|total| *total <= limit) else {
            return Err(Error::Limit { what: "bytes sent by value", limit: u64::from(limit) });
        };
        if core.send.waiting() > 0 {
            return Err(Error::Busy);
        }
        match endpoint.submit_value(parts, total, immediate) {
            Submit::Done | Submit::Pending => {
                self.counters.add(Counter::InlineSends, 1);
                self.counters.add(Counter::BytesSent, u64::from(total));
                Ok(())
            }
            Submit::Busy => Err(Error::Busy),
            Submit::Failed(_) => {
                self.break_vi(vi, Fault::Lost);
                Err(not_connected("send_value", ViState::Error))
            }
        }
    }
}
