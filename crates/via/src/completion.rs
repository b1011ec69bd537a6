//! A completion: a descriptor that came back, and how it ended; and the form of it that calls give which do not look at the
//! status themselves.

use crate::descriptor::{Descriptor, Op, Status};
use crate::error::Error;
use crate::handle::Vi;
use crate::queue::Outcome;
use crate::vi::Queue;

/// A descriptor that came back, with everything there is to know about it.
///
/// It may have ended in any way: [`ok`](Self::ok) makes an [`Error`] of one that was not carried out.
/// [`Nic::wait_recv`](crate::Nic::wait_recv) and [`wait_send`](crate::Nic::wait_send) do so by themselves.
#[derive(Debug)]
pub struct Completion {
    /// The VI it was posted to.
    pub vi: Vi,
    /// Which of its queues.
    pub queue: Queue,
    /// What was done; for a receive whether a send or an RDMA write used it up.
    pub op: Op,
    /// How it ended.
    pub status: Status,
    /// Bytes moved.
    pub length: u32,
    /// Immediate data that arrived.
    pub immediate: Option<u32>,
    /// The descriptor, to be posted again or taken apart.
    pub descriptor: Descriptor,
}

impl Completion {
    #[inline]
    pub(crate) fn new(vi: Vi, queue: Queue, (descriptor, outcome): (Descriptor, Outcome)) -> Completion {
        let Outcome { op, status, length, immediate } = outcome;
        Completion { vi, queue, op, status, length, immediate, descriptor }
    }

    /// The completion of a descriptor that was carried out.
    ///
    /// # Errors
    /// [`Error::Unsuccessful`] with the completion of one that was not.
    #[inline]
    pub fn ok(self) -> Result<Completion, Error> {
        if self.status.is_success() { Ok(self) } else { Err(Error::Unsuccessful(Box::new(self))) }
    }

    /// The bytes received or read, copied out of all buffers of the descriptor in their order. None of a descriptor that
    /// was not carried out.
    pub fn data(&self) -> Vec<u8> {
        // A peer's RDMA write may be longer than the buffers of the receive that tells of it.
        let mut left = self.length as usize;
        let mut data = Vec::with_capacity(left.min(self.descriptor.work().total as usize));
        for (buffer, range) in self.descriptor.pieces() {
            let take = left.min(range.len());
            let at = data.len();
            data.resize(at + take, 0);
            buffer.read(range.start, &mut data[at..]);
            left -= take;
        }
        data
    }

    /// The bytes received or read, where they lie in one buffer that no peer may write: without a copy.
    ///
    /// None if the descriptor was not carried out, has several buffers, or its memory gives peers rights (see
    /// [`Buffer::slice`](crate::Buffer::slice)); [`data`](Self::data) works for all of them.
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        let mut pieces = self.descriptor.pieces();
        let (buffer, range) = pieces.next()?;
        if pieces.next().is_some() || !self.status.is_success() {
            return None;
        }
        let length = range.len().min(self.length as usize);
        buffer.slice()?.get(range.start..range.start + length)
    }

    /// The number that the descriptor was made with ([`Descriptor::context`]).
    #[inline]
    pub fn context(&self) -> u64 {
        self.descriptor.work().context
    }
}

/// A completion whose status is still to be looked at: what waits give that do not make an error of a failure themselves, and
/// polls of a view ([`Nic::vi`](crate::Nic::vi), [`Nic::cq`](crate::Nic::cq)).
///
/// It has no bytes and no length: [`ok`](Self::ok) gives those of a descriptor that was carried out and makes an [`Error`] of
/// another one, and the field is the completion as it is. The compiler warns of one that is dropped unread, also behind a `?`,
/// which it does not for a function that is marked and returns a `Result`:
///
/// ```
/// # use viaduct_via::{Completion, Cq, Error, Nic};
/// fn next(nic: &mut Nic, cq: Cq) -> Result<Completion, Error> {
///     // nic.wait_cq(cq, None)?; would be a warning: a message, or a flushed receive?
///     nic.wait_cq(cq, None)?.ok()
/// }
/// # let _ = next;
/// ```
#[derive(Debug)]
#[repr(transparent)]
#[must_use = "the status says whether it was carried out: `ok()` makes an error of a failure"]
pub struct Ended(pub Completion);

impl Ended {
    /// The completion of a descriptor that was carried out.
    ///
    /// # Errors
    /// [`Error::Unsuccessful`] with the completion of one that was not.
    #[inline]
    pub fn ok(self) -> Result<Completion, Error> {
        self.0.ok()
    }

    /// How it ended.
    #[inline]
    pub fn status(&self) -> Status {
        self.0.status
    }

    /// The VI it was posted to.
    #[inline]
    pub fn vi(&self) -> Vi {
        self.0.vi
    }

    /// Which queue of the VI.
    #[inline]
    pub fn queue(&self) -> Queue {
        self.0.queue
    }
}

impl From<Ended> for Completion {
    #[inline]
    fn from(ended: Ended) -> Completion {
        ended.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::handle::RawHandle;

    fn came(descriptor: Descriptor, status: Status, length: u32) -> Completion {
        let vi = Vi::from_raw(RawHandle { index: 0, generation: 1 });
        let outcome = Outcome { op: Op::Receive, status, length, immediate: None };
        Completion::new(vi, Queue::Receive, (descriptor, outcome))
    }

    fn scattered() -> Descriptor {
        let [a, b] = [b"abc".to_vec(), b"-defg".to_vec()].map(Buffer::from);
        Descriptor::recv(a).segment_range(b, 1..5)
    }

    #[test]
    fn data_is_gathered_from_all_buffers() {
        for (length, text) in [(0, ""), (2, "ab"), (3, "abc"), (5, "abcde"), (7, "abcdefg"), (99, "abcdefg")]
        {
            assert_eq!(came(scattered(), Status::Success, length).data(), text.as_bytes());
        }
        assert!(came(scattered(), Status::Success, 7).bytes().is_none(), "two buffers are no slice");
    }

    #[test]
    fn one_buffer_is_looked_at_without_a_copy() {
        let one = || Descriptor::new(Op::Receive).segment_range(Buffer::from(b"0123456".to_vec()), 2..6);
        assert_eq!(came(one(), Status::Success, 3).bytes(), Some(&b"234"[..]));
        assert_eq!(came(one(), Status::Success, 3).data(), b"234");
        assert_eq!(came(one(), Status::Success, 50).bytes(), Some(&b"2345"[..]));
        assert!(came(one(), Status::Flushed, 0).bytes().is_none());
        assert!(came(Descriptor::recv_empty(), Status::Success, 0).bytes().is_none());
    }

    #[test]
    fn a_failure_becomes_an_error_that_holds_the_descriptor() {
        assert!(came(scattered(), Status::Success, 1).ok().is_ok());
        let error = came(scattered().context(7), Status::Flushed, 0).ok().unwrap_err();
        assert!(error.to_string().contains("the receive queue was not carried out: flushed"), "{error}");
        let Error::Unsuccessful(end) = error else { panic!("another error") };
        assert_eq!((end.context(), end.descriptor.into_buffers().len()), (7, 2));
    }
}
