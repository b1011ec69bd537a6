//! Views: a NIC as seen from one of its VIs, or from one of its completion queues.
//!
//! `nic.vi(vi)?.post_send(descriptor)` is `nic.post_send(vi, descriptor)` with the VI looked up and named once. A view
//! borrows its NIC and is made anew whenever it is wanted.

use std::time::Duration;

use crate::address::NetAddress;
use crate::attributes::MemAttributes;
use crate::completion::{Completion, Ended};
use crate::connecting::Connect;
use crate::descriptor::Descriptor;
use crate::error::{Error, PostError};
use crate::handle::{Cq, Vi};
use crate::nic::{Nic, ViInfo};

/// A VI of a NIC.
#[derive(Debug)]
pub struct ViMut<'a> {
    nic: &'a mut Nic,
    vi: Vi,
}

/// A completion queue of a NIC.
#[derive(Debug)]
pub struct CqMut<'a> {
    nic: &'a mut Nic,
    cq: Cq,
}

impl Nic {
    /// A VI, to be worked with.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`] if there is none; [`Error::Forked`] in a forked child.
    #[inline]
    pub fn vi(&mut self, vi: Vi) -> Result<ViMut<'_>, Error> {
        self.check_fork()?;
        self.vis.get(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        Ok(ViMut { nic: self, vi })
    }

    /// A completion queue, to be worked with.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`] if there is none; [`Error::Forked`] in a forked child.
    #[inline]
    pub fn cq(&mut self, cq: Cq) -> Result<CqMut<'_>, Error> {
        self.check_fork()?;
        self.cqs.get(cq.0).ok_or(Error::InvalidHandle("completion queue"))?;
        Ok(CqMut { nic: self, cq })
    }
}

impl ViMut<'_> {
    /// Its handle.
    pub fn handle(&self) -> Vi {
        self.vi
    }

    /// State, attributes and queue lengths: [`Nic::query_vi`].
    ///
    /// # Errors
    /// As of [`Nic::query_vi`].
    pub fn info(&mut self) -> Result<ViInfo, Error> {
        self.nic.query_vi(self.vi)
    }

    /// A number of the program's that goes with the VI, such as an index into a table of clients; 0 unless set.
    pub fn context(&self) -> u64 {
        self.nic.vis.get(self.vi.0).map_or(0, |core| core.context)
    }

    /// Sets the number that goes with the VI.
    pub fn set_context(&mut self, context: u64) {
        if let Some(core) = self.nic.vis.get_mut(self.vi.0) {
            core.context = context;
        }
    }

    /// Asks for a connection: [`Nic::connect`].
    pub fn connect<'b>(&'b mut self, remote: &'b NetAddress) -> Connect<'b> {
        self.nic.connect(self.vi, remote)
    }

    /// Posts a send, an RDMA operation or an atomic: [`Nic::post_send`].
    ///
    /// # Errors
    /// As of [`Nic::post_send`].
    #[inline]
    pub fn post_send(&mut self, descriptor: Descriptor) -> Result<(), PostError> {
        self.nic.post_send(self.vi, descriptor)
    }

    /// Posts a receive: [`Nic::post_recv`].
    ///
    /// # Errors
    /// As of [`Nic::post_recv`].
    #[inline]
    pub fn post_recv(&mut self, descriptor: Descriptor) -> Result<(), PostError> {
        self.nic.post_recv(self.vi, descriptor)
    }

    /// Allocates `count` buffers of `len` bytes with the tag of the VI, without remote rights, and posts a receive for each.
    ///
    /// # Errors
    /// What [`Nic::alloc`] and [`Nic::post_recv`] refuse. Receives posted before that stay posted.
    pub fn post_receives(&mut self, count: usize, len: usize) -> Result<(), Error> {
        let tag = self.nic.vis.get(self.vi.0).ok_or(Error::InvalidHandle("VI"))?.attributes.ptag;
        for _ in 0..count {
            let buffer = self.nic.alloc(len, MemAttributes::local(tag))?;
            self.post_recv(Descriptor::recv(buffer))?;
        }
        Ok(())
    }

    /// Sends a few bytes by value: [`Nic::send_inline`].
    ///
    /// # Errors
    /// As of [`Nic::send_inline`].
    #[inline]
    pub fn send_inline(&mut self, bytes: &[u8], immediate: Option<u32>) -> Result<(), Error> {
        self.nic.send_inline(self.vi, bytes, immediate)
    }

    /// Sends a message of any length, of which nothing has to be reaped: [`Nic::send`].
    ///
    /// # Errors
    /// As of [`Nic::send`].
    pub fn send(&mut self, parts: &[&[u8]], immediate: Option<u32>) -> Result<(), Error> {
        self.nic.send(self.vi, parts, immediate)
    }

    /// Sends bytes by value, in parts that are one message: [`Nic::send_value`].
    ///
    /// # Errors
    /// As of [`Nic::send_value`].
    pub fn send_value(&mut self, parts: &[&[u8]], immediate: Option<u32>) -> Result<(), Error> {
        self.nic.send_value(self.vi, parts, immediate)
    }

    /// The next completion of the send queue, if it is there, with its status still to be looked at: [`Nic::poll_send`].
    ///
    /// # Errors
    /// As of [`Nic::poll_send`].
    #[inline(always)]
    pub fn poll_send(&mut self) -> Result<Option<Ended>, Error> {
        ended(self.nic.poll_send(self.vi))
    }

    /// The next completion of the receive queue, if it is there, with its status still to be looked at: [`Nic::poll_recv`].
    ///
    /// # Errors
    /// As of [`Nic::poll_recv`].
    #[inline(always)]
    pub fn poll_recv(&mut self) -> Result<Option<Ended>, Error> {
        ended(self.nic.poll_recv(self.vi))
    }

    /// Waits for the next send to be carried out: [`Nic::wait_send`].
    ///
    /// # Errors
    /// As of [`Nic::wait_send`].
    pub fn wait_send(&mut self, timeout: Option<Duration>) -> Result<Completion, Error> {
        self.nic.wait_send(self.vi, timeout)
    }

    /// Waits for the next message: [`Nic::wait_recv`].
    ///
    /// # Errors
    /// As of [`Nic::wait_recv`].
    pub fn wait_recv(&mut self, timeout: Option<Duration>) -> Result<Completion, Error> {
        self.nic.wait_recv(self.vi, timeout)
    }

    /// Wakes the peer: [`Nic::nudge`].
    ///
    /// # Errors
    /// As of [`Nic::nudge`].
    pub fn nudge(&mut self) -> Result<(), Error> {
        self.nic.nudge(self.vi)
    }

    /// Ends the connection: [`Nic::disconnect`].
    ///
    /// # Errors
    /// As of [`Nic::disconnect`].
    pub fn disconnect(&mut self) -> Result<(), Error> {
        self.nic.disconnect(self.vi)
    }

    /// Ends the connection and destroys the VI, without waiting: [`Nic::retire`].
    ///
    /// # Errors
    /// As of [`Nic::retire`].
    pub fn retire(self) -> Result<(), Error> {
        self.nic.retire(self.vi)
    }
}

