//! Memory for messages. The owner of a [`Message`] may touch its bytes: while it is posted the ledger has it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::slice;

use smallvec::SmallVec;
use viaduct_via::Error;

use super::Inner;
use crate::ofi::endpoint::Registered;

const PAGE: usize = 4096;

/// Memory of one message, in one piece or several.
pub struct Message {
    pieces: SmallVec<[Piece; 1]>,
    /// Registered for this message alone.
    own: Option<Registration>,
    /// Keeps the memory.
    block: Rc<Block>,
}

/// Bytes of one message alone.
#[derive(Clone, Copy)]
struct Piece {
    at: NonNull<u8>,
    len: usize,
}

/// A registration, and the domain that it must not outlive.
struct Registration {
    memory: Registered,
    _inner: Rc<Inner>,
}

/// Memory of several messages.
struct Block {
    registered: Option<Registration>,
    start: NonNull<u8>,
    layout: Layout,
}

impl Drop for Block {
    fn drop(&mut self) {
        // The registration goes first.
        self.registered = None;
        // SAFETY: made with this layout, and freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl Message {
    pub(super) fn several(
        inner: &Rc<Inner>,
        count: usize,
        lengths: &[usize],
        step: usize,
        registered: bool,
    ) -> Result<Vec<Message>, Error> {
        if lengths.is_empty() || lengths.iter().any(|len| *len > step) {
            return Err(Error::InvalidParameter("pieces are no longer than the step between them"));
        }
        let too_much = || Error::Limit { what: "bytes of messages", limit: isize::MAX as u64 };
        let len =
            step.checked_mul(lengths.len()).and_then(|one| one.checked_mul(count)).ok_or_else(too_much)?;
        let layout = Layout::from_size_align(len.max(1), PAGE).map_err(|_| too_much())?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(too_much)?;
        let mut block = Block { registered: None, start, layout };
        for page in (0..len).step_by(PAGE) {
            // SAFETY: within the memory, which has no other user yet.
            unsafe { start.add(page).write_volatile(0) };
        }
        if registered && len > 0 {
            // SAFETY: the block keeps the memory, and gives up its registration first.
            block.registered = Some(unsafe { register(inner, start.as_ptr(), len)? });
        }
        let block = Rc::new(block);
        let message = |number: usize| {
            let piece = |(index, len): (usize, &usize)| Piece {
                // SAFETY: the memory has a step for every piece of every message.
                at: unsafe { start.add((number * lengths.len() + index) * step) },
                len: *len,
            };
            let pieces = lengths.iter().enumerate().map(piece).collect();
            Message { pieces, own: None, block: block.clone() }
        };
        Ok((0..count).map(message).collect())
    }

    /// How many pieces it has.
    #[inline]
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The bytes of a piece.
    ///
    /// # Panics
    /// If there is no such piece.
    #[inline]
    pub fn bytes(&self, piece: usize) -> &[u8] {
        let Piece { at, len } = self.pieces[piece];
        // SAFETY: the memory lives as long as the block, has no other message in it, and is not posted: the ledger would
        // own the message.
        unsafe { slice::from_raw_parts(at.as_ptr(), len) }
    }

    /// The bytes of a piece, to be written.
    ///
    /// # Panics
    /// If there is no such piece.
    #[inline]
    pub fn bytes_mut(&mut self, piece: usize) -> &mut [u8] {
        let Piece { at, len } = self.pieces[piece];
        // SAFETY: as above, and the message is borrowed once.
        unsafe { slice::from_raw_parts_mut(at.as_ptr(), len) }
    }

    /// Registers its only piece for it alone, whatever else is registered.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a message in pieces; [`Error::Transport`] with libfabric's cause.
    pub fn register(&mut self, domain: &super::Domain) -> Result<(), Error> {
        let [piece] = self.pieces[..] else {
            return Err(Error::InvalidParameter("a message in several pieces is registered as a whole"));
        };
        // SAFETY: the block keeps the memory; the registration goes before it, see the order of the fields.
        self.own = Some(unsafe { register(&domain.inner, piece.at.as_ptr(), piece.len)? });
        Ok(())
    }

    /// Gives that registration up.
    pub fn deregister(&mut self) {
        self.own = None;
    }

    /// Where it lies, for a call that takes one piece: address, length, and what its registration gives.
    pub(super) fn whole(&self) -> Option<(*mut u8, usize, *mut c_void)> {
        match self.pieces[..] {
            [piece] => Some((piece.at.as_ptr(), piece.len, self.desc())),
            _ => None,
        }
    }

    /// What a call that takes several pieces wants to know of each.
    pub(super) fn places(&self) -> (SmallVec<[libc::iovec; 8]>, SmallVec<[*mut c_void; 8]>) {
        let place = |p: &Piece| libc::iovec { iov_base: p.at.as_ptr().cast(), iov_len: p.len };
        (self.pieces.iter().map(place).collect(), self.pieces.iter().map(|_| self.desc()).collect())
    }

    #[inline]
    fn desc(&self) -> *mut c_void {
        let registration = self.own.as_ref().or(self.block.registered.as_ref());
        registration.map_or(ptr::null_mut(), |r| r.memory.desc())
    }
}

/// # Safety
/// The memory stays until the registration is dropped.
unsafe fn register(inner: &Rc<Inner>, start: *mut u8, len: usize) -> Result<Registration, Error> {
    // SAFETY: the caller's promise.
    let memory = unsafe { inner.fabric.register(start, len)? };
    Ok(Registration { memory, _inner: inner.clone() })
}
