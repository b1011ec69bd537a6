//! The unsafe floor of River: slots of an arena or of registered memory, each used by one owner at a time.

use std::sync::Arc;

use viaduct_os::arena::Arena;
use viaduct_os::uring::Pinned;

use crate::buffer::Buffer;
use crate::net::Port;

/// The memory of one buffer. Exactly one value exists per slot, so having it mutably means having the memory alone.
pub(crate) enum Slot {
    /// A part of private memory.
    Private(Private),
    /// A part of memory that a NIC can send from and receive into.
    Registered(Registered),
}

/// One slot of an arena.
pub(crate) struct Private {
    arena: Arc<Arena>,
    offset: usize,
    len: usize,
}

/// One slot of a region that is registered with the NIC of a port.
pub(crate) struct Registered {
    pub(crate) memory: viaduct_via::Buffer,
    pub(crate) port: Port,
}

/// Cuts an arena into slots of `size` bytes, each on a boundary of 4 KiB if `size` is a multiple of that.
pub(crate) fn slots(arena: Arena, size: usize) -> Vec<Slot> {
    let arena = Arc::new(arena);
    let count = arena.len() / size;
    (0..count).map(|n| Slot::Private(Private { arena: arena.clone(), offset: n * size, len: size })).collect()
}

impl Slot {
    pub(crate) fn len(&self) -> usize {
        match self {
            Slot::Private(slot) => slot.len,
            Slot::Registered(slot) => slot.memory.len(),
        }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            // SAFETY: the range lies in the arena, which the slot keeps alive and which is initialised (zeroed) memory; slots
            // do not overlap, and writing needs the only `Slot` of the range mutably.
            Slot::Private(slot) => unsafe {
                std::slice::from_raw_parts(slot.arena.as_ptr().add(slot.offset), slot.len)
            },
            // SAFETY: the region is registered without remote access, so no peer has leave to write it; while a receive is
            // posted into it, the memory is in the descriptor and there is no `Slot`.
            Slot::Registered(slot) => unsafe { slot.memory.as_slice() },
        }
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            // SAFETY: as above, and this borrow is exclusive.
            Slot::Private(slot) => unsafe {
                std::slice::from_raw_parts_mut(slot.arena.as_ptr().add(slot.offset), slot.len)
            },
            // SAFETY: as above, and this borrow is exclusive.
            Slot::Registered(slot) => unsafe { slot.memory.as_mut_slice() },
        }
    }

    /// Gives the slot's pages back to the kernel; registered memory is kept.
    pub(crate) fn discard(&mut self) {
        if let Slot::Private(slot) = self {
            // SAFETY: the exclusive borrow says that no reference into the slot exists.
            unsafe { slot.arena.discard(slot.offset, slot.len) };
        }
    }
}

// SAFETY: the memory of a buffer is a slot of an arena or a boxed slice: neither moves with its owner, and the owner is the
// only one that can reach it.
unsafe impl Pinned for Buffer {
    fn place(&mut self) -> (*mut u8, usize) {
        let room = self.room_mut();
        (room.as_mut_ptr(), room.len())
    }
}
