//! Which workers wait and poll, for the nodes of this host to see: a word for each node (section 2.3.1, the paper's polling).
//!
//! Only variants that reach into other nodes' memory have it; in the others, and between hosts, answers say the same.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use viaduct_os::segment::Segment;

use crate::ids::{NodeId, NodeSet, WorkerId, WorkerSet};
use crate::raw::{Part, part};

/// A word has a line of its own.
const WORDS: usize = 8;

/// The words of the nodes of a host.
pub(crate) struct Board {
    segment: Segment,
    here: NodeSet,
}

impl Board {
    pub(crate) fn bytes(nodes: usize) -> usize {
        nodes * WORDS * size_of::<AtomicU64>()
    }

    /// `here` are the nodes of this host, which share `segment`.
    pub(crate) fn new(segment: Segment, here: NodeSet) -> Board {
        Board { segment, here }
    }

    fn word(&self, node: NodeId) -> &AtomicU64 {
        let at = Board::bytes(usize::from(node.0));
        &part(&self.segment, Part { at, count: 1 })[0]
    }

    /// Says that a worker waits and polls.
    pub(super) fn open(&self, node: NodeId, worker: WorkerId) {
        self.word(node).fetch_or(1 << worker.0, Ordering::SeqCst);
    }

    /// Says that it does so no longer. What was sent to it before a sender could see this is in its queue now.
    pub(super) fn close(&self, node: NodeId, worker: WorkerId) {
        self.word(node).fetch_and(!(1 << worker.0), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The workers of a node that poll; None for a node of another host.
    pub(super) fn polls(&self, node: NodeId) -> Option<WorkerSet> {
        let word = || WorkerSet::from_bits(self.word(node).load(Ordering::SeqCst));
        self.here.contains(node).then(word)
    }

    /// Whether a worker polls still, after a message went to it: else it may not find the message.
    pub(super) fn polls_still(&self, node: NodeId, worker: WorkerId) -> bool {
        fence(Ordering::SeqCst);
        self.polls(node).is_some_and(|polls| polls.contains(worker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_another_host_is_not_on_the_board() {
        let segment = Segment::create_sparse("board", Board::bytes(3)).expect("memory");
        let board = Board::new(segment, NodeSet::of(NodeId(0)).with(NodeId(2)));
        let (node, worker) = (NodeId(2), WorkerId(63));
        assert_eq!(board.polls(node), Some(WorkerSet::EMPTY));
        board.open(node, worker);
        assert!(board.polls_still(node, worker) && !board.polls_still(NodeId(0), worker));
        board.close(node, worker);
        assert_eq!((board.polls(node), board.polls(NodeId(1))), (Some(WorkerSet::EMPTY), None));
    }
}
