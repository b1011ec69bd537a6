//! Connecting: wait, accept, reject, request; two peers that ask for each other; disconnect.

use std::ffi::c_ulong;

use viaduct_via::handle::RawHandle;
use viaduct_via::{ConnRequest, Vi};

use crate::abi::{CNetAddress, CViAttributes, Return};
use crate::address::Address;
use crate::code::{code, coded, done};
use crate::handle::{Handle, Kind};
use crate::nics::{self, NicObject};
use crate::transfer::duration;
use crate::vi::{self, from_remote, write};

/// Waits for a request at an address.
///
/// # Safety
/// `local` is NULL or an address, the others are NULL or writable; `remote` for as many bytes as the client's address has.
pub unsafe extern "C" fn vip_connect_wait(
    nic: Handle,
    local: *const CNetAddress,
    timeout: c_ulong,
    remote: *mut CNetAddress,
    attributes: *mut CViAttributes,
    out: *mut Handle,
) -> Return {
    if out.is_null() {
        return Return::InvalidParameter;
    }
    let wait = || {
        let object = nics::open(nic)?;
        // SAFETY: by the caller's promise.
        let local = unsafe { Address::read(local, object.address)? };
        if !local.host.is_here() {
            return Err(Return::InvalidParameter);
        }
        let request = object.shared.connect_wait(&local.to_model()?, duration(timeout)).map_err(coded)?;
        let from = client(object, &request);
        let theirs = from_remote(request.remote());
        let raw = RawHandle { index: 0, generation: viaduct_os::random::u32() };
        let handle = object.name(Kind::Conn, raw)?;
        object.enter()?.parts().1.requests.insert(handle.bits(), request);
        Ok((handle, from, theirs))
    };
    done(wait().map(|(handle, from, theirs)| {
        // SAFETY: by the caller's promise.
        unsafe {
            from.write(remote);
            write(attributes, theirs);
            out.write(handle);
        }
    }))
}

/// Address of the client: the one that it gives itself, if it uses this library.
fn client(object: &NicObject, request: &ConnRequest) -> Address {
    let (from, host) = (request.from(), &request.remote().private_data);
    let unknown = || Address { host: object.address, discriminator: from.discriminator().to_vec() };
    Address::from_model(from, host).unwrap_or_else(unknown)
}

/// Connects an idle VI to the one that asks. If they do not match, the request stays to be answered.
pub extern "C" fn vip_connect_accept(conn: Handle, vi: Handle) -> Return {
    let accept = || {
        let (object, raw) = vi::open(vi)?;
        object.own(conn, Kind::Conn).ok_or(Return::InvalidParameter)?;
        let mut visit = object.enter()?;
        let (nic, body) = visit.parts();
        let vi = body.vi(raw).ok_or(Return::InvalidParameter)?.vi;
        let request = body.requests.remove(&conn.bits()).ok_or(Return::InvalidParameter)?;
        nic.accept(request, vi).map_err(|refused| {
            body.requests.insert(conn.bits(), refused.request);
            code(&refused.error)
        })
    };
    done(accept())
}

/// Says no.
pub extern "C" fn vip_connect_reject(conn: Handle) -> Return {
    let reject = || {
        let (number, _) = conn.open(Kind::Conn).ok_or(Return::InvalidParameter)?;
        let mut visit = nics::find(number)?.enter()?;
        let (nic, body) = visit.parts();
        let request = body.requests.remove(&conn.bits()).ok_or(Return::InvalidParameter)?;
        nic.reject(request).map_err(coded)
    };
    done(reject())
}

