//! The mapping cache: which of the peers' slabs are mapped here. Heir of Berkeley VIA's translation cache.
//!
//! A hit is a look-up; a miss asks the peer's control thread for the segment and the operation is tried again when it
//! has come. The cache is bounded; the mapping used longest ago goes first. Hits, misses and evictions are counted, so
//! that a benchmark can show which case it measured (Millennium Sort, figure 7).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use viaduct_os::clock;
use viaduct_os::segment::Segment;

/// A slab that could not be mapped is not asked for again for this long: memory does not come back in a moment, and
/// there are slower ways that need no mapping.
const PAUSE: Duration = Duration::from_secs(1);

/// Slabs of a peer that are remembered as asked for, and as not there.
const MOST_REMEMBERED: usize = 1024;

/// What a look-up gave.
pub(crate) enum Lookup {
    /// It is mapped.
    Mapped(Arc<Segment>),
    /// It is not; the caller asks the peer for it.
    Ask,
    /// It is not, but has been asked for.
    Asked,
    /// It is not to be had.
    Never(Why),
}

/// Why a slab is not to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// The peer has no such slab.
    Gone,
    /// It has come, and could not be mapped here.
    Failed,
}

/// The cache of one NIC, over all its peers.
pub(crate) struct MapCache {
    mapped: HashMap<(u64, u32), Mapping>,
    asked: HashSet<(u64, u32)>,
    gone: HashSet<(u64, u32)>,
    /// Until when those that could not be mapped are left alone.
    failed: HashMap<(u64, u32), u64>,
    capacity: usize,
    clock: u64,
    pub(crate) evictions: u64,
}

struct Mapping {
    segment: Arc<Segment>,
    used: u64,
}

impl MapCache {
    pub(crate) fn new(capacity: usize) -> MapCache {
        MapCache {
            mapped: HashMap::new(),
            asked: HashSet::new(),
            gone: HashSet::new(),
            failed: HashMap::new(),
            capacity,
            clock: 0,
            evictions: 0,
        }
    }

    /// Looks for slab `slab` of peer `pair`.
    pub(crate) fn find(&mut self, pair: u64, slab: u32) -> Lookup {
        self.clock += 1;
        if let Some(m) = self.mapped.get_mut(&(pair, slab)) {
            m.used = self.clock;
            return Lookup::Mapped(m.segment.clone());
        }
        if self.gone.contains(&(pair, slab)) {
            return Lookup::Never(Why::Gone);
        }
        if let Some(until) = self.failed.get(&(pair, slab)) {
            // Told at least once, however late the look comes; then it may be asked for again.
            if *until <= clock::now_ns() {
                self.failed.remove(&(pair, slab));
            }
            return Lookup::Never(Why::Failed);
        }
        if self.asked.contains(&(pair, slab)) {
            return Lookup::Asked;
        }
        if of_pair(&self.asked, pair) >= MOST_REMEMBERED {
            // No peer has that many slabs on their way: it invents them.
            return Lookup::Never(Why::Failed);
        }
        self.asked.insert((pair, slab));
        Lookup::Ask
    }

    /// The peer's answer: the segment, or that there is none.
    pub(crate) fn insert(&mut self, pair: u64, slab: u32, segment: Option<Arc<Segment>>) {
        // What was not asked for would only push out what others use.
        if !self.asked.remove(&(pair, slab)) {
            return;
        }
        let Some(segment) = segment else {
            if of_pair(&self.gone, pair) >= MOST_REMEMBERED {
                // Asked for again, should they be wanted again.
                self.gone.retain(|(p, _)| *p != pair);
            }
            self.gone.insert((pair, slab));
            return;
        };
        while self.mapped.len() >= self.capacity {
            let oldest = self.mapped.iter().min_by_key(|(_, m)| m.used).map(|(k, _)| *k);
            let Some(oldest) = oldest else { break };
            self.mapped.remove(&oldest);
            self.evictions += 1;
        }
        self.clock += 1;
        self.mapped.insert((pair, slab), Mapping { segment, used: self.clock });
    }

