//! Notify: a handler for one completion, on the library's thread.

use std::ffi::{c_int, c_void};

use viaduct_via::{Ended, Queue};

use crate::abi::{CDescriptor, Return};
use crate::code::{coded, done};
use crate::cq;
use crate::handle::{Handle, Kind};
use crate::transfer::hand_back;
use crate::vi;

/// A handler of a descriptor: context, NIC, VI, descriptor.
pub type Handler = unsafe extern "C" fn(*mut c_void, Handle, Handle, *mut CDescriptor);
/// A handler of an entry: context, NIC, VI, whether it is the receive queue.
pub type CqHandler = unsafe extern "C" fn(*mut c_void, Handle, Handle, c_int);

/// Runs a handler with the next descriptor of the send queue.
///
/// # Safety
/// `handler` may be called with `context` until it was, or the VI is destroyed.
pub unsafe extern "C" fn vip_send_notify(
    vi: Handle,
    context: *mut c_void,
    handler: Option<Handler>,
) -> Return {
    // SAFETY: by the caller's promise.
    unsafe { notify(vi, context, handler, Queue::Send) }
}

/// Runs a handler with the next descriptor of the receive queue.
///
/// # Safety
/// `handler` may be called with `context` until it was, or the VI is destroyed.
pub unsafe extern "C" fn vip_recv_notify(
    vi: Handle,
    context: *mut c_void,
    handler: Option<Handler>,
) -> Return {
    // SAFETY: by the caller's promise.
    unsafe { notify(vi, context, handler, Queue::Receive) }
}

/// Runs a handler with the next entry of a completion queue.
///
/// # Safety
/// `handler` may be called with `context` until it was, or the queue is destroyed.
pub unsafe extern "C" fn vip_cq_notify(
    cq: Handle,
    context: *mut c_void,
    handler: Option<CqHandler>,
) -> Return {
    let context = context as usize;
    let arm = || {
        let handler = handler.ok_or(Return::InvalidParameter)?;
        let (object, cq) = cq::open(cq)?;
        let told = move |_: &_, vi: viaduct_via::Vi, queue| {
            let vi = object.name(Kind::Vi, vi.raw()).unwrap_or(Handle::NULL);
            let recv = c_int::from(queue == Queue::Receive);
            // SAFETY: by the promise of the caller that armed the handler.
            unsafe { handler(context as *mut c_void, object.handle(), vi, recv) }
        };
        object.shared.notify_cq_entry(cq, Box::new(told)).map_err(coded)
    };
    done(arm())
}

/// # Safety
/// As [`vip_send_notify`].
unsafe fn notify(handle: Handle, context: *mut c_void, handler: Option<Handler>, queue: Queue) -> Return {
    let context = context as usize;
    let arm = || {
        let handler = handler.ok_or(Return::InvalidParameter)?;
        let (object, raw) = vi::open(handle)?;
        let vi = viaduct_via::Vi::from_raw(raw);
        let told = move |_: &_, Ended(done): Ended| {
            // SAFETY: a posted descriptor is there until it came back, by the promise of the caller that posted it.
            if let Some(at) = unsafe { hand_back(object, done) } {
                // SAFETY: by the promise of the caller that armed the handler.
                unsafe { handler(context as *mut c_void, object.handle(), handle, at) }
            }
        };
        object.shared.notify(vi, queue, Box::new(told)).map_err(coded)
    };
    done(arm())
}
