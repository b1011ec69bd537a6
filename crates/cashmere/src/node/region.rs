//! The memory of a node that other nodes write to: the place of Memory Channel's receive regions (section 2.2).
//!
//! ```text
//!   directory   for each page a byte of each node: its permission; a replica at every node
//!   claims      for each page that this node manages: its home, by compare and swap
//!   bins        for each other node a ring of page numbers: notices, with tail, spills and what was taken of both
//!   words       locks, barriers, flags; a replica at every node
//! ```
//!
//! What lies here is another node's word: it is loaded once and checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use viaduct_os::segment::Segment;

use super::layout::{NAMES, Places};
use crate::ids::{NodeId, NodeSet, PageId};
use crate::protocol::page::{Permission, View};
use crate::raw::{Part, part};
use crate::world::Place;

/// Bytes of the line that a word has for itself.
const LINE: usize = 64;

/// Where everything lies. The same in every node of a run, so that a place here is a place there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Map {
    nodes: usize,
    pages: usize,
    directory: usize,
    claims: usize,
    locks: usize,
    arrived: usize,
    senses: usize,
    flags: usize,
    bins: usize,
    bytes: usize,
}

/// The words of a bin; the ring follows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bin {
    /// Notices written, by the source.
    Tail,
    /// How many times the ring was full, by the source.
    Spilled,
    /// Notices taken out, by this node; the source reads it.
    Taken,
    /// How many times the ring was full when this node last took notices.
    Seen,
}

/// How many words that are.
const WORDS: usize = 4;

impl Map {
    pub(crate) fn new(nodes: usize, pages: usize) -> Map {
        let mut places = Places(0);
        let directory = places.take::<AtomicU8>(pages * nodes).at;
        let claims = places.take::<AtomicU64>(pages).at;
        let [locks, arrived] = [(); 2].map(|()| places.take::<AtomicU64>(NAMES * nodes).at);
        let [senses, flags] = [(); 2].map(|()| places.take::<AtomicU64>(NAMES).at);
        let mut map =
            Map { nodes, pages, directory, claims, locks, arrived, senses, flags, bins: 0, bytes: 0 };
        map.bins = places.take::<u8>(nodes * map.bin()).at;
        map.bytes = places.0;
        map
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Notices that a bin has room for.
    pub(crate) fn room(&self) -> u64 {
        (2 * self.pages).next_power_of_two().max(1024) as u64
    }

    fn bin(&self) -> usize {
        WORDS * LINE + self.room() as usize * size_of::<u32>()
    }

    /// The byte of a node in the directory's entry of a page.
    pub(crate) fn directory(&self, page: PageId, node: NodeId) -> usize {
        self.directory + page.0 as usize * self.nodes + usize::from(node.0)
    }

    pub(crate) fn claim(&self, page: PageId) -> usize {
        self.claims + page.0 as usize * 8
    }

    pub(crate) fn bin_word(&self, from: NodeId, word: Bin) -> usize {
        self.bins + usize::from(from.0) * self.bin() + word as usize * LINE
    }

    /// The place of a notice, and how many follow before the ring begins again.
    pub(crate) fn notice(&self, from: NodeId, number: u64) -> (usize, usize) {
        let at = (number % self.room()) as usize;
        let ring = self.bins + usize::from(from.0) * self.bin() + WORDS * LINE;
        (ring + at * size_of::<u32>(), self.room() as usize - at)
    }

    pub(crate) fn place(&self, place: Place) -> usize {
        let name = |name: u32| name as usize % NAMES;
        let (part, index) = match place {
            Place::Lock(lock, node) => (self.locks, name(lock) * self.nodes + usize::from(node.0)),
            Place::Arrived(barrier, node) => (self.arrived, name(barrier) * self.nodes + usize::from(node.0)),
            Place::Sense(barrier) => (self.senses, name(barrier)),
            Place::Flag(flag) => (self.flags, name(flag)),
        };
        part + index * 8
    }
}

/// The region of this node.
pub(crate) struct Region {
    pub(crate) segment: Arc<Segment>,
    pub(crate) map: Map,
}

impl Region {
    /// A word of it.
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        &part(&self.segment, Part { at, count: 1 })[0]
    }

    fn permissions(&self, page: PageId) -> &[AtomicU8] {
        part(&self.segment, Part { at: self.map.directory(page, NodeId(0)), count: self.map.nodes })
    }

