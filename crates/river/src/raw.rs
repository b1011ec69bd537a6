//! The unsafe floor of River: slots of an arena, each used by one owner at a time.

use std::sync::Arc;

use viaduct_os::arena::Arena;
use viaduct_os::uring::Pinned;

use crate::buffer::Buffer;

/// One slot of an arena. Exactly one value exists per slot, so having it mutably means having the memory alone.
#[derive(Debug)]
pub(crate) struct Slot {
    arena: Arc<Arena>,
    offset: usize,
    len: usize,
}

/// Cuts an arena into slots of `size` bytes, each on a boundary of 4 KiB if `size` is a multiple of that.
pub(crate) fn slots(arena: Arena, size: usize) -> Vec<Slot> {
    let arena = Arc::new(arena);
    let count = arena.len() / size;
    (0..count).map(|n| Slot { arena: arena.clone(), offset: n * size, len: size }).collect()
}

impl Slot {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the range lies in the arena, which the slot keeps alive and which is initialised (zeroed) memory; slots do
        // not overlap, and writing needs the only `Slot` of the range mutably.
        unsafe { std::slice::from_raw_parts(self.arena.as_ptr().add(self.offset), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.arena.as_ptr().add(self.offset), self.len) }
    }

    /// Gives the slot's pages back to the kernel.
    pub(crate) fn discard(&mut self) {
        // SAFETY: the exclusive borrow says that no reference into the slot exists.
        unsafe { self.arena.discard(self.offset, self.len) };
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
