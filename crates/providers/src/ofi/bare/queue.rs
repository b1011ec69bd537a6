//! Completion queues: of one endpoint, or of many; polled, or slept on by their descriptor.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::rc::Rc;

use viaduct_via::Error;

use super::{Inner, Message};
use crate::ofi::abi::*;
use crate::ofi::fabric::{BATCH, close, failed};

/// A completion queue.
#[derive(Clone)]
pub struct Cq(pub(super) Rc<Opened>);

pub(super) struct Opened {
    pub(super) cq: *mut FidCq,
    /// Completions that were fetched and not handed out yet.
    fetched: RefCell<VecDeque<CqMsgEntry>>,
    /// To sleep on.
    fd: Option<RawFd>,
    inner: Rc<Inner>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: open, and closed once; endpoints that are bound to it keep it.
        unsafe { close(self.cq.cast()) };
    }
}

/// An operation that went well.
pub struct Done {
    /// What was sent or received.
    pub message: Message,
    /// The endpoint, by [`Endpoint::key`](super::Endpoint::key).
    pub endpoint: usize,
    /// It was a receive.
    pub receive: bool,
    /// Bytes received.
    pub len: usize,
}

impl Cq {
    pub(super) fn open(inner: &Rc<Inner>, entries: usize, sleeps: bool) -> Result<Cq, Error> {
        let fi = inner.fabric.fi;
        let mut attr = CqAttr {
            size: entries,
            flags: 0,
            format: FI_CQ_FORMAT_MSG,
            wait_obj: if sleeps { FI_WAIT_FD } else { FI_WAIT_NONE },
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: ptr::null_mut(),
        };
        let (mut cq, domain) = (ptr::null_mut(), inner.fabric.domain);
        // SAFETY: an open domain, and a complete description.
        let code = unsafe { ((*(*domain).ops).cq_open)(domain, &raw mut attr, &raw mut cq, ptr::null_mut()) };
        if code != 0 {
            return Err(failed(fi, "fi_cq_open", code.into()));
        }
        let mut opened = Opened { cq, fetched: RefCell::default(), fd: None, inner: inner.clone() };
        if sleeps {
            let mut fd: RawFd = -1;
            let fid = cq.cast::<Fid>();
            // SAFETY: an open queue that was made with a descriptor to wait on.
            let code = unsafe { ((*(*fid).ops).control)(fid, FI_GETWAIT, (&raw mut fd).cast()) };
            if code != 0 || fd < 0 {
                return Err(failed(fi, "fi_control(FI_GETWAIT)", code.into()));
            }
            opened.fd = Some(fd);
        }
        Ok(Cq(Rc::new(opened)))
    }

    /// An operation that is done, if there is one; moves the transport on.
    ///
    /// # Errors
    /// [`Error::Transport`] if an operation failed.
    #[inline]
    pub fn poll(&self) -> Result<Option<Done>, Error> {
        let mut fetched = self.0.fetched.borrow_mut();
        loop {
            if fetched.is_empty() && !self.fetch(&mut fetched)? {
                return Ok(None);
            }
            let Some(entry) = fetched.pop_front() else { return Ok(None) };
            // What belonged to an endpoint that is closed has gone with it.
            if let Some(held) = self.0.inner.ledger.borrow_mut().take(entry.op_context as u64) {
                let (message, endpoint, receive) = (held.message, held.endpoint, held.receive);
                return Ok(Some(Done { message, endpoint, receive, len: entry.len }));
            }
        }
    }

    /// The descriptor to sleep on, if there is nothing to poll for; it becomes readable when there is.
    pub fn to_sleep_on(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.0.fd.filter(|_| self.0.fetched.borrow().is_empty())?;
        let fabric = self.0.inner.fabric.fabric;
        let mut fids = [self.0.cq.cast::<Fid>()];
        // SAFETY: open objects.
        let may_sleep = unsafe { ((*(*fabric).ops).trywait)(fabric, fids.as_mut_ptr(), 1) == 0 };
        // SAFETY: the descriptor is the queue's, which stays open as long as this is borrowed.
        may_sleep.then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Fetches some completions; false if there are none.
    fn fetch(&self, into: &mut VecDeque<CqMsgEntry>) -> Result<bool, Error> {
        let mut entries = [CqMsgEntry { op_context: ptr::null_mut(), flags: 0, len: 0 }; BATCH];
        let cq = self.0.cq;
        // SAFETY: an open queue, and room for as many entries of its format as are asked for.
        let n = unsafe { ((*(*cq).ops).read)(cq, entries.as_mut_ptr().cast(), BATCH) };
        if n > 0 {
            into.extend(&entries[..n as usize]);
            return Ok(true);
        }
        if n == -(FI_EAVAIL as isize) {
            return self.fault().map_or(Ok(false), Err);
        }
        Ok(false)
    }

    /// The operation that failed; none if it was of an endpoint that is closed.
    #[cold]
    fn fault(&self) -> Option<Error> {
        let cq = self.0.cq;
        // SAFETY: zero is a value of every field.
        let mut error: CqErrEntry = unsafe { std::mem::zeroed() };
        // SAFETY: an open queue with an error in it.
        let n = unsafe { ((*(*cq).ops).readerr)(cq, &raw mut error, 0) };
        let held = self.0.inner.ledger.borrow_mut().take(error.op_context as u64).filter(|_| n > 0)?;
        let call = if held.receive { "fi_recv" } else { "fi_send" };
        Some(failed(self.0.inner.fabric.fi, call, error.err.into()))
    }
}
