//! What lies in shared memory, as types over mapped segments: the one file that turns addresses into references.
//!
//! A reference here points to atomics only, so a peer may write at any time. Ranges are checked against the segment
//! once, when a view is made; the view keeps the segment mapped.

use std::ops::Deref;
use std::sync::Arc;

use viaduct_os::bell::BellWord;
use viaduct_os::segment::Segment;

use super::directory::Entry;
use super::doorbell::Doorbells;
use super::ring::Slot;
use super::sync::{AtomicU32, AtomicU64, Ordering};
use crate::bell::HasBell;

/// What every NIC lets its peers write: its bell and its doorbells.
#[repr(C, align(64))]
pub(crate) struct NicPage {
    pub(crate) bell: BellWord,
    pub(crate) doorbells: Doorbells,
}

/// Written by the sender of a direction.
#[repr(C, align(64))]
pub(crate) struct TxLine {
    /// 1 once the sender will send no more; 2 + status if one of *our* messages failed at its side.
    pub(crate) closed: AtomicU32,
    /// Odd while the sender copies into the receiver's memory.
    pub(crate) busy: AtomicU32,
    /// The sender waits for room or for an acknowledgement.
    pub(crate) waiting: AtomicU32,
}

/// Written by the receiver of a direction, seldom.
#[repr(C, align(64))]
pub(crate) struct FlagLine {
    /// The receiver does not look at the ring: announce by doorbell.
    pub(crate) armed: AtomicU32,
    /// The receiver's buffers must not be touched any more.
    pub(crate) closed: AtomicU32,
    /// Which use of the lane this is; the one word that wiping changes instead of clearing.
    pub(crate) epoch: AtomicU32,
}

/// Written by the receiver of a direction, often.
#[repr(C, align(64))]
pub(crate) struct CountLine {
    /// Ring entries used up.
    pub(crate) consumed: AtomicU64,
    /// Receive descriptors published.
    pub(crate) receives: AtomicU64,
    /// Messages completed (kept up to date for reliable reception).
    pub(crate) messages: AtomicU64,
    /// Pieces fetched from the sender's memory.
    pub(crate) pulled: AtomicU64,
}

/// A published receive descriptor.
#[repr(C, align(16))]
pub(crate) struct PostedRecv {
    /// Length (low 32 bits) and slab (high 32 bits); slab `u32::MAX` says "not reachable from outside".
    pub(crate) place: AtomicU64,
    /// Offset within the slab.
    pub(crate) offset: AtomicU64,
}

/// Receive descriptors published at most.
pub(crate) const RECVS: usize = 64;

/// One direction of a connection, but for the ring that follows.
#[repr(C, align(64))]
pub(crate) struct Direction {
    pub(crate) tx: TxLine,
    pub(crate) flags: FlagLine,
    pub(crate) counts: CountLine,
    pub(crate) posted: [PostedRecv; RECVS],
}

/// Bytes of a lane: two directions with rings of `slots` entries.
pub(crate) fn lane_bytes(slots: usize) -> usize {
    2 * direction_bytes(slots)
}

fn direction_bytes(slots: usize) -> usize {
    size_of::<Direction>() + slots * size_of::<Slot>()
}

/// A value at a fixed place of a segment.
pub(crate) struct View<T> {
    at: *const T,
    segment: Arc<Segment>,
}

// SAFETY: T is made of atomics (only the types above are viewed) and the segment, which is Send and Sync, keeps it.
unsafe impl<T> Send for View<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for View<T> {}

impl<T> View<T> {
    /// None if it does not lie inside the segment, aligned. Private: T must be valid for any bytes (atomics are).
    fn at(segment: &Arc<Segment>, offset: usize) -> Option<View<T>> {
        let inside = offset.checked_add(size_of::<T>())? <= segment.len();
        if !inside || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        Some(View { at: segment.as_ptr().wrapping_add(offset).cast::<T>(), segment: segment.clone() })
    }
}

impl<T> Clone for View<T> {
    fn clone(&self) -> View<T> {
        View { at: self.at, segment: self.segment.clone() }
    }
}

impl<T> Deref for View<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: inside the mapped segment and aligned (checked in `at`), kept mapped by self, all atomics.
        unsafe { &*self.at }
    }
}

impl View<NicPage> {
    /// The page of a NIC.
    pub(crate) fn nic_page(segment: &Arc<Segment>) -> Option<View<NicPage>> {
        View::at(segment, 0)
    }
}

impl HasBell for View<NicPage> {
    fn word(&self) -> &BellWord {
        &self.bell
    }
}

