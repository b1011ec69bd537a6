//! `MSG_PEEK` with `MSG_WAITALL`: waits until all that was asked for is there, and leaves it there.

use std::sync::atomic::Ordering;

use viaduct_os::bare::{Errno, calls, sockets};

use crate::companion;
use crate::wait::{self, Asleep, Deadline, Want};

use super::{Call, Look, ReceiveStep, comes_by_ring};

/// Between two looks at bytes that come by TCP, in nanoseconds: the kernel calls a socket readable that has any.
const NAP: u64 = 1_000_000;

impl Call<'_> {
    /// Gives the buffers what is there once it is `total`, or no more will come: the stream has ended, time is over, a signal has
    /// come, the sender waits for room, or the rest comes another way.
    pub(super) fn peek_all(&self, total: usize) -> Result<usize, Errno> {
        let limit = sockets::time_limit(self.fd, libc::SO_RCVTIMEO);
        let deadline = Deadline::after(limit);
        loop {
            let asleep = Asleep::announce(self.slot, self.view.header(), Want::Bytes);
            let step = self.step(0, Look::Full);
            let (have, error) = match step {
                ReceiveStep::Moved(count) => (count, Errno(libc::EAGAIN)),
                ReceiveStep::Empty => (0, Errno(libc::EAGAIN)),
                ReceiveStep::Failed(error) => (0, error),
                ReceiveStep::End => (0, Errno(0)),
            };
            let waits = matches!(step, ReceiveStep::Moved(_) | ReceiveStep::Empty)
                && have < total
                && !self.is_all(have);
            let slept = match waits {
                true if comes_by_ring(self.slot) || have == 0 => asleep.sleep(self.fd, deadline.left()),
                true if deadline.left() != Some(0) => calls::poll(&mut [], Some(NAP), None).map(|_| 1),
                _ => Ok(0),
            };
            asleep.wake();
            match slept {
                Ok(0) if have > 0 || step == ReceiveStep::End => return Ok(have),
                Ok(0) => return Err(error),
                Err(Errno(libc::EINTR)) if !wait::interrupts(limit.is_some()) => {}
                Err(_) if have > 0 => return Ok(have),
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
    }

    /// Whether waiting brings no more.
    fn is_all(&self, have: usize) -> bool {
        let incoming = self.slot.incoming(self.view.header());
        let by_ring = comes_by_ring(self.slot);
        let order = Ordering::SeqCst;
        self.does_not_wait()
            || have > 0 && by_ring && incoming.writers.0.load(order) > 0
            || have > 0
                && !by_ring
                && incoming.producer.start.load(order) != 0
                && incoming.producer.end.load(order) == 0
            || have > 0 && companion::peer_has_ended(self.fd)
    }
}
