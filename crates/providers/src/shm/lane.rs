//! Lanes: the shared memory of connections, cut from segments that belong to one pair of NICs.
//!
//! The accepting side makes the lane. It is used again once both sides have let go of it; segments grow with the
//! number of connections, so that ten thousand idle ones cost megabytes.

use std::collections::HashMap;
use std::sync::Arc;

use viaduct_os::budget::Budget;
use viaduct_os::segment::Segment;
use viaduct_via::Error;

use super::shared::{lane_bytes, wipe_lane};

/// Lanes of the first segment.
const FIRST: usize = 8;
/// Lanes of a later segment at most.
const MOST: usize = 256;

/// Names a lane within a pair; the number of the segment is its maker's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LaneId {
    /// Whether this NIC made it.
    pub(crate) ours: bool,
    pub(crate) slab: u32,
    pub(crate) offset: u32,
}

/// The lanes of one pair, made by us and by the peer.
#[derive(Default)]
pub(crate) struct Lanes {
    segments: Vec<Arc<Segment>>,
    free: Vec<(u32, u32)>,
    /// Lanes in use that we made: whether we, whether the peer, has let go.
    used: HashMap<(u32, u32), (bool, bool)>,
    theirs: HashMap<u32, Arc<Segment>>,
    slots: usize,
}

impl Lanes {
    pub(crate) fn new(slots: usize) -> Lanes {
        Lanes { slots, ..Lanes::default() }
    }

    pub(crate) fn in_use(&self) -> usize {
        self.used.len()
    }

    /// Makes a lane.
    pub(crate) fn make(&mut self, budget: &Budget) -> Result<(LaneId, Arc<Segment>), Error> {
        if self.free.is_empty() {
            let lanes = (FIRST << self.segments.len().min(8)).min(MOST);
            let size = lane_bytes(self.slots);
            let segment = Arc::new(Segment::create("viaduct-lanes", lanes * size, budget)?);
            let slab = self.segments.len() as u32;
            self.free.extend((0..lanes).rev().map(|i| (slab, (i * size) as u32)));
            self.segments.push(segment);
        }
        let (slab, offset) = self.free.pop().expect("filled above");
        self.used.insert((slab, offset), (false, false));
        Ok((LaneId { ours: true, slab, offset }, self.segments[slab as usize].clone()))
    }

    /// A lane the peer made, in a segment it has sent (now or earlier).
    pub(crate) fn take_theirs(&mut self, slab: u32, sent: Segment) -> Arc<Segment> {
        self.theirs.entry(slab).or_insert_with(|| Arc::new(sent)).clone()
    }

    /// We let go of a lane. Whether the peer has to be told.
    pub(crate) fn let_go(&mut self, lane: LaneId) -> bool {
        if !lane.ours {
            return true;
        }
        self.mark_let_go((lane.slab, lane.offset), |state| state.0 = true);
        false
    }

    /// The peer let go of a lane of ours. Nonsense is ignored.
    pub(crate) fn peer_let_go(&mut self, slab: u32, offset: u32) {
        self.mark_let_go((slab, offset), |state| state.1 = true);
    }

    fn mark_let_go(&mut self, lane: (u32, u32), f: impl FnOnce(&mut (bool, bool))) {
        let Some(state) = self.used.get_mut(&lane) else { return };
        f(state);
        if *state == (true, true) {
            self.used.remove(&lane);
            wipe_lane(&self.segments[lane.0 as usize], lane.1 as usize, self.slots);
            self.free.push(lane);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn a_lane_is_used_again_only_when_both_let_go() {
        let budget = Budget::new(8 << 20);
        let mut lanes = Lanes::new(64);
        let (a, _) = lanes.make(&budget).unwrap();
        let (b, _) = lanes.make(&budget).unwrap();
        assert_ne!(a, b);
        assert!(!lanes.let_go(a));
        assert_eq!(lanes.in_use(), 2, "the peer still has it");
        lanes.peer_let_go(a.slab, a.offset);
        lanes.peer_let_go(77, 1);
        assert_eq!(lanes.in_use(), 1);
        assert_eq!(lanes.make(&budget).unwrap().0, a);
        for _ in 0..100 {
            lanes.make(&budget).unwrap();
        }
        assert_eq!(lanes.in_use(), 102);
    }
}