/// The ring entries of a direction.
pub(crate) struct Slots {
    at: *const Slot,
    count: usize,
    _segment: Arc<Segment>,
}

// SAFETY: slots are made of atomics; the segment keeps them mapped.
unsafe impl Send for Slots {}

impl Deref for Slots {
    type Target = [Slot];

    #[inline]
    fn deref(&self) -> &[Slot] {
        // SAFETY: the range was checked against the segment when the lane was opened, and is kept mapped.
        unsafe { std::slice::from_raw_parts(self.at, self.count) }
    }
}

/// One direction of a lane, opened: its words and its ring. None if it does not fit into the segment.
pub(crate) fn direction(
    segment: &Arc<Segment>,
    lane: usize,
    slots: usize,
    which: usize,
) -> Option<(View<Direction>, Slots)> {
    if !slots.is_power_of_two() || which > 1 {
        return None;
    }
    let ring_bytes = slots.checked_mul(size_of::<Slot>())?;
    let whole = size_of::<Direction>().checked_add(ring_bytes)?;
    let offset = lane.checked_add(whole.checked_mul(which)?)?;
    let words: View<Direction> = View::at(segment, offset)?;
    let ring = offset + size_of::<Direction>();
    if ring.checked_add(ring_bytes)? > segment.len() {
        return None;
    }
    let at = segment.as_ptr().wrapping_add(ring).cast::<Slot>();
    Some((words, Slots { at, count: slots, _segment: segment.clone() }))
}

/// Makes a lane as if fresh from the kernel. Our end no longer uses it, and the peer has said the same of its own; one that
/// lied may store into it at any time.
pub(crate) fn wipe_lane(segment: &Segment, lane: usize, slots: usize) {
    let len = lane_bytes(slots);
    assert!(lane + len <= segment.len() && lane.is_multiple_of(8), "lane outside its segment");
    let epochs = [0, 1].map(|which| {
        let offset = lane + which * direction_bytes(slots) + std::mem::offset_of!(Direction, flags.epoch);
        // SAFETY: inside the lane, which is inside the mapped segment; an aligned atomic.
        unsafe { &*segment.as_ptr().add(offset).cast::<AtomicU32>() }
    });
    let values = epochs.map(|e| e.load(Ordering::Relaxed).wrapping_add(1));
    // SAFETY: inside the mapped segment; lanes begin at whole lines and have whole words; atomics, whatever the peer does.
    let words =
        unsafe { std::slice::from_raw_parts(segment.as_ptr().add(lane).cast::<AtomicU64>(), len / 8) };
    words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    epochs.iter().zip(values).for_each(|(e, v)| e.store(v, Ordering::Release));
}

/// Entries of the region directory in a segment.
pub(crate) struct Entries {
    at: *const Entry,
    count: usize,
    _segment: Arc<Segment>,
}

// SAFETY: entries are made of atomics; the segment keeps them mapped.
unsafe impl Send for Entries {}
// SAFETY: as above.
unsafe impl Sync for Entries {}

impl Entries {
    /// The whole segment as directory entries.
    pub(crate) fn of(segment: &Arc<Segment>) -> Entries {
        let count = segment.len() / size_of::<Entry>();
        Entries { at: segment.as_ptr().cast(), count, _segment: segment.clone() }
    }
}

impl Deref for Entries {
    type Target = [Entry];

    #[inline]
    fn deref(&self) -> &[Entry] {
        // SAFETY: count entries fit into the mapped segment, which starts at a page; all atomics. A peer's directory
        // is mapped read only and only loaded from.
        unsafe { std::slice::from_raw_parts(self.at, self.count) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use viaduct_os::budget::Budget;

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn views_stay_inside() {
        let segment = Arc::new(Segment::create("viaduct-test", 65_536, &Budget::new(1 << 20)).unwrap());
        let slots = 64;
        assert!(direction(&segment, 0, slots, 1).is_some());
        assert!(direction(&segment, 65_536 - lane_bytes(slots), slots, 1).is_some());
        for (lane, slots, which) in [
            (65_536, slots, 0),
            (65_536 - 64, slots, 0),
            (1, slots, 0),
            (usize::MAX, slots, 1),
            (0, 1 << 60, 0),
            (0, 48, 0),
            (0, 64, 2),
        ] {
            assert!(direction(&segment, lane, slots, which).is_none(), "{lane} {slots} {which}");
        }
        assert_eq!(size_of::<NicPage>() % 64, 0);
        assert_eq!(size_of::<Direction>(), 3 * 64 + RECVS * 16);
    }
}