    /// The segment has come and could not be mapped.
    pub(crate) fn fail(&mut self, pair: u64, slab: u32) {
        if self.asked.remove(&(pair, slab)) {
            self.failed.insert((pair, slab), clock::now_ns() + PAUSE.as_nanos() as u64);
        }
    }

    /// A peer is gone.
    pub(crate) fn forget(&mut self, pair: u64) {
        self.mapped.retain(|(p, _), _| *p != pair);
        self.asked.retain(|(p, _)| *p != pair);
        self.gone.retain(|(p, _)| *p != pair);
        self.failed.retain(|(p, _), _| *p != pair);
    }
}

fn of_pair(slabs: &HashSet<(u64, u32)>, pair: u64) -> usize {
    slabs.iter().filter(|(p, _)| *p == pair).count()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use viaduct_os::budget::Budget;

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn the_least_recently_used_mapping_goes() {
        let segment =
            || Some(Arc::new(Segment::create("viaduct-test", 4096, &Budget::new(1 << 20)).unwrap()));
        let mut cache = MapCache::new(2);
        assert!(matches!(cache.find(1, 1), Lookup::Ask));
        assert!(matches!(cache.find(1, 1), Lookup::Asked));
        cache.insert(1, 1, segment());
        cache.insert(1, 2, segment());
        assert!(matches!(cache.find(1, 2), Lookup::Ask), "it was not asked for");
        cache.insert(1, 2, segment());
        assert!(matches!(cache.find(1, 1), Lookup::Mapped(_)));
        assert!(matches!(cache.find(2, 1), Lookup::Ask));
        cache.insert(2, 1, segment());
        assert_eq!(cache.evictions, 1);
        assert!(matches!(cache.find(1, 1), Lookup::Mapped(_)));
        assert!(matches!(cache.find(1, 2), Lookup::Ask));
        cache.insert(1, 2, None);
        assert!(matches!(cache.find(1, 2), Lookup::Never(Why::Gone)));
        cache.forget(1);
        assert!(matches!(cache.find(1, 1), Lookup::Ask));
        assert!(matches!(cache.find(2, 1), Lookup::Mapped(_)));
    }

    #[test]
    #[cfg_attr(miri, ignore = "millions of steps, none of them unsafe")]
    fn slabs_that_a_peer_invents_are_not_remembered_without_bound() {
        let mut cache = MapCache::new(2);
        for slab in 0..3 * MOST_REMEMBERED as u32 {
            assert!(matches!(cache.find(1, slab), Lookup::Ask));
            cache.insert(1, slab, None);
        }
        assert!(cache.gone.len() <= MOST_REMEMBERED);
        for slab in 0..2 * MOST_REMEMBERED as u32 {
            cache.find(2, slab);
        }
        assert_eq!(of_pair(&cache.asked, 2), MOST_REMEMBERED);
        assert!(matches!(cache.find(2, u32::MAX), Lookup::Never(Why::Failed)));
        assert!(matches!(cache.find(3, 1), Lookup::Ask), "other peers are not concerned");
    }

    #[test]
    fn a_region_that_could_not_be_mapped_is_reported_and_not_asked_for_at_once() {
        let mut cache = MapCache::new(2);
        cache.fail(1, 1);
        assert!(matches!(cache.find(1, 1), Lookup::Ask), "it had not been asked for");
        cache.fail(1, 1);
        assert!(matches!(cache.find(1, 1), Lookup::Never(Why::Failed)));
        assert!(matches!(cache.find(1, 1), Lookup::Never(Why::Failed)));
        // Later: told once more, then asked for.
        cache.failed.insert((1, 1), 0);
        assert!(matches!(cache.find(1, 1), Lookup::Never(Why::Failed)));
        assert!(matches!(cache.find(1, 1), Lookup::Ask));
    }
}
