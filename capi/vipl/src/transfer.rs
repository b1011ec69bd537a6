//! Posting descriptors, and getting them back.

use std::ffi::c_ulong;
use std::ptr;
use std::time::Duration;

use viaduct_via::handle::RawHandle;
use viaduct_via::raw::regions_stamp;
use viaduct_via::{Completion, Descriptor, Error, ErrorCode, ErrorEvent, MemHandle, Nic, Queue, Vi};

use crate::abi::{CDescriptor, ControlSegment, DESCRIPTOR_ALIGNMENT, INFINITE, Return};
use crate::code::{code, done};
use crate::descriptor::{self, CONTROL_BYTES, SEGMENT_BYTES};
use crate::handle::Handle;
use crate::nics::NicObject;
use crate::spares::Checked;
use crate::vi::{self, ViBody};

/// Which queue a call is about, known to the compiler: each call is code of its own, without a question in it.
trait OneQueue {
    const QUEUE: Queue;
}

struct Sends;
struct Receives;

impl OneQueue for Sends {
    const QUEUE: Queue = Queue::Send;
}

impl OneQueue for Receives {
    const QUEUE: Queue = Queue::Receive;
}

/// Posts to the send queue.
///
/// # Safety
/// The descriptor and what it names stay the library's until it comes back.
pub unsafe extern "C" fn vip_post_send(vi: Handle, at: *mut CDescriptor, memory: u32) -> Return {
    // SAFETY: by the caller's promise.
    unsafe { post::<Sends>(vi, at, memory) }
}

/// Posts to the receive queue.
///
/// # Safety
/// The descriptor and what it names stay the library's until it comes back.
pub unsafe extern "C" fn vip_post_recv(vi: Handle, at: *mut CDescriptor, memory: u32) -> Return {
    // SAFETY: by the caller's promise.
    unsafe { post::<Receives>(vi, at, memory) }
}

/// Looks at the head of the send queue.
///
/// # Safety
/// `out` is NULL or writable; posted descriptors are still there.
pub unsafe extern "C" fn vip_send_done(vi: Handle, out: *mut *mut CDescriptor) -> Return {
    // SAFETY: by the caller's promise.
    unsafe { look::<Sends>(vi, out) }
}

/// Looks at the head of the receive queue.
///
/// # Safety
/// `out` is NULL or writable; posted descriptors are still there.
pub unsafe extern "C" fn vip_recv_done(vi: Handle, out: *mut *mut CDescriptor) -> Return {
    // SAFETY: by the caller's promise.
    unsafe { look::<Receives>(vi, out) }
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

/// A completion that was taken for a notify handler: it goes back to the program all the same.
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
unsafe fn post<Q: OneQueue>(handle: Handle, at: *mut CDescriptor, memory: u32) -> Return {
    let queue = Q::QUEUE;
    let (object, raw) = match vi::open(handle) {
        Ok(found) if !at.is_null() => found,
        _ => return Return::InvalidParameter,
    };
    object.visit(move |nic, body| {
        let Some(found) = body.vi(raw) else { return Return::InvalidParameter };
        let checked = Checked { memory, stamp: regions_stamp(nic) };
        let spares = &mut found.spares[queue as usize];
        // As most programs do it: the same descriptor as the last time, with the same buffer.
        if let Some(mut posted) = spares.take_checked(at, checked) {
            // SAFETY: registered memory holds a descriptor with at least one segment, as was seen before; the buffer is
            // the library's until the descriptor is back, by the caller's promise.
            if unsafe { descriptor::refill_alike(&mut posted, at, queue) } {
                return hand_over(nic, found, at, posted, queue);
            }
            spares.keep(posted);
        }
        post_otherwise(nic, found, at, checked, queue)
    })
}

/// Posts a descriptor that was never seen before, or has changed since.
#[inline(never)]
fn post_otherwise(
    nic: &mut Nic,
    found: &mut ViBody,
    at: *mut CDescriptor,
    checked: Checked,
    queue: Queue,
) -> Return {
    // Nothing is read before it is known to be memory that was registered.
    let Some(cs) = control_segment(nic, found, at, checked.memory) else {
        return bad_descriptor(nic, found.vi, at);
    };
    let most = nic.attributes().max_segments_per_desc;
    // Without segments it was not seen that there is room for one.
    let checked = if cs.seg_count > 0 { checked } else { Checked::default() };
    let mut posted = found.spares[queue as usize].take(at, checked);
    // SAFETY: registered memory holds the control segment and as many segments as it says; the memory of those is
    // the library's until the descriptor is back, by the caller's promise, and that it is registered, the model
    // checks.
    unsafe {
        descriptor::refill(&mut posted, at, &cs, queue, most);
        descriptor::clear_status(at);
    }
    hand_over(nic, found, at, posted, queue)
}

#[inline(always)]
fn hand_over(
    nic: &mut Nic,
    found: &mut ViBody,
    at: *mut CDescriptor,
    posted: Descriptor,
    queue: Queue,
) -> Return {
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
            found.spares[queue as usize].keep(refused.descriptor);
            refuse(nic, found.vi, at, &refused.error)
        }
    }
}

