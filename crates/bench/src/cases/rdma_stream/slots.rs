//! What both streams of RDMA writes have: slots in the target's memory that are written in turn, and a count of what was
//! read from them.

use viaduct_via::{Descriptor, Op};

use crate::error::Result;
use crate::layers::lent::Lent;
use crate::layers::via::Place;

/// Writes of the target that may be under way.
pub(super) const CREDITS: usize = 4;

/// One end.
pub(super) struct Slots {
    pub(super) place: Place,
    pub(super) lent: Lent,
    /// Writes of messages that are not posted.
    pub(super) spare: Vec<Descriptor>,
    /// Writes by which the target gives room back, not posted.
    pub(super) credits: Vec<Descriptor>,
    /// Bytes from one slot to the next.
    slot: usize,
    pub(super) window: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
    /// What the writer was last told about `received`.
    pub(super) told: u64,
    pub(super) scratch: Vec<u8>,
}

impl Slots {
    pub(super) fn join(mut place: Place) -> Result<Slots> {
        let (size, window) = (place.variant.size, place.variant.window);
        let slot = size.next_multiple_of(64);
        // Behind the slots there is a line for the number of messages that the target has read.
        let lent = Lent::join(&mut place, slot * window + 64, window + CREDITS)?;
        let spare = lent.descriptors(&mut place, Op::RdmaWrite, window, size)?;
        let credits = lent.descriptors(&mut place, Op::RdmaWrite, CREDITS, 8)?;
        let (window, scratch) = (window as u64, vec![0; size]);
        Ok(Slots { place, lent, spare, credits, slot, window, sent: 0, received: 0, told: 0, scratch })
    }

    /// Where a message lies.
    #[inline(always)]
    pub(super) fn slot_of(&self, seq: u64) -> usize {
        (seq % self.window) as usize * self.slot
    }

    /// Where the number of messages read is kept.
    #[inline(always)]
    pub(super) fn counter(&self) -> usize {
        self.slot * self.window as usize
    }

    /// The writer has to hear of what was read.
    #[inline(always)]
    pub(super) fn is_due(&self) -> bool {
        self.received - self.told >= (self.window / 4).max(1)
    }
}