impl CqMut<'_> {
    /// Its handle.
    pub fn handle(&self) -> Cq {
        self.cq
    }

    /// The next completion, if there is one, with its status still to be looked at: [`Nic::poll_cq`].
    ///
    /// # Errors
    /// As of [`Nic::poll_cq`].
    #[inline(always)]
    pub fn poll(&mut self) -> Result<Option<Ended>, Error> {
        ended(self.nic.poll_cq(self.cq))
    }

    /// Up to `most` completions, each with its status still to be looked at. Nothing is allocated if `into` has room for them.
    ///
    /// # Errors
    /// As of [`Nic::poll_cq`].
    pub fn poll_batch(&mut self, into: &mut Vec<Ended>, most: usize) -> Result<usize, Error> {
        let before = into.len();
        while into.len() - before < most
            && let Some(ended) = self.poll()?
        {
            into.push(ended);
        }
        Ok(into.len() - before)
    }

    /// Waits for the next completion: [`Nic::wait_cq`].
    ///
    /// # Errors
    /// As of [`Nic::wait_cq`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Ended, Error> {
        self.nic.wait_cq(self.cq, timeout)
    }

    /// Changes its size: [`Nic::resize_cq`].
    ///
    /// # Errors
    /// As of [`Nic::resize_cq`].
    pub fn resize(&mut self, entries: usize) -> Result<(), Error> {
        self.nic.resize_cq(self.cq, entries)
    }
}

/// What a poll gave, with its status still to be looked at. Case by case, which the optimiser sees through where it does not see through
/// `map`: in a caller that takes the completion apart the machine code is that of the NIC's poll.
#[inline(always)]
fn ended(polled: Result<Option<Completion>, Error>) -> Result<Option<Ended>, Error> {
    match polled {
        Ok(Some(completion)) => Ok(Some(Ended(completion))),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    }
}
