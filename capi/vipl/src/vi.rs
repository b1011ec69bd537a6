//! VIs: create, destroy, query, change; and the user data that cLAN's library keeps with them.

use std::ffi::{c_int, c_ulong, c_void};
use std::ptr;

use viaduct_via::handle::RawHandle;
use viaduct_via::{Cq, Error, ProtectionTag, Reliability, RemoteAttributes, Vi, ViAttributes, ViState};

use crate::abi::{CViAttributes, Return};
use crate::code::{code, coded, done};
use crate::handle::{Handle, Kind};
use crate::nics::{self, Body, NicObject, Visit};
use crate::spares::Spares;

/// Bits of a reliability level that are cLAN's own.
const PRIVATE_BITS: u16 = 1 << 14 | 1 << 15;

/// What the library keeps of a VI.
pub(crate) struct ViBody {
    pub(crate) vi: Vi,
    pub(crate) tag: ProtectionTag,
    /// Descriptors of the model that are not posted, to be used again, per queue.
    pub(crate) spares: [Spares; 2],
    /// Descriptors that were posted and not yet given back, per queue.
    pub(crate) posted: [u32; 2],
    /// Whether a queue reports to a completion queue.
    pub(crate) bound: [bool; 2],
    attributes: CViAttributes,
    user_data: usize,
}

// SAFETY: the attributes hold a pointer of the program's that is never followed.
unsafe impl Send for ViBody {}

impl Body {
    /// A VI by the model's handle.
    #[inline]
    pub(crate) fn vi(&mut self, raw: RawHandle) -> Option<&mut ViBody> {
        self.vis.get_mut(raw.index as usize)?.as_mut().filter(|vi| vi.vi.raw() == raw)
    }
}

/// The NIC of a VI, and the VI.
#[inline]
pub(crate) fn open(handle: Handle) -> Result<(&'static NicObject, RawHandle), Return> {
    let (number, raw) = handle.open(Kind::Vi).ok_or(Return::InvalidParameter)?;
    Ok((nics::find(number)?, raw))
}

/// Makes a VI.
///
/// # Safety
/// `attributes` is NULL or readable, `out` is NULL or writable.
pub unsafe extern "C" fn vip_create_vi(
    nic: Handle,
    attributes: *const CViAttributes,
    send: Handle,
    recv: Handle,
    out: *mut Handle,
) -> Return {
    if attributes.is_null() || out.is_null() {
        return Return::InvalidParameter;
    }
    // SAFETY: readable by the caller's promise.
    let attributes = unsafe { attributes.read_unaligned() };
    done(create(nic, attributes, [send, recv]).map(|handle| {
        // SAFETY: writable by the caller's promise.
        unsafe { out.write(handle) }
    }))
}

fn create(nic: Handle, mut attributes: CViAttributes, cqs: [Handle; 2]) -> Result<Handle, Return> {
    let object = nics::open(nic)?;
    let mut visit = object.enter()?;
    let mut wanted = to_model(&visit, &mut attributes)?;
    let cq = |handle: Handle| match handle.is_null() {
        true => Ok(None),
        false => object.own(handle, Kind::Cq).map(Cq::from_raw).map(Some).ok_or(Return::InvalidParameter),
    };
    (wanted.send_cq, wanted.recv_cq) = (cq(cqs[0])?, cq(cqs[1])?);
    let bound = [wanted.send_cq.is_some(), wanted.recv_cq.is_some()];
    let tag = wanted.ptag;
    let (nic, body) = visit.parts();
    let vi = nic.create_vi(wanted).map_err(coded)?;
    let handle = object.name(Kind::Vi, vi.raw());
    let Ok(handle) = handle else {
        let _ = nic.destroy_vi(vi);
        return handle;
    };
    let index = vi.raw().index as usize;
    if body.vis.len() <= index {
        body.vis.resize_with(index + 1, || None);
    }
    let spares = Default::default();
    body.vis[index] = Some(ViBody { vi, tag, spares, posted: [0; 2], bound, attributes, user_data: 0 });
    Ok(handle)
}

/// Destroys a VI that is idle and whose queues were emptied.
pub extern "C" fn vip_destroy_vi(vi: Handle) -> Return {
    done(destroy(vi))
}

fn destroy(handle: Handle) -> Result<(), Return> {
    let (object, raw) = open(handle)?;
    let mut visit = object.enter()?;
    let (nic, body) = visit.parts();
    let vi = body.vi(raw).ok_or(Return::InvalidParameter)?.vi;
    nic.destroy_vi(vi).map_err(|error| match error {
        Error::InvalidState { .. } => Return::ErrorResource,
        error => code(&error),
    })?;
    body.vis[raw.index as usize] = None;
    drop(visit);
    object.shared.cancel_notify(vi);
    Ok(())
}