/// The control segment, if the whole descriptor lies aligned in a region that the VI may use.
#[inline(always)]
fn control_segment(nic: &Nic, vi: &ViBody, at: *mut CDescriptor, memory: u32) -> Option<ControlSegment> {
    let place = at as u64;
    let region = nic.region(MemHandle::from_number(memory))?;
    let aligned = place.is_multiple_of(DESCRIPTOR_ALIGNMENT as u64);
    if !aligned || !region.contains(place, CONTROL_BYTES) || !vi.tag.goes_with(region.attributes().ptag) {
        return None;
    }
    // SAFETY: so many bytes of registered memory are there, and aligned.
    let cs = unsafe { at.cast::<ControlSegment>().read_volatile() };
    region.contains(place, CONTROL_BYTES + SEGMENT_BYTES * u64::from(cs.seg_count)).then_some(cs)
}

#[cold]
fn bad_descriptor(nic: &mut Nic, vi: Vi, at: *mut CDescriptor) -> Return {
    raise(nic, vi, ErrorCode::BadDescriptor, at);
    Return::InvalidParameter
}

#[cold]
fn refuse(nic: &mut Nic, vi: Vi, at: *mut CDescriptor, error: &Error) -> Return {
    if matches!(error, Error::QueueFull { .. }) {
        raise(nic, vi, ErrorCode::Overrun, at);
    }
    code(error)
}

fn raise(nic: &mut Nic, vi: Vi, code: ErrorCode, at: *mut CDescriptor) {
    nic.raise_error(ErrorEvent { vi, code, context: at as u64 });
}

/// The VI that is asked, and NULL as the answer to begin with.
///
/// # Safety
/// `out` is NULL or writable.
#[inline(always)]
unsafe fn asked(
    handle: Handle,
    out: *mut *mut CDescriptor,
) -> Result<(&'static NicObject, RawHandle), Return> {
    if out.is_null() {
        return Err(Return::InvalidParameter);
    }
    // SAFETY: writable by the caller's promise.
    unsafe { out.write(ptr::null_mut()) };
    vi::open(handle)
}

/// # Safety
/// As [`vip_send_done`].
#[inline(always)]
unsafe fn look<Q: OneQueue>(handle: Handle, out: *mut *mut CDescriptor) -> Return {
    let queue = Q::QUEUE;
    // SAFETY: by the caller's promise.
    let (object, raw) = match unsafe { asked(handle, out) } {
        Ok(found) => found,
        Err(code) => return code,
    };
    object.visit(move |nic, body| {
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
    found.spares[done.queue as usize].keep(done.descriptor);
    ended
}

/// # Safety
/// As [`vip_send_wait`].
unsafe fn wait(handle: Handle, timeout: c_ulong, out: *mut *mut CDescriptor, queue: Queue) -> Return {
    // SAFETY: by the caller's promise.
    let (object, raw) = match unsafe { asked(handle, out) } {
        Ok(found) => found,
        Err(code) => return code,
    };
    let waited = object.shared.wait_until_both(duration(timeout), |nic, body| {
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
