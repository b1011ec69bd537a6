//! Posting descriptors, and getting them back.

use std::ffi::c_ulong;
use std::ptr;
use std::time::Duration;

use viaduct_via::handle::RawHandle;
use viaduct_via::{Completion, Descriptor, Error, ErrorCode, ErrorEvent, MemHandle, Nic, Op, Queue};

use crate::abi::{CDescriptor, ControlSegment, DESCRIPTOR_ALIGNMENT, INFINITE, Return};
use crate::code::{code, done};
use crate::descriptor::{self, CONTROL_BYTES, SEGMENT_BYTES};
use crate::handle::Handle;
use crate::nics::NicObject;
use crate::vi::{self, ViBody};

/// Posts to the send queue.
///
/// # Safety
/// The descriptor and what it names stay the library's until it comes back.
pub unsafe extern "C" fn vip_post_send(vi: Handle, at: *mut CDescriptor, memory: u32) -> Return {
    // SAFETY: by the caller's promise.
    unsafe { post(vi, at, memory, Queue::Send) }
}

/// Posts to the receive queue.
///
/// # Safety
/// The descriptor and what it names stay the library's until it comes back.
pub unsafe extern "C" fn vip_post_recv(vi: Handle, at: *mut CDescriptor, memory: u32) -> Return {
    // SAFETY: by the caller's promise.
    unsafe { post(vi, at, memory, Queue::Receive) }
}

/// Looks at the head of the send queue.
///
/// # Safety
/// `out` is NULL or writable; posted descriptors are still there.
pub unsafe extern "C" fn vip_send_done(vi: Handle, out: *mut *mut CDescriptor) -> Return {
    // SAFETY: by the caller's promise.
    unsafe { look(vi, out, Queue::Send) }
}

/// Looks at the head of the receive queue.
///
/// # Safety
/// `out` is NULL or writable; posted descriptors are still there.
pub unsafe extern "C" fn vip_recv_done(vi: Handle, out: *mut *mut CDescriptor) -> Return {
    // SAFETY: by the caller's promise.
    unsafe { look(vi, out, Queue::Receive) }
}

/// Waits for the head of the send queue.
///
/// # Safety
/// `out` is NULL or writable; posted descriptors are still there.
pub unsafe extern "C" fn vip_send_wait(vi: Handle, timeout: c_ulong, out: *mut *mut CDescriptor) -> Return {
    // SAFETY: by the caller's promise.
    unsafe { wait(vi, timeout, out, Queue::Send) }
}

/// Waits for the head of the receive queue.
///
/// # Safety
/// `out` is NULL or writable; posted descriptors are still there.
pub unsafe extern "C" fn vip_recv_wait(vi: Handle, timeout: c_ulong, out: *mut *mut CDescriptor) -> Return {
    // SAFETY: by the caller's promise.
    unsafe { wait(vi, timeout, out, Queue::Receive) }
}

/// A number of milliseconds; none is for ever.
pub(crate) fn duration(timeout: c_ulong) -> Option<Duration> {
    (timeout < INFINITE).then(|| Duration::from_millis(timeout))
}

/// A completion that somebody else took, a notify handler: it goes back to the program all the same.
///
/// # Safety
/// The descriptor that was posted is still there.
pub(crate) unsafe fn hand_back(object: &'static NicObject, done: Completion) -> Option<*mut CDescriptor> {
    let mut visit = object.enter().ok()?;
    let found = visit.parts().1.vi(done.vi.raw())?;
    // SAFETY: by the caller's promise.
    let (at, _) = unsafe { finish(found, done) };
    Some(at)
}

/// # Safety
/// As [`vip_post_send`].
#[inline(always)]
unsafe fn post(handle: Handle, at: *mut CDescriptor, memory: u32, queue: Queue) -> Return {
    let (object, raw) = match vi::open(handle) {
        Ok(found) if !at.is_null() => found,
        _ => return Return::InvalidParameter,
    };
    object.visit(|nic, body| {
        let Some(found) = body.vi(raw) else { return Return::InvalidParameter };
        // Nothing is read before it is known to be memory that was registered.
        let Some(cs) = control_segment(nic, found, at, memory) else { return bad_descriptor(nic, raw, at) };
        let most = nic.attributes().max_segments_per_desc;
        let mut posted = found.spare.pop().unwrap_or_else(spare);
        // SAFETY: registered memory holds the control segment and as many segments as it says; the memory of those is
        // the library's until the descriptor is back, by the caller's promise, and that it is registered, the model
        // checks.
        unsafe {
            descriptor::refill(&mut posted, at, &cs, queue, most);
            descriptor::clear_status(at);
        }
        let outcome = match queue {
            Queue::Send => nic.post_send(found.vi, posted),
            Queue::Receive => nic.post_recv(found.vi, posted),
        };
        match outcome {
            Ok(()) => {
                found.posted[queue as usize] += 1;
                Return::Success
            }
            Err(refused) => {
                found.spare.push(refused.descriptor);
                refuse(nic, raw, at, &refused.error)
            }
        }
    })
}