/// Asks for a connection and waits for the answer.
///
/// # Safety
/// The addresses are NULL or addresses, `attributes` is NULL or writable.
pub unsafe extern "C" fn vip_connect_request(
    vi: Handle,
    local: *const CNetAddress,
    remote: *const CNetAddress,
    timeout: c_ulong,
    attributes: *mut CViAttributes,
) -> Return {
    let request = || {
        let (object, raw) = vi::open(vi)?;
        // SAFETY: by the caller's promise.
        let (ours, theirs) = unsafe { (Address::read_or_own(local, object)?, reachable(object, remote)?) };
        let vi = known(object, raw)?;
        {
            let mut visit = object.enter()?;
            let (from, to, host) = (ours.to_model()?, theirs.to_model()?, ours.host.to_bytes());
            visit.nic.connect_start(vi, Some(&from), &to, &host, duration(timeout)).map_err(coded)?;
        }
        object.shared.connect_finish(vi).map_err(coded)
    };
    done(request().map(|theirs| {
        // SAFETY: by the caller's promise.
        unsafe { write(attributes, from_remote(&theirs)) }
    }))
}

/// Ends a connection, or a request; everything posted comes back.
pub extern "C" fn vip_disconnect(vi: Handle) -> Return {
    let disconnect = || {
        let (object, raw) = vi::open(vi)?;
        let vi = known(object, raw)?;
        object.shared.disconnect(vi).map_err(coded)
    };
    done(disconnect())
}

/// Asks for a connection with a peer that asks for one with us; does not wait.
///
/// # Safety
/// The addresses are NULL or addresses.
pub unsafe extern "C" fn vip_connect_peer_request(
    vi: Handle,
    local: *const CNetAddress,
    remote: *const CNetAddress,
    timeout: c_ulong,
) -> Return {
    let request = || {
        let (object, raw) = vi::open(vi)?;
        // SAFETY: by the caller's promise.
        let (ours, theirs) = unsafe { (Address::read(local, object.address)?, reachable(object, remote)?) };
        if !ours.host.is_here() {
            return Err(Return::InvalidParameter);
        }
        let vi = known(object, raw)?;
        let (from, to) = (ours.to_model()?, theirs.to_model()?);
        object.enter()?.nic.connect_peer_request(vi, &from, &to, duration(timeout)).map_err(coded)
    };
    done(request())
}

/// Whether the connection stands.
///
/// # Safety
/// `attributes` is NULL or writable.
pub unsafe extern "C" fn vip_connect_peer_done(vi: Handle, attributes: *mut CViAttributes) -> Return {
    let look = || {
        let (object, raw) = vi::open(vi)?;
        let vi = known(object, raw)?;
        object.enter()?.nic.connect_poll(vi).map_err(coded)?.ok_or(Return::NotDone)
    };
    done(look().map(|theirs| {
        // SAFETY: by the caller's promise.
        unsafe { write(attributes, from_remote(&theirs)) }
    }))
}

/// Waits until the connection stands, or the time of the request is over.
///
/// # Safety
/// `attributes` is NULL or writable.
pub unsafe extern "C" fn vip_connect_peer_wait(vi: Handle, attributes: *mut CViAttributes) -> Return {
    let wait = || {
        let (object, raw) = vi::open(vi)?;
        let vi = known(object, raw)?;
        object.shared.connect_finish(vi).map_err(coded)
    };
    done(wait().map(|theirs| {
        // SAFETY: by the caller's promise.
        unsafe { write(attributes, from_remote(&theirs)) }
    }))
}

fn known(object: &'static NicObject, raw: RawHandle) -> Result<Vi, Return> {
    object.enter()?.parts().1.vi(raw).map(|found| found.vi).ok_or(Return::InvalidParameter)
}

/// A remote address, if the provider gets that far.
///
/// # Safety
/// `remote` is NULL or an address.
unsafe fn reachable(object: &NicObject, remote: *const CNetAddress) -> Result<Address, Return> {
    // SAFETY: by the caller's promise.
    let remote = unsafe { Address::read(remote, object.address)? };
    if object.beyond_host || remote.host.is_here() { Ok(remote) } else { Err(Return::NotReachable) }
}

impl Address {
    /// The client's address, which may be left out.
    ///
    /// # Safety
    /// `at` is NULL or an address.
    unsafe fn read_or_own(at: *const CNetAddress, object: &NicObject) -> Result<Address, Return> {
        if at.is_null() {
            return Ok(Address { host: object.address, discriminator: Vec::new() });
        }
        // SAFETY: by the caller's promise.
        unsafe { Address::read(at, object.address) }
    }
}
