//! Long requests leave straight from the application's memory, which is lent to the NIC until they are out of it.
//!
//! SOVIA, section 3.1.3: what is short is copied, what is longer than a threshold is registered and sent from where it
//! lies. A call that lends returns when its memory is free again, so it is one that may wait for as long as it takes:
//! blocking, and without a time limit. Between processes of one host nothing is lent: there the bytes are written into the
//! peer's ring from where they lie, and a message would need the peer's help to leave. Nor is what goes by RDMA into a ring
//! elsewhere, which is done when the peer has said so. docs/adr/0018.

use std::io;
use std::sync::atomic::Ordering;

use viaduct_os::wait::WaitPolicy;
use viaduct_via::raw::lend;
use viaduct_via::{Buffer, Descriptor, Reach};

use crate::engine::Engine;
use crate::socket::Direction;
use crate::stream::Handle;
use crate::table::SocketId;

/// A request that is lent, as far as it was not sent.
pub(crate) struct Loan {
    /// Where it lies.
    from: usize,
    len: usize,
    /// What follows the last packet that was sent of it.
    rest: Option<Buffer>,
    /// Packets under way.
    pub(crate) under_way: usize,
}

impl Loan {
    fn new(buffer: Buffer, bytes: &[u8]) -> Loan {
        Loan { from: bytes.as_ptr() as usize, len: bytes.len(), rest: Some(buffer), under_way: 0 }
    }

    /// A buffer of these bytes, if they are part of the request and come behind what was sent of it.
    pub(crate) fn part(&mut self, bytes: &[u8]) -> Option<Buffer> {
        let at = (bytes.as_ptr() as usize).checked_sub(self.from)?;
        let sent = self.len - self.rest.as_ref()?.len();
        if at < sent || at + bytes.len() > self.len {
            return None;
        }
        let (_, behind) = self.rest.take()?.split_at(at - sent);
        let (part, rest) = behind.split_at(bytes.len());
        (self.rest, self.under_way) = (Some(rest), self.under_way + 1);
        Some(part)
    }

    /// A descriptor came back: whether it was one of a loan.
    pub(crate) fn is_of_one(descriptor: &Descriptor) -> bool {
        descriptor.buffers().first().is_some_and(Buffer::is_lent)
    }
}

impl Engine {
    /// Whether the requests of a socket are lent.
    pub(crate) fn lends(&mut self, id: SocketId) -> bool {
        let Some(socket) = self.sockets.get_mut(id) else { return false };
        let reach = self.nic.query_vi(socket.vi).ok().and_then(|vi| vi.reach);
        reach == Some(Reach::Messages)
    }

    /// Takes a request as lent. Returns false if the socket is gone or has one already: those of other threads are copied meanwhile.
    fn take_loan(&mut self, id: SocketId, buffer: Buffer, bytes: &[u8]) -> bool {
        let Some(socket) = self.sockets.get_mut(id) else { return false };
        let free = socket.out.loan.is_none();
        if free {
            socket.out.loan = Some(Loan::new(buffer, bytes));
        }
        free
    }

    /// Gives the memory back once nothing is under way from it, or nothing ever will be.
    fn return_loan(&mut self, id: SocketId) -> Option<()> {
        let ended = self.sockets.get_mut(id).is_some_and(|socket| socket.ended);
        if ended {
            // What was posted comes back when the VI is disconnected.
            self.finish(id);
            self.handle();
        }
        let Some(socket) = self.sockets.get_mut(id) else { return Some(()) };
        // A send that is done at once rings no bell, and a handler thread may sleep.
        socket.reap(&mut self.nic);
        if socket.out.loan.as_ref().is_some_and(|loan| loan.under_way > 0) {
            return None;
        }
        socket.out.loan = None;
        Some(())
    }
}

impl Handle {
    /// Takes all of `bytes`, which lie still until they are out.
    #[inline(never)]
    pub(crate) fn transmit_lent(&self, bytes: &[u8]) -> io::Result<usize> {
        let unlimited = self.write_timeout.load(Ordering::Relaxed) == 0;
        if !unlimited || self.nonblocking.load(Ordering::Relaxed) {
            return self.transmit_copied(bytes);
        }
        lend(bytes, |buffer| {
            let lent = self.with(|engine, id| engine.take_loan(id, buffer, bytes));
            let result = self.transmit_copied(bytes);
            if lent {
                let shared = &self.owner.shared;
                let mut policy = WaitPolicy::new(shared.wait);
                let place = (self.id, Direction::Write);
                let _ = shared.wait(&mut policy, None, place, |engine| engine.return_loan(self.id));
            }
            result
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_in_order_and_each_once() {
        let bytes = vec![7u8; 100];
        lend(&bytes, |buffer| {
            let mut loan = Loan::new(buffer, &bytes);
            assert_eq!(loan.part(&bytes[..40]).unwrap().len(), 40);
            assert!(loan.part(&bytes[..40]).is_none(), "it was sent already");
            assert!(loan.part(&[1; 8]).is_none(), "not ours");
            let tail = loan.part(&bytes[50..]).unwrap();
            assert_eq!((tail.len(), loan.under_way), (50, 2));
            assert!(loan.part(&bytes[90..]).is_none());
            assert!(Loan::is_of_one(&Descriptor::send(tail)) && !Loan::is_of_one(&Descriptor::send_empty()));
        });
    }
}