#[cold]
fn spare() -> Descriptor {
    Descriptor::new(Op::Send)
}

/// The control segment, if the whole descriptor lies aligned in a region that the VI may use.
#[inline(always)]
fn control_segment(nic: &Nic, vi: &ViBody, at: *mut CDescriptor, memory: u32) -> Option<ControlSegment> {
    let place = at as u64;
    let region = nic.region(MemHandle::from_number(memory))?;
    let aligned = place.is_multiple_of(DESCRIPTOR_ALIGNMENT as u64);
    if !aligned || !region.contains(place, CONTROL_BYTES) || !vi.tag.goes_with(region.attributes.ptag) {
        return None;
    }
    // SAFETY: so many bytes of registered memory are there, and aligned.
    let cs = unsafe { at.cast::<ControlSegment>().read() };
    region.contains(place, CONTROL_BYTES + SEGMENT_BYTES * u64::from(cs.seg_count)).then_some(cs)
}

#[cold]
fn bad_descriptor(nic: &mut Nic, vi: RawHandle, at: *mut CDescriptor) -> Return {
    raise(nic, vi, ErrorCode::BadDescriptor, at);
    Return::InvalidParameter
}

#[cold]
fn refuse(nic: &mut Nic, vi: RawHandle, at: *mut CDescriptor, error: &Error) -> Return {
    if matches!(error, Error::QueueFull { .. }) {
        raise(nic, vi, ErrorCode::Overrun, at);
    }
    code(error)
}

fn raise(nic: &mut Nic, vi: RawHandle, code: ErrorCode, at: *mut CDescriptor) {
    let vi = viaduct_via::Vi::from_raw(vi);
    nic.raise_error(ErrorEvent { vi, code, context: at as u64 });
}

/// # Safety
/// As [`vip_send_done`].
#[inline(always)]
unsafe fn look(handle: Handle, out: *mut *mut CDescriptor, queue: Queue) -> Return {
    if out.is_null() {
        return Return::InvalidParameter;
    }
    // SAFETY: writable by the caller's promise.
    unsafe { out.write(ptr::null_mut()) };
    let (object, raw) = match vi::open(handle) {
        Ok(found) => found,
        Err(code) => return code,
    };
    object.visit(|nic, body| {
        let Some(found) = body.vi(raw) else { return Return::InvalidParameter };
        match poll(nic, found, queue) {
            Ok(Some(completion)) => {
                // SAFETY: the descriptor is still there, and `out` writable, by the caller's promise.
                unsafe {
                    let (at, code) = finish(found, completion);
                    out.write(at);
                    code
                }
            }
            Ok(None) if found.posted[queue as usize] == 0 => Return::DescriptorError,
            Ok(None) => Return::NotDone,
            Err(error) => code(&error),
        }
    })
}

#[inline(always)]
fn poll(nic: &mut Nic, found: &ViBody, queue: Queue) -> Result<Option<Completion>, Error> {
    match queue {
        Queue::Send => nic.poll_send(found.vi),
        Queue::Receive => nic.poll_recv(found.vi),
    }
}

/// # Safety
/// The descriptor that was posted is still there.
#[inline(always)]
unsafe fn finish(found: &mut ViBody, done: Completion) -> (*mut CDescriptor, Return) {
    // SAFETY: by the caller's promise.
    let ended = unsafe { descriptor::complete(&done) };
    found.posted[done.queue as usize] -= 1;
    found.spare.push(done.descriptor);
    ended
}

/// # Safety
/// As [`vip_send_wait`].
unsafe fn wait(handle: Handle, timeout: c_ulong, out: *mut *mut CDescriptor, queue: Queue) -> Return {
    if out.is_null() {
        return Return::InvalidParameter;
    }
    // SAFETY: writable by the caller's promise.
    unsafe { out.write(ptr::null_mut()) };
    let (object, raw) = match vi::open(handle) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let waited = object.shared.wait_until(duration(timeout), |nic| {
        let (nic, body) = object.with(nic);
        let Some(found) = body.vi(raw) else { return Some(Err(Error::InvalidHandle("VI"))) };
        if found.bound[queue as usize] {
            return Some(Err(Error::BoundToCq));
        }
        match poll(nic, found, queue) {
            // SAFETY: the descriptor is still there, by the caller's promise.
            Ok(Some(completion)) => Some(Ok(unsafe { finish(found, completion) })),
            Ok(None) if found.posted[queue as usize] == 0 => Some(Err(Error::QueueEmpty)),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        }
    });
    match waited {
        Ok((at, code)) => {
            // SAFETY: writable by the caller's promise.
            unsafe { out.write(at) };
            code
        }
        Err(error) => done(Err(code(&error))),
    }
}
