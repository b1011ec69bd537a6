//! Completion queues. An entry says which VI and which queue; the Done call that follows succeeds at once.

use std::ffi::{c_int, c_ulong};

use viaduct_via::{Cq, Queue, Vi};

use crate::abi::Return;
use crate::code::{coded, done};
use crate::handle::{Handle, Kind};
use crate::nics::{self, NicObject};
use crate::transfer::duration;

/// Makes a completion queue.
///
/// # Safety
/// `out` is NULL or writable.
pub unsafe extern "C" fn vip_create_cq(nic: Handle, entries: c_ulong, out: *mut Handle) -> Return {
    if out.is_null() {
        return Return::InvalidParameter;
    }
    let create = || {
        let object = nics::open(nic)?;
        let mut visit = object.enter()?;
        let (nic, _) = visit.parts();
        let cq = nic.create_cq(count(entries)?).map_err(coded)?;
        object.name(Kind::Cq, cq.raw()).inspect_err(|_| drop(nic.destroy_cq(cq)))
    };
    done(create().map(|handle| {
        // SAFETY: writable by the caller's promise.
        unsafe { out.write(handle) }
    }))
}

/// Destroys a completion queue that no VI reports to.
pub extern "C" fn vip_destroy_cq(cq: Handle) -> Return {
    let destroy = || {
        let (object, cq) = open(cq)?;
        object.enter()?.nic.destroy_cq(cq).map_err(coded)?;
        object.shared.cancel_notify_cq(cq);
        Ok(())
    };
    done(destroy())
}

/// Changes the size of a completion queue, also while it is in use.
pub extern "C" fn vip_resize_cq(cq: Handle, entries: c_ulong) -> Return {
    let resize = || {
        let (object, cq) = open(cq)?;
        object.enter()?.nic.resize_cq(cq, count(entries)?).map_err(coded)
    };
    done(resize())
}

/// The next entry, if there is one.
///
/// # Safety
/// The pointers are NULL or writable.
pub unsafe extern "C" fn vip_cq_done(cq: Handle, vi: *mut Handle, recv: *mut c_int) -> Return {
    if vi.is_null() || recv.is_null() {
        return Return::InvalidParameter;
    }
    let (object, cq) = match open(cq) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let entry = match object.enter() {
        Ok(mut visit) => visit.nic.poll_cq_entry(cq),
        Err(code) => return code,
    };
    match entry {
        Ok(None) => Return::NotDone,
        // SAFETY: writable by the caller's promise.
        Ok(Some(entry)) => unsafe { tell(object, entry, vi, recv) },
        Err(error) => coded(error),
    }
}

/// Waits for the next entry.
///
/// # Safety
/// The pointers are NULL or writable.
pub unsafe extern "C" fn vip_cq_wait(
    cq: Handle,
    timeout: c_ulong,
    vi: *mut Handle,
    recv: *mut c_int,
) -> Return {
    if vi.is_null() || recv.is_null() {
        return Return::InvalidParameter;
    }
    let (object, cq) = match open(cq) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let entry = object.shared.wait_until(duration(timeout), |nic| nic.poll_cq_entry(cq).transpose());
    match entry {
        // SAFETY: writable by the caller's promise.
        Ok(entry) => unsafe { tell(object, entry, vi, recv) },
        Err(error) => coded(error),
    }
}

/// The NIC of a completion queue, and the queue.
#[inline]
pub(crate) fn open(handle: Handle) -> Result<(&'static NicObject, Cq), Return> {
    let (number, raw) = handle.open(Kind::Cq).ok_or(Return::InvalidParameter)?;
    Ok((nics::find(number)?, Cq::from_raw(raw)))
}

/// # Safety
/// The pointers are writable.
#[inline]
unsafe fn tell(object: &NicObject, (from, queue): (Vi, Queue), vi: *mut Handle, recv: *mut c_int) -> Return {
    let handle = match object.name(Kind::Vi, from.raw()) {
        Ok(handle) => handle,
        Err(code) => return code,
    };
    // SAFETY: by the caller's promise.
    unsafe {
        vi.write(handle);
        recv.write(c_int::from(queue == Queue::Receive));
    }
    Return::Success
}

fn count(entries: c_ulong) -> Result<usize, Return> {
    usize::try_from(entries).map_err(|_| Return::ErrorResource)
}
