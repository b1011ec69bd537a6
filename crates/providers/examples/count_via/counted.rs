//! The calls that are counted: callgrind collects while one of these is on the stack, and at no other time.
//!
//! They are found by the start of their names, `count_this_`, and must stay functions of their own. A count contains
//! what such a function adds: up to some tens of instructions that set up the call and hand its result on.

use viaduct_via::{Completion, Cq, Descriptor, Error, Nic, PostError, Vi};

#[inline(never)]
pub(crate) fn count_this_post_recv(nic: &mut Nic, vi: Vi, descriptor: Descriptor) -> Result<(), PostError> {
    nic.post_recv(vi, descriptor)
}

#[inline(never)]
pub(crate) fn count_this_post_send(nic: &mut Nic, vi: Vi, descriptor: Descriptor) -> Result<(), PostError> {
    nic.post_send(vi, descriptor)
}

#[inline(never)]
pub(crate) fn count_this_send_inline(nic: &mut Nic, vi: Vi, bytes: &[u8]) -> Result<(), Error> {
    nic.send_inline(vi, bytes, None)
}

#[inline(never)]
pub(crate) fn count_this_poll_recv(nic: &mut Nic, vi: Vi) -> Result<Option<Completion>, Error> {
    nic.poll_recv(vi)
}

#[inline(never)]
pub(crate) fn count_this_poll_send(nic: &mut Nic, vi: Vi) -> Result<Option<Completion>, Error> {
    nic.poll_send(vi)
}

#[inline(never)]
pub(crate) fn count_this_poll_cq(nic: &mut Nic, cq: Cq) -> Result<Option<Completion>, Error> {
    nic.poll_cq(cq)
}
