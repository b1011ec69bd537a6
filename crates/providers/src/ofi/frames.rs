//! Memory of one connection: buffers in which frames arrive and from which they leave.
//!
//! A connection that has not proved to be of this job has two small buffers each way, for the two greetings that it may
//! send and the two that it may hear ([`GREETINGS`]). The others come with the proof ([`Frames::grow`]): pages that cost
//! nothing until they are used. The last buffer that became free is the next to send from, so that a quiet connection
//! touches few of them.
//!
//! ```text
//!   number       0 ... receiving-1     receiving ... receiving+1
//!   receives     of `size` bytes       of GREETING bytes             likewise for those that send
//! ```

use std::ffi::c_void;
use std::ptr;

use viaduct_os::budget::{Budget, Charge};
use viaduct_os::pages::Pages;
use viaduct_via::Error;

use super::endpoint::Registered;
use super::fabric::Fabric;
use super::wire::{HEAD, Hello};

/// Buffers of each direction for what is said before the proof: a request and a proof, a challenge and an answer.
pub(crate) const GREETINGS: usize = 2;
/// Bytes of each.
pub(crate) const GREETING: usize = 1024;

const _: () = assert!(HEAD + size_of::<Hello>() <= GREETING);

/// The buffers of one connection.
pub(crate) struct Frames {
    greetings: Option<Block>,
    main: Option<Block>,
    /// Bytes of a buffer that receives, and of one that sends.
    pub(crate) size: usize,
    pub(crate) send_size: usize,
    /// How many receive, and how many send, besides those for greetings.
    pub(crate) receiving: usize,
    pub(crate) sending: usize,
}

/// Memory that libfabric may use.
struct Block {
    /// Dropped before the memory goes.
    registered: Option<Registered>,
    pages: Pages,
    _charge: Charge,
}

impl Block {
    fn new(fabric: &Fabric, bytes: usize, budget: &Budget) -> Result<Block, Error> {
        let charge = budget.charge(bytes as u64)?;
        let mut block = Block { registered: None, pages: Pages::new(bytes)?, _charge: charge };
        if fabric.info.registers_buffers() {
            // SAFETY: the pages go after the registration, by the order of the fields.
            block.registered = Some(unsafe { fabric.register(block.pages.as_ptr(), bytes)? });
        }
        Ok(block)
    }

    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.pages.len() && len <= self.pages.len() - offset, "outside of the block");
        // SAFETY: inside of the pages, which was just checked.
        unsafe { self.pages.as_ptr().add(offset) }
    }

    fn desc(&self) -> *mut c_void {
        self.registered.as_ref().map_or(ptr::null_mut(), Registered::desc)
    }
}

impl Frames {
    /// Buffers for greetings alone.
    pub(crate) fn small(
        fabric: &Fabric,
        (size, send_size): (usize, usize),
        receiving: usize,
        sending: usize,
        budget: &Budget,
    ) -> Result<Frames, Error> {
        let greetings = Some(Block::new(fabric, 2 * GREETINGS * GREETING, budget)?);
        Ok(Frames { greetings, main: None, size, send_size, receiving, sending })
    }

    /// All but those for greetings.
    pub(crate) fn full(
        fabric: &Fabric,
        (size, send_size): (usize, usize),
        receiving: usize,
        sending: usize,
        budget: &Budget,
    ) -> Result<Frames, Error> {
        let mut frames = Frames { greetings: None, main: None, size, send_size, receiving, sending };
        frames.grow(fabric, budget)?;
        Ok(frames)
    }

    /// Makes the buffers that a connection of this job has.
    pub(crate) fn grow(&mut self, fabric: &Fabric, budget: &Budget) -> Result<(), Error> {
        let bytes = self.size * self.receiving + self.send_size * self.sending;
        self.main = Some(Block::new(fabric, bytes, budget)?);
        Ok(())
    }

    /// Whether there are more than those for greetings.
    pub(crate) fn is_grown(&self) -> bool {
        self.main.is_some()
    }

    /// The buffer in which frames arrive with this number, and how long it is.
    pub(crate) fn receive(&self, number: usize) -> (*mut u8, usize) {
        match number.checked_sub(self.receiving) {
            None => (self.block(true).at(number * self.size, self.size), self.size),
            Some(n) => (self.block(false).at(n * GREETING, GREETING), GREETING),
        }
    }

    /// The buffer from which frames leave with this number.
    pub(crate) fn send(&self, number: usize) -> *mut u8 {
        match number.checked_sub(self.sending) {
            None => {
                let offset = self.receiving * self.size + number * self.send_size;
                self.block(true).at(offset, self.send_size)
            }
            Some(n) => self.block(false).at((GREETINGS + n) * GREETING, GREETING),
        }
    }

    /// Bytes of a buffer in which a frame has arrived.
    ///
    /// # Safety
    /// The receive is done and is not posted again as long as the bytes are used, which the lifetime does not say.
    pub(crate) unsafe fn arrived<'a>(&self, number: usize, offset: usize, len: usize) -> &'a [u8] {
        let (memory, size) = self.receive(number);
        assert!(offset <= size && len <= size - offset, "outside of the buffer");
        // SAFETY: inside the buffer, and nothing writes there (the caller's promise).
        unsafe { std::slice::from_raw_parts(memory.add(offset), len) }
    }

    /// What libfabric wants to know of the memory of a buffer that receives.
    pub(crate) fn receive_desc(&self, number: usize) -> *mut c_void {
        self.block(number < self.receiving).desc()
    }

    /// What libfabric wants to know of the memory of a buffer that sends.
    pub(crate) fn send_desc(&self, number: usize) -> *mut c_void {
        self.block(number < self.sending).desc()
    }

    fn block(&self, main: bool) -> &Block {
        let block = if main { &self.main } else { &self.greetings };
        block.as_ref().expect("numbers are given out for buffers that there are")
    }
}
