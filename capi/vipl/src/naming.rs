//! The name service, and the list of nodes for autodiscovery.

use std::ffi::{CStr, c_char, c_ulong, c_void};
use std::ptr;

use crate::abi::{CAutodiscoveryList, CNetAddress, Return};
use crate::address::Address;
use crate::code::done;
use crate::handle::Handle;
use crate::nics::{self, NicObject};

/// The only thing that can be asked of the management.
const AUTODISCOVERY: c_ulong = 1;

/// Starts the name service of a NIC. Whatever `_info` is, it is not needed.
pub extern "C" fn vip_ns_init(nic: Handle, _info: *mut c_void) -> Return {
    done(set_names(nic, true))
}

/// Ends it.
pub extern "C" fn vip_ns_shutdown(nic: Handle) -> Return {
    done(set_names(nic, false))
}

fn set_names(nic: Handle, on: bool) -> Result<(), Return> {
    nics::open(nic)?.enter()?.parts().1.names = on;
    Ok(())
}

/// The address of a host.
///
/// # Safety
/// `name` is NULL or a string; `out` is NULL or has room for a host part.
pub unsafe extern "C" fn vip_ns_get_host_by_name(
    nic: Handle,
    name: *const c_char,
    out: *mut CNetAddress,
    index: c_ulong,
) -> Return {
    if name.is_null() || out.is_null() {
        return Return::InvalidParameter;
    }
    let find = || {
        let object = named(nic)?;
        // SAFETY: a string by the caller's promise.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let index = usize::try_from(index).map_err(|_| Return::ErrorNameService)?;
        // Without the NIC: a name server takes its time.
        object.settings.nodes.resolve(&name, index).ok_or(Return::ErrorNameService)
    };
    done(find().map(|host| {
        // SAFETY: room for a host part by the caller's promise.
        unsafe { Address { host, discriminator: Vec::new() }.write(out) }
    }))
}

/// The name of a host.
///
/// # Safety
/// `address` is NULL or an address; `len` is NULL or says how many bytes `name` has, unless that is NULL.
pub unsafe extern "C" fn vip_ns_get_host_by_addr(
    nic: Handle,
    address: *const CNetAddress,
    name: *mut c_char,
    len: *mut c_ulong,
) -> Return {
    if name.is_null() || len.is_null() {
        return Return::InvalidParameter;
    }
    let find = || {
        let object = named(nic)?;
        // SAFETY: by the caller's promise.
        let address = unsafe { Address::read(address, object.address)? };
        object.settings.nodes.name_of(address.host).ok_or(Return::ErrorNameService)
    };
    let found = match find() {
        Ok(found) => found,
        Err(code) => return code,
    };
    let needed = found.len() as c_ulong + 1;
    // SAFETY: by the caller's promise; the name is copied only if it fits, with its end.
    unsafe {
        let room = len.read();
        len.write(needed);
        if room < needed {
            return Return::ErrorResource;
        }
        ptr::copy_nonoverlapping(found.as_ptr().cast(), name, found.len());
        name.add(found.len()).write(0);
    }
    Return::Success
}

/// Asks the management for the list of nodes. The answer is valid until the next one, or until the NIC is closed.
///
/// # Safety
/// `out` is NULL, or what belongs to the kind of information.
pub unsafe extern "C" fn vip_query_system_management_info(
    nic: Handle,
    kind: c_ulong,
    out: *mut c_void,
) -> Return {
    let object = match nics::open(nic) {
        Ok(object) if !out.is_null() => object,
        _ => return Return::InvalidParameter,
    };
    if kind != AUTODISCOVERY {
        return Return::ErrorNotSupported;
    }
    done(discover(object).map(|list| {
        // SAFETY: a list by the caller's promise.
        unsafe { out.cast::<CAutodiscoveryList>().write(list) }
    }))
}

/// This node, and those that were listed.
fn discover(object: &'static NicObject) -> Result<CAutodiscoveryList, Return> {
    let mut visit = object.enter()?;
    let (_, body) = visit.parts();
    let others = object.settings.nodes.addresses().filter(|host| *host != object.address);
    body.discovered = std::iter::once(object.address)
        .chain(others)
        .map(|host| {
            let mut place = [0u64; 2];
            // SAFETY: 16 bytes have room for two lengths and a host part.
            unsafe { Address { host, discriminator: Vec::new() }.write(place.as_mut_ptr().cast()) };
            place
        })
        .collect();
    body.discovered_list = body.discovered.iter_mut().map(|place| place.as_mut_ptr() as usize).collect();
    Ok(CAutodiscoveryList {
        number_of_hops: 1,
        addresses: body.discovered_list.as_mut_ptr().cast(),
        count: body.discovered_list.len() as c_ulong,
    })
}

/// The NIC, if its name service was started.
fn named(nic: Handle) -> Result<&'static NicObject, Return> {
    let object = nics::open(nic)?;
    let on = object.enter()?.parts().1.names;
    if on { Ok(object) } else { Err(Return::ErrorNameService) }
}