/// State, attributes, and whether the queues are empty.
///
/// # Safety
/// Each pointer is NULL or writable.
pub unsafe extern "C" fn vip_query_vi(
    vi: Handle,
    state: *mut c_int,
    attributes: *mut CViAttributes,
    send_empty: *mut c_int,
    recv_empty: *mut c_int,
) -> Return {
    let query = || {
        let (object, raw) = open(vi)?;
        let mut visit = object.enter()?;
        let (nic, body) = visit.parts();
        let found = body.vi(raw).ok_or(Return::InvalidParameter)?;
        let info = nic.query_vi(found.vi).map_err(coded)?;
        let empty = found.posted.map(|posted| c_int::from(posted == 0));
        Ok((info.state, found.attributes, empty))
    };
    done(query().map(|(now, own, empty)| {
        let number = match now {
            ViState::Idle => 0,
            ViState::Connected => 1,
            ViState::ConnectPending => 2,
            ViState::Error => 3,
        };
        // SAFETY: NULL or writable by the caller's promise.
        unsafe {
            write(state, number);
            write(attributes, own);
            write(send_empty, empty[0]);
            write(recv_empty, empty[1]);
        }
    }))
}

/// Changes the attributes of an idle VI.
///
/// # Safety
/// `attributes` is NULL or readable.
pub unsafe extern "C" fn vip_set_vi_attributes(vi: Handle, attributes: *const CViAttributes) -> Return {
    if attributes.is_null() {
        return Return::InvalidParameter;
    }
    // SAFETY: readable by the caller's promise.
    let mut attributes = unsafe { attributes.read_unaligned() };
    let mut set = || {
        let (object, raw) = open(vi)?;
        let mut visit = object.enter()?;
        let wanted = to_model(&visit, &mut attributes)?;
        let tag = wanted.ptag;
        let (nic, body) = visit.parts();
        let found = body.vi(raw).ok_or(Return::InvalidParameter)?;
        nic.set_vi_attributes(found.vi, wanted).map_err(coded)?;
        (found.attributes, found.tag) = (attributes, tag);
        found.spares.iter_mut().for_each(Spares::forget_checks);
        Ok(())
    };
    done(set())
}

/// What was set by SetUserData; NULL if the VI is unknown.
pub extern "C" fn vip_get_user_data(vi: Handle) -> *mut c_void {
    let data = || {
        let (object, raw) = open(vi)?;
        let mut visit = object.enter()?;
        visit.parts().1.vi(raw).map(|found| found.user_data).ok_or(Return::InvalidParameter)
    };
    data().map_or(ptr::null_mut(), |data| data as *mut c_void)
}

/// Keeps a pointer of the program's with a VI.
pub extern "C" fn vip_set_user_data(vi: Handle, data: *mut c_void) {
    let Ok((object, raw)) = open(vi) else { return };
    let Ok(mut visit) = object.enter() else { return };
    if let Some(found) = visit.parts().1.vi(raw) {
        found.user_data = data as usize;
    }
}

/// As the model has it. A transfer size of 0 is filled in.
fn to_model(visit: &Visit, a: &mut CViAttributes) -> Result<ViAttributes, Return> {
    let (offer, object) = (visit.nic.attributes(), visit.object);
    let level = u8::try_from(a.reliability_level & !PRIVATE_BITS).ok().and_then(Reliability::from_number);
    let reliability = level.filter(|level| offer.reliability.contains(level));
    let reliability = reliability.ok_or(Return::InvalidReliabilityLevel)?;
    if a.max_transfer_size == 0 {
        a.max_transfer_size = c_ulong::from(offer.max_transfer_size);
    }
    let max_transfer_size =
        u32::try_from(a.max_transfer_size).ok().filter(|size| *size <= offer.max_transfer_size);
    Ok(ViAttributes {
        reliability,
        max_transfer_size: max_transfer_size.ok_or(Return::InvalidMtu)?,
        qos: qos(a.qos),
        rdma_write: a.enable_rdma_write != 0,
        rdma_read: a.enable_rdma_read != 0,
        ..ViAttributes::new(object.tag(a.ptag)?).depth(object.settings.depth)
    })
}

/// The remote side's attributes, for a program.
pub(crate) fn from_remote(remote: &RemoteAttributes) -> CViAttributes {
    CViAttributes {
        reliability_level: remote.reliability as u16,
        max_transfer_size: c_ulong::from(remote.max_transfer_size),
        qos: remote.qos as usize as *mut c_void,
        ptag: Handle::NULL,
        enable_rdma_write: c_int::from(remote.rdma_write),
        enable_rdma_read: c_int::from(remote.rdma_read),
    }
}

/// Quality of service is a word without meaning that both sides must have alike.
fn qos(pointer: *mut c_void) -> u32 {
    let bits = pointer as u64;
    bits as u32 ^ (bits >> 32) as u32
}

/// Writes an answer that the program may not want.
///
/// # Safety
/// `to` is NULL or writable.
pub(crate) unsafe fn write<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: by the caller's promise.
        unsafe { to.write_unaligned(value) }
    }
}