    pub(crate) fn set_permission(&self, page: PageId, node: NodeId, permission: Permission) {
        self.permissions(page)[usize::from(node.0)].store(permission as u8, Ordering::Release);
    }

    /// What this replica of the directory says of a page.
    pub(crate) fn view(&self, page: PageId, home: Option<NodeId>) -> View {
        let mut view = View::default();
        let mut sharers = NodeSet::EMPTY;
        for (node, word) in (0..).map(NodeId).zip(self.permissions(page)) {
            let word = word.load(Ordering::Acquire);
            if word != Permission::Absent as u8 {
                sharers.insert(node);
            }
            view.home_writes |= home == Some(node) && word == Permission::Write as u8;
        }
        View { sharers, ..view }
    }

    /// The first node that claims a page is its home; gives the home, or None for a word that names no node.
    pub(crate) fn claim(&self, page: PageId, node: NodeId) -> Option<NodeId> {
        let word = self.word(self.map.claim(page));
        match word.compare_exchange(0, Region::claim_of(node), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(node),
            Err(other) => self.named(other),
        }
    }

    /// The node that has claimed a page, if one has.
    pub(crate) fn home(&self, page: PageId) -> Option<NodeId> {
        self.named(self.word(self.map.claim(page)).load(Ordering::Acquire))
    }

    /// The word by which a node claims a page.
    pub(crate) fn claim_of(node: NodeId) -> u64 {
        u64::from(node.0) + 1
    }

    /// The node that a word of the claims names.
    pub(crate) fn named(&self, word: u64) -> Option<NodeId> {
        (1..=self.map.nodes as u64).contains(&word).then(|| NodeId((word - 1) as u8))
    }

    /// A notice in the bin of a node; None for a number that is no page.
    pub(crate) fn notice(&self, from: NodeId, number: u64) -> Option<PageId> {
        let (at, _) = self.map.notice(from, number);
        let page = part::<AtomicU32>(&self.segment, Part { at, count: 1 })[0].load(Ordering::Acquire);
        ((page as usize) < self.map.pages).then_some(PageId(page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(nodes: usize, pages: usize) -> Region {
        let map = Map::new(nodes, pages);
        let segment = Segment::create_sparse("region", map.bytes()).expect("memory");
        Region { segment: Arc::new(segment), map }
    }

    #[test]
    fn the_first_claim_of_a_page_wins() {
        let region = region(3, 10);
        assert_eq!(region.claim(PageId(9), NodeId(2)), Some(NodeId(2)));
        assert_eq!(region.claim(PageId(9), NodeId(1)), Some(NodeId(2)));
        assert_eq!((region.named(0), region.named(4)), (None, None));
    }

    #[test]
    fn the_directory_lists_the_nodes_that_share_a_page() {
        let region = region(3, 10);
        region.set_permission(PageId(4), NodeId(0), Permission::Read);
        region.set_permission(PageId(4), NodeId(2), Permission::Write);
        let view = region.view(PageId(4), Some(NodeId(2)));
        assert_eq!((view.sharers, view.home_writes), (NodeSet::of(NodeId(0)).with(NodeId(2)), true));
        assert!(!region.view(PageId(4), Some(NodeId(0))).home_writes);
        assert!(region.view(PageId(5), None).sharers.is_empty());
    }

    #[test]
    fn a_notice_that_names_no_page_is_none() {
        let region = region(2, 10);
        let (at, left) = region.map.notice(NodeId(1), region.map.room() + 3);
        assert_eq!(left as u64, region.map.room() - 3);
        part::<AtomicU32>(&region.segment, Part { at, count: 1 })[0].store(10, Ordering::Relaxed);
        assert_eq!(region.notice(NodeId(1), 3), None);
        assert_eq!(region.notice(NodeId(1), 4), Some(PageId(0)));
    }

    #[test]
    fn places_of_different_words_are_different() {
        let map = Map::new(2, 3);
        let mut places = vec![map.bytes()];
        for node in [0, 1].map(NodeId) {
            places.extend([Place::Lock(7, node), Place::Arrived(7, node)].map(|place| map.place(place)));
            places.extend(
                [Bin::Tail, Bin::Spilled, Bin::Taken, Bin::Seen].map(|word| map.bin_word(node, word)),
            );
            places.extend([map.directory(PageId(2), node), map.claim(PageId(node.0.into()))]);
        }
        places.extend([Place::Sense(7), Place::Flag(7)].map(|place| map.place(place)));
        let all = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), all);
    }
}
