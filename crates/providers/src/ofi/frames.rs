//! Memory of one connection: buffers in which frames arrive and from which they leave.
//!
//! One block for all, of pages that cost nothing until they are used. The last buffer that became free is the next to be
//! used, so that a quiet connection touches few of them.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::ptr;

use viaduct_os::budget::{Budget, Charge};
use viaduct_via::Error;

use super::endpoint::Registered;
use super::fabric::Fabric;

const PAGE: usize = 4096;

/// The buffers of one connection.
pub(crate) struct Frames {
    /// Dropped before the memory goes.
    registered: Option<Registered>,
    memory: *mut u8,
    layout: Layout,
    /// Bytes of a buffer that receives, and of one that sends.
    pub(crate) size: usize,
    pub(crate) send_size: usize,
    /// How many receive, and how many send.
    pub(crate) receiving: usize,
    pub(crate) sending: usize,
    _charge: Charge,
}

// SAFETY: plain memory that the engine's lock guards.
unsafe impl Send for Frames {}

impl Frames {
    pub(crate) fn new(
        fabric: &Fabric,
        (size, send_size): (usize, usize),
        receiving: usize,
        sending: usize,
        budget: &Budget,
    ) -> Result<Frames, Error> {
        let bytes = size * receiving + send_size * sending;
        let charge = budget.charge(bytes as u64)?;
        let layout = Layout::from_size_align(bytes, PAGE).expect("a few megabytes");
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            return Err(Error::Limit { what: "memory for a connection", limit: bytes as u64 });
        }
        let mut frames =
            Frames { registered: None, memory, layout, size, send_size, receiving, sending, _charge: charge };
        if fabric.info.registers_buffers() {
            // SAFETY: the memory is freed after the registration, by drop.
            frames.registered = Some(unsafe { fabric.register(memory, bytes)? });
        }
        Ok(frames)
    }

    /// The buffer in which frames arrive with this number.
    pub(crate) fn receive(&self, number: usize) -> *mut u8 {
        assert!(number < self.receiving, "no such buffer");
        // SAFETY: inside the block.
        unsafe { self.memory.add(number * self.size) }
    }

    /// The buffer from which frames leave with this number.
    pub(crate) fn send(&self, number: usize) -> *mut u8 {
        assert!(number < self.sending, "no such buffer");
        // SAFETY: inside the block.
        unsafe { self.memory.add(self.receiving * self.size + number * self.send_size) }
    }

    /// Bytes of a buffer in which a frame has arrived.
    ///
    /// # Safety
    /// The receive is done and is not posted again as long as the bytes are used, which the lifetime does not say.
    pub(crate) unsafe fn arrived<'a>(&self, number: usize, offset: usize, len: usize) -> &'a [u8] {
        assert!(offset <= self.size && len <= self.size - offset, "outside of the buffer");
        // SAFETY: inside the buffer, and nobody writes there (the caller's promise).
        unsafe { std::slice::from_raw_parts(self.receive(number).add(offset), len) }
    }

    /// What libfabric wants to know of the memory.
    pub(crate) fn desc(&self) -> *mut c_void {
        self.registered.as_ref().map_or(ptr::null_mut(), Registered::desc)
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.registered = None;
        // SAFETY: made with this layout, and freed once.
        unsafe { dealloc(self.memory, self.layout) };
    }
}
