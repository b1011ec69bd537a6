//! Bounce buffers: shareable memory through which messages from and to private memory travel in pieces.
//!
//! One pool per NIC, made when first needed and shared by its connections. A buffer is free again when the peer has
//! fetched the piece in it, when the lane it was offered on has been wiped, or when the peer is dead; the pool finds
//! that out by itself, because the connection that offered it may be closed, or never be polled again.

use std::sync::Arc;

use viaduct_via::Error;
use viaduct_via::raw::RawMemory;

use super::mem::Memory;
use super::pair::Pair;
use super::shared::{Direction, View};
use super::sync::Ordering;

/// Bytes of a bounce buffer.
pub(crate) const BOUNCE: usize = 64 << 10;
/// Bounce buffers of a NIC.
pub(crate) const BOUNCES: usize = 32;

/// The pool.
pub(crate) struct Bounce {
    memory: Memory,
    block: Option<(RawMemory, u32, u64)>,
    free: Vec<usize>,
    out: Vec<Out>,
}

/// A buffer on its way.
struct Out {
    number: usize,
    pair: Arc<Pair>,
    direction: View<Direction>,
    epoch: u32,
    /// It was the n-th offer on that lane.
    offer: u64,
}

impl Out {
    fn is_back(&self) -> bool {
        self.direction.flags.epoch.load(Ordering::Acquire) != self.epoch
            || self.direction.counts.pulled.load(Ordering::Acquire) >= self.offer
            || self.pair.is_dead()
    }
}

impl Bounce {
    pub(crate) fn new(memory: Memory) -> Bounce {
        Bounce { memory, block: None, free: Vec::new(), out: Vec::new() }
    }

    /// A free buffer for the n-th offer on a lane: its slab and offset, its address. An error if there never were any.
    pub(crate) fn take(
        &mut self,
        pair: &Arc<Pair>,
        direction: &View<Direction>,
        offer: u64,
    ) -> Result<Option<(u32, u64, *mut u8)>, Error> {
        if self.block.is_none() {
            let made = self.memory.allocate_open(BOUNCE * BOUNCES)?;
            let at = made.locator.expect("memory of the NIC's allocator has a place");
            self.block = Some((made.memory, at.slab, at.offset));
            self.free = (0..BOUNCES).rev().collect();
        }
        if self.free.is_empty() {
            self.collect();
        }
        let (Some((memory, slab, offset)), Some(number)) = (self.block.as_ref(), self.free.pop()) else {
            return Ok(None);
        };
        let epoch = direction.flags.epoch.load(Ordering::Relaxed);
        self.out.push(Out { number, pair: pair.clone(), direction: direction.clone(), epoch, offer });
        let start = number * BOUNCE;
        Ok(Some((*slab, offset + start as u64, memory.ptr().wrapping_add(start))))
    }

    /// Takes back what is free again, and lets go of pairs that are dead.
    pub(crate) fn collect(&mut self) {
        let free = &mut self.free;
        self.out.retain(|out| {
            let back = out.is_back();
            if back {
                free.push(out.number);
            }
            !back
        });
    }
}
