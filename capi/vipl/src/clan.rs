//! What cLAN's library had beyond the standard, as far as it makes sense here; user data is in [`crate::vi`].

use std::ffi::{c_int, c_ulong, c_void};

use crate::abi::Return;
use crate::code::done;
use crate::handle::Handle;
use crate::{cq, vi};

/// Sends that were put off: there are none, every send goes when it is posted.
///
/// # Safety
/// `more` is NULL or writable.
pub unsafe extern "C" fn vip_post_deferred_sends(vi: Handle, _interrupt: c_int, more: *mut c_int) -> Return {
    let known = || {
        let (object, raw) = vi::open(vi)?;
        object.enter()?.parts().1.vi(raw).map(drop).ok_or(Return::InvalidParameter)
    };
    done(known().map(|()| {
        // SAFETY: by the caller's promise.
        unsafe { vi::write(more, 0) }
    }))
}

/// Events of completion queues by tag: not offered.
pub extern "C" fn vip_add_tag_cq(
    cq: Handle,
    _event: *mut *mut c_void,
    _tag: c_ulong,
    _priority: c_ulong,
) -> Return {
    done(cq::open(cq).and(Err(Return::ErrorNotSupported)))
}

/// As above.
pub extern "C" fn vip_remove_tag_cq(cq: Handle, _event: *mut c_void, _tag: c_ulong) -> Return {
    done(cq::open(cq).and(Err(Return::ErrorNotSupported)))
}
