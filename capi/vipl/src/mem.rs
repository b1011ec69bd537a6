//! Protection tags and registered memory.

use std::ffi::{c_int, c_ulong, c_void};

use viaduct_via::raw::RawMemory;
use viaduct_via::{MemAttributes, MemHandle, Nic, ProtectionTag};

use crate::abi::{CMemAttributes, Return};
use crate::code::{coded, done};
use crate::handle::{Handle, Kind};
use crate::nics::{self, NicObject};

/// Makes a protection tag.
///
/// # Safety
/// `out` is NULL or writable.
pub unsafe extern "C" fn vip_create_ptag(nic: Handle, out: *mut Handle) -> Return {
    if out.is_null() {
        return Return::InvalidParameter;
    }
    let create = || {
        let object = nics::open(nic)?;
        let tag = object.enter()?.nic.create_ptag().map_err(coded)?;
        object.name(Kind::Ptag, tag.raw())
    };
    done(create().map(|handle| {
        // SAFETY: writable by the caller's promise.
        unsafe { out.write(handle) }
    }))
}

/// Destroys a protection tag that nothing uses.
pub extern "C" fn vip_destroy_ptag(nic: Handle, tag: Handle) -> Return {
    let destroy = || {
        let object = nics::open(nic)?;
        let raw = object.own(tag, Kind::Ptag).ok_or(Return::InvalidPtag)?;
        object.enter()?.nic.destroy_ptag(ProtectionTag::from_raw(raw)).map_err(coded)
    };
    done(destroy())
}

/// Registers memory of the program's.
///
/// # Safety
/// The memory stays mapped and writable until it is deregistered and nothing is posted with it; `attributes` is NULL or
/// readable; `out` is NULL or writable.
pub unsafe extern "C" fn vip_register_mem(
    nic: Handle,
    address: *mut c_void,
    len: c_ulong,
    attributes: *const CMemAttributes,
    out: *mut u32,
) -> Return {
    let Ok(len) = usize::try_from(len) else { return Return::InvalidParameter };
    if out.is_null() || !is_memory(address as usize, len) {
        return Return::InvalidParameter;
    }
    // SAFETY: NULL or readable by the caller's promise.
    let attributes = unsafe { read(attributes) };
    let register = || {
        let object = nics::open(nic)?;
        let attributes = to_model(object, attributes)?;
        let mut visit = object.enter()?;
        let (nic, body) = visit.parts();
        // SAFETY: the program keeps the memory until it deregisters it.
        let memory = unsafe { RawMemory::borrowed(address.cast(), len) };
        let buffer = nic.register_raw(memory, attributes).map_err(coded)?;
        let handle = buffer.handle().number();
        body.regions.insert(handle, buffer);
        Ok(handle)
    };
    done(register().map(|handle| {
        // SAFETY: writable by the caller's promise.
        unsafe { out.write(handle) }
    }))
}

/// Withdraws memory: when it returns, no peer touches it any more.
pub extern "C" fn vip_deregister_mem(nic: Handle, address: *mut c_void, handle: u32) -> Return {
    let deregister = || {
        let mut visit = nics::open(nic)?.enter()?;
        let (nic, body) = visit.parts();
        check_base(nic, address, handle)?;
        let buffer = body.regions.remove(&handle).ok_or(Return::InvalidParameter)?;
        nic.deregister(buffer).map(drop).map_err(coded)
    };
    done(deregister())
}

/// Tag and rights of a region.
///
/// # Safety
/// `out` is NULL or writable.
pub unsafe extern "C" fn vip_query_mem(
    nic: Handle,
    address: *mut c_void,
    handle: u32,
    out: *mut CMemAttributes,
) -> Return {
    if out.is_null() {
        return Return::InvalidParameter;
    }
    let query = || {
        let object = nics::open(nic)?;
        let mut visit = object.enter()?;
        let (nic, _) = visit.parts();
        check_base(nic, address, handle)?;
        let a = nic.query_mem(MemHandle::from_number(handle)).map_err(coded)?;
        Ok(CMemAttributes {
            ptag: object.tag_handle(a.ptag),
            enable_rdma_write: c_int::from(a.rdma_write),
            enable_rdma_read: c_int::from(a.rdma_read),
        })
    };
    done(query().map(|attributes| {
        // SAFETY: writable by the caller's promise.
        unsafe { out.write(attributes) }
    }))
}

/// Changes tag and rights of a region.
///
/// # Safety
/// `attributes` is NULL or readable.
pub unsafe extern "C" fn vip_set_mem_attributes(
    nic: Handle,
    address: *mut c_void,
    handle: u32,
    attributes: *const CMemAttributes,
) -> Return {
    // SAFETY: NULL or readable by the caller's promise.
    let attributes = unsafe { read(attributes) };
    let set = || {
        let object = nics::open(nic)?;
        let attributes = to_model(object, Some(attributes.ok_or(Return::InvalidParameter)?))?;
        let mut visit = object.enter()?;
        let (nic, _) = visit.parts();
        check_base(nic, address, handle)?;
        nic.set_mem_attributes(MemHandle::from_number(handle), attributes).map_err(coded)
    };
    done(set())
}

/// Without attributes: the NULL tag, and no RDMA by peers.
fn to_model(object: &NicObject, attributes: Option<CMemAttributes>) -> Result<MemAttributes, Return> {
    let none = CMemAttributes { ptag: Handle::NULL, enable_rdma_write: 0, enable_rdma_read: 0 };
    let a = attributes.unwrap_or(none);
    Ok(MemAttributes {
        ptag: object.tag(a.ptag)?,
        rdma_write: a.enable_rdma_write != 0,
        rdma_read: a.enable_rdma_read != 0,
        align: 0,
    })
}

/// Handle and address are told together, and must belong together.
fn check_base(nic: &Nic, address: *mut c_void, handle: u32) -> Result<(), Return> {
    let region = nic.region(MemHandle::from_number(handle)).ok_or(Return::InvalidParameter)?;
    if region.base() == address as u64 { Ok(()) } else { Err(Return::InvalidParameter) }
}

/// Whether there can be memory: a wrong address is better told now than met later.
fn is_memory(address: usize, len: usize) -> bool {
    address != 0
        && len != 0
        && address.checked_add(len).is_some()
        && viaduct_os::memory::is_mapped(address, len)
}

/// # Safety
/// `at` is NULL or readable.
unsafe fn read<T: Copy>(at: *const T) -> Option<T> {
    // SAFETY: by the caller's promise.
    if at.is_null() { None } else { Some(unsafe { at.read_unaligned() }) }
}
