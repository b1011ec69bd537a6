//! Bounce buffers: shareable memory through which messages from and to private memory travel in pieces.
//!
//! One pool per NIC, made when first needed and shared by its connections with processes of the same user; and one for
//! each peer of another user, which nobody else may map. A buffer is free again when the peer has
//! fetched the piece in it, when the lane it was offered on has been wiped, or when the peer is dead; the pool finds
//! that out by itself, because the connection that offered it may be closed, or never be polled again.

use std::collections::HashMap;
use std::sync::Arc;

use viaduct_via::Error;
use viaduct_via::raw::RawMemory;

use super::mem::{Memory, Open};
use super::pair::Pair;
use super::shared::{Direction, View};
use super::sync::Ordering;

/// Bytes of a bounce buffer.
pub(crate) const BOUNCE: usize = 64 << 10;
/// Bounce buffers of a NIC.
pub(crate) const BOUNCES: usize = 32;

/// The same with a peer of another user.
const BOUNCES_ABROAD: usize = 8;

/// The pools of a NIC.
pub(crate) struct Bounces {
    memory: Memory,
    own: Bounce,
    abroad: HashMap<u64, Bounce>,
}

impl Bounces {
    pub(crate) fn new(memory: Memory) -> Bounces {
        Bounces { memory, own: Bounce::new(BOUNCES, Open::Users), abroad: HashMap::new() }
    }

    /// A free buffer for the n-th offer on a lane. An error if there never were any.
    pub(crate) fn take(
        &mut self,
        pair: &Arc<Pair>,
        direction: &View<Direction>,
        offer: u64,
    ) -> Result<Option<Taken>, Error> {
        if !pair.foreign {
            return self.own.take(&self.memory, pair, direction, offer);
        }
        // The pool of a dead one went with it.
        if pair.is_dead() {
            return Ok(None);
        }
        let made = self.abroad.entry(pair.id);
        let pool = made.or_insert_with(|| Bounce::new(BOUNCES_ABROAD, Open::Pair(pair.id)));
        pool.take(&self.memory, pair, direction, offer)
    }

    /// A peer is dead: what was on its way to it is free again.
    pub(crate) fn lost(&mut self, pair: u64) {
        self.own.collect();
        self.abroad.remove(&pair);
    }
}

/// A buffer that was taken; its memory stays as long as this.
pub(crate) struct Taken {
    pub(crate) slab: u32,
    pub(crate) offset: u64,
    pub(crate) at: *mut u8,
    _memory: Arc<RawMemory>,
}

/// A pool.
struct Bounce {
    count: usize,
    open: Open,
    block: Option<(Arc<RawMemory>, u32, u64)>,
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
    fn new(count: usize, open: Open) -> Bounce {
        Bounce { count, open, block: None, free: Vec::new(), out: Vec::new() }
    }

    fn take(
        &mut self,
        memory: &Memory,
        pair: &Arc<Pair>,
        direction: &View<Direction>,
        offer: u64,
    ) -> Result<Option<Taken>, Error> {
        if self.block.is_none() {
            let made = memory.allocate_open(BOUNCE * self.count, self.open)?;
            let at = made.locator.expect("memory of the NIC's allocator has a place");
            self.block = Some((Arc::new(made.memory), at.slab, at.offset));
            self.free = (0..self.count).rev().collect();
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
        let at = memory.ptr().wrapping_add(start);
        Ok(Some(Taken { slab: *slab, offset: offset + start as u64, at, _memory: memory.clone() }))
    }

    /// Takes back what is free again, and lets go of pairs that are dead.
    fn collect(&mut self) {
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
