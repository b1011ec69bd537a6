//! Barriers: a counter on each node, then one arrival of each node at the master (section 2.3.1.1).

use crate::ids::{NodeId, NodeSet};

/// A node's part: its workers arrive here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Local {
    arrived: u32,
    /// How many times the barrier has opened.
    episode: u64,
}

/// What a worker does that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It waits until the episode is over.
    Wait {
        /// The episode that has to be over.
        episode: u64,
    },
    /// It is the node's last, and arrives for the node at the master; then it calls [`Local::open`].
    Last {
        /// The episode that all nodes arrive for.
        episode: u64,
    },
}

impl Local {
    /// A worker of this node arrives.
    pub fn arrive(&mut self, workers: u32) -> Arrival {
        self.arrived += 1;
        let episode = self.episode;
        if self.arrived == workers { Arrival::Last { episode } } else { Arrival::Wait { episode } }
    }

    /// Every node has arrived: the workers of this node go on.
    pub fn open(&mut self) {
        self.arrived = 0;
        self.episode += 1;
    }

    /// Whether it has opened since it was as `before`: only then can a worker that waits go on.
    pub fn opened_since(&self, before: &Local) -> bool {
        self.episode != before.episode
    }

    /// Whether `episode` is over.
    pub fn is_over(&self, episode: u64) -> bool {
        self.episode > episode
    }
}

/// The master's part: nodes arrive here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Master {
    arrived: NodeSet,
}

impl Master {
    /// A node arrives. Whether it was the last: then all of them are answered.
    pub fn arrive(&mut self, node: NodeId, nodes: u8) -> bool {
        self.arrived.insert(node);
        let all = self.arrived.len() == u32::from(nodes);
        if all {
            self.arrived = NodeSet::EMPTY;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_worker_of_a_node_arrives_for_it() {
        let mut local = Local::default();
        assert_eq!(local.arrive(2), Arrival::Wait { episode: 0 });
        assert_eq!(local.arrive(2), Arrival::Last { episode: 0 });
        assert!(!local.is_over(0));
        local.open();
        assert!(local.is_over(0) && !local.is_over(1));
        assert_eq!(local.arrive(2), Arrival::Wait { episode: 1 });
    }

    #[test]
    fn the_master_opens_once_all_nodes_are_there() {
        let mut master = Master::default();
        for _ in 0..3 {
            assert!(!master.arrive(NodeId(1), 3));
            assert!(!master.arrive(NodeId(0), 3));
            assert!(master.arrive(NodeId(2), 3));
        }
    }
}
