//! Bounce buffers: shareable memory through which messages from and to private memory travel in pieces.
//!
//! Each pair has a pool of its own, made when a message first needs it: a peer that fetches nothing holds up its own
//! connections and those of no other peer, and no third process can look into the pool. The peer is given the
//! segment before the first piece is offered, so that it can fetch what was sent after this process has ended. A
//! buffer is free again when the peer has fetched the piece in it, when the lane it was offered on has been wiped, or
//! when the peer is dead; the pool finds that out by itself, because the connection that offered it may be closed, or
//! never be polled again.

use std::collections::HashMap;
use std::sync::Arc;

use viaduct_os::segment::Segment;
use viaduct_via::Error;
use viaduct_via::raw::RawMemory;

use super::lane::LaneId;
use super::mem::Memory;
use super::pair::Pair;
use super::shared::{Direction, View};
use super::sync::Ordering;

/// Bytes of a bounce buffer.
pub(crate) const BOUNCE: usize = 64 << 10;
/// Bounce buffers of a pair.
pub(crate) const BOUNCES: usize = 16;
/// Buffers that one message may take all at once: no lane has more than it leaves to the others.
pub(crate) const MOST_AT_ONCE: usize = BOUNCES / 2;

/// The pools of a NIC, by pair.
pub(crate) struct Bounces {
    memory: Memory,
    pools: HashMap<u64, Pool>,
}

impl Bounces {
    pub(crate) fn new(memory: Memory) -> Bounces {
        Bounces { memory, pools: HashMap::new() }
    }

    /// The pool's slab, with its segment for the peer; makes the pool if there is none yet. None once the peer is dead.
    pub(crate) fn slab(&mut self, pair: &Pair) -> Result<Option<(u32, Arc<Segment>)>, Error> {
        if pair.is_dead() {
            return Ok(None);
        }
        if !self.pools.contains_key(&pair.id) {
            self.pools.insert(pair.id, Pool::new(&self.memory)?);
        }
        let pool = &self.pools[&pair.id];
        Ok(Some((pool.slab, pool.segment.clone())))
    }

    /// A free buffer for the n-th offer on a lane, if there is one and the lane has not its share already.
    pub(crate) fn take(
        &mut self,
        pair: &Arc<Pair>,
        lane: LaneId,
        to: &View<Direction>,
        offer: u64,
    ) -> Option<Taken> {
        self.pools.get_mut(&pair.id)?.take(pair, lane, to, offer)
    }

    /// So many free buffers, for offers from the n-th on; all of them or none.
    pub(crate) fn take_all(
        &mut self,
        pair: &Arc<Pair>,
        lane: LaneId,
        to: &View<Direction>,
        offer: u64,
        count: usize,
    ) -> Option<[Option<Taken>; MOST_AT_ONCE]> {
        let pool = self.pools.get_mut(&pair.id)?;
        if !pool.has_shares(lane, count) {
            pool.collect();
        }
        if !pool.has_shares(lane, count) {
            return None;
        }
        let mut taken = [const { None }; MOST_AT_ONCE];
        for (n, place) in taken.iter_mut().take(count).enumerate() {
            *place = pool.take(pair, lane, to, offer + n as u64);
        }
        Some(taken)
    }

    /// A peer is dead: its pool goes with it.
    pub(crate) fn lost(&mut self, pair: u64) {
        self.pools.remove(&pair);
    }
}

/// A buffer that was taken; its memory stays as long as this.
pub(crate) struct Taken {
    pub(crate) slab: u32,
    pub(crate) offset: u64,
    pub(crate) at: *mut u8,
    _memory: Arc<RawMemory>,
}

/// The bounce buffers of one pair.
struct Pool {
    memory: Arc<RawMemory>,
    segment: Arc<Segment>,
    slab: u32,
    /// Where the buffers begin in the slab.
    offset: u64,
    free: Vec<usize>,
    out: Vec<Out>,
}

/// A buffer on its way.
struct Out {
    number: usize,
    pair: Arc<Pair>,
    lane: LaneId,
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

impl Pool {
    fn new(memory: &Memory) -> Result<Pool, Error> {
        let (made, segment) = memory.allocate_bounces(BOUNCE * BOUNCES)?;
        let at = made.locator.expect("memory of the NIC's allocator has a place");
        Ok(Pool {
            memory: Arc::new(made.memory),
            segment,
            slab: at.slab,
            offset: at.offset,
            free: (0..BOUNCES).rev().collect(),
            out: Vec::with_capacity(BOUNCES),
        })
    }

    fn take(
        &mut self,
        pair: &Arc<Pair>,
        lane: LaneId,
        direction: &View<Direction>,
        offer: u64,
    ) -> Option<Taken> {
        if !self.has_shares(lane, 1) {
            self.collect();
            if !self.has_shares(lane, 1) {
                return None;
            }
        }
        let number = self.free.pop()?;
        let epoch = direction.flags.epoch.load(Ordering::Relaxed);
        let (pair, direction) = (pair.clone(), direction.clone());
        self.out.push(Out { number, pair, lane, direction, epoch, offer });
        let start = number * BOUNCE;
        let at = self.memory.ptr().wrapping_add(start);
        let offset = self.offset + start as u64;
        Some(Taken { slab: self.slab, offset, at, _memory: self.memory.clone() })
    }

    /// Whether a lane may take so many more: it never has more than are left for the others, so that one connection whose
    /// receiver does not fetch leaves buffers to the rest.
    fn has_shares(&self, lane: LaneId, more: usize) -> bool {
        let has = self.out.iter().filter(|out| out.lane == lane).count();
        has + 2 * more <= self.free.len() + 1
    }

    /// Takes back what is free again.
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
