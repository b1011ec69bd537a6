//! Endpoints of libfabric's: listening ones, connected ones, and memory registered for them.

use std::ffi::c_void;
use std::net::SocketAddr;
use std::ptr;

use smallvec::SmallVec;
use viaduct_via::raw::RawSegment;

use super::abi::*;
use super::fabric::close;
use super::info::{Info, address_from, sockaddr};

/// A listening endpoint.
pub(crate) struct Passive {
    pub(super) pep: *mut FidPep,
}

// SAFETY: used by one thread at a time, under the engine's lock.
unsafe impl Send for Passive {}

impl Passive {
    /// What events name it by.
    pub(crate) fn key(&self) -> usize {
        self.pep as usize
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let mut bytes = [0u8; 128];
        let mut len = bytes.len();
        // SAFETY: an open endpoint and as much room as is said.
        let code = unsafe {
            ((*(*self.pep).cm).getname)(&raw mut (*self.pep).fid, bytes.as_mut_ptr().cast(), &raw mut len)
        };
        if code == 0 { address_from(bytes.get(..len)?) } else { None }
    }

    /// Turns a request away.
    pub(crate) fn turn_away(&self, info: &Info) {
        // SAFETY: an open endpoint and the handle of a request that came to it.
        unsafe { ((*(*self.pep).cm).reject)(self.pep, (*info.ptr).handle, ptr::null(), 0) };
    }
}

impl Drop for Passive {
    fn drop(&mut self) {
        // SAFETY: open, and closed once.
        unsafe { close(self.pep.cast()) };
    }
}

/// A connected endpoint, or one that is to be.
pub(crate) struct Active {
    pub(super) ep: *mut FidEp,
}

// SAFETY: used by one thread at a time, under the engine's lock.
unsafe impl Send for Active {}

impl Active {
    /// What events name it by.
    pub(crate) fn key(&self) -> usize {
        self.ep as usize
    }

    /// Asks for a connection.
    pub(crate) fn connect(&self, address: SocketAddr) -> Result<(), i32> {
        let (bytes, _, _) = sockaddr(address);
        // SAFETY: an open endpoint and an address of its kind.
        let code = unsafe { ((*(*self.ep).cm).connect)(self.ep, bytes.as_ptr().cast(), ptr::null(), 0) };
        if code == 0 { Ok(()) } else { Err(-code) }
    }

    /// Takes the connection that it was made for.
    pub(crate) fn accept(&self) -> Result<(), i32> {
        // SAFETY: an open endpoint made from a request.
        let code = unsafe { ((*(*self.ep).cm).accept)(self.ep, ptr::null(), 0) };
        if code == 0 { Ok(()) } else { Err(-code) }
    }

    /// Posts a receive.
    ///
    /// # Safety
    /// The memory has no other user until the receive is done or the endpoint is closed.
    pub(crate) unsafe fn recv(&self, to: *mut u8, len: usize, desc: *mut c_void, context: u64) -> isize {
        // SAFETY: an open endpoint; the caller keeps the memory.
        unsafe { ((*(*self.ep).msg).recv)(self.ep, to.cast(), len, desc, 0, context as *mut c_void) }
    }

    /// Posts a send.
    ///
    /// # Safety
    /// The memory does not change until the send is done or the endpoint is closed.
    pub(crate) unsafe fn send(&self, from: *const u8, len: usize, desc: *mut c_void, context: u64) -> isize {
        // SAFETY: an open endpoint; the caller keeps the memory.
        unsafe { ((*(*self.ep).msg).send)(self.ep, from.cast(), len, desc, 0, context as *mut c_void) }
    }

    /// Sends bytes that are copied at once.
    ///
    /// # Safety
    /// There are so many bytes.
    pub(crate) unsafe fn inject(&self, from: *const u8, len: usize) -> isize {
        // SAFETY: an open endpoint; the caller's promise.
        unsafe { ((*(*self.ep).msg).inject)(self.ep, from.cast(), len, 0) }
    }

    /// Posts a send of a header and further places; more than the provider takes at once are refused by it.
    ///
    /// # Safety
    /// The memory does not change until the send is done or the endpoint is closed, and needs no registration.
    pub(crate) unsafe fn send_gathered(
        &self,
        start: &RawSegment,
        places: &[RawSegment],
        context: u64,
    ) -> isize {
        let place = |s: &RawSegment| libc::iovec { iov_base: s.addr.cast(), iov_len: s.len as usize };
        let all: SmallVec<[libc::iovec; 4]> = std::iter::once(start).chain(places).map(place).collect();
        // SAFETY: an open endpoint; the caller keeps the memory, and libfabric copies the list.
        unsafe {
            ((*(*self.ep).msg).sendv)(
                self.ep,
                all.as_ptr().cast(),
                ptr::null_mut(),
                all.len(),
                0,
                context as *mut c_void,
            )
        }
    }

    /// Ends the connection; the other end hears of it.
    pub(crate) fn shut_down(&self) {
        // SAFETY: an open endpoint.
        unsafe { ((*(*self.ep).cm).shutdown)(self.ep, 0) };
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        // SAFETY: open, and closed once.
        unsafe { close(self.ep.cast()) };
    }
}

/// Memory registered with a domain.
pub(crate) struct Registered {
    pub(super) mr: *mut FidMr,
}

// SAFETY: used by one thread at a time, under the engine's lock.
unsafe impl Send for Registered {}

impl Registered {
    /// What is passed along with buffers in it.
    pub(crate) fn desc(&self) -> *mut c_void {
        // SAFETY: open.
        unsafe { (*self.mr).mem_desc }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: open, and closed once.
        unsafe { close(self.mr.cast()) };
    }
}
