//! The state of a simulated cluster as one number, so that a search knows the states it has seen.
//!
//! What has no order counts without one: messages under way, stores of remote writes, maps.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::cluster::{Cluster, Node};

/// A value as a number.
pub(super) fn number(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Values whose order says nothing.
fn heap<T: Hash>(values: impl IntoIterator<Item = T>) -> u64 {
    values.into_iter().map(number).fold(0, u64::wrapping_add)
}

/// All that a process of a node sees by itself.
pub(super) fn of_node(node: &Node) -> u64 {
    let memory = (&node.pages, &node.versions, &node.frames, &node.twins, &node.mappings, &node.directory);
    let queues = (&node.lists, &node.noticed, &node.bins, node.clock, node.synchronised);
    let locks = (heap(&node.locks), heap(&node.managers), heap(&node.test_and_set), heap(&node.words));
    let barriers = (heap(&node.barriers), heap(&node.masters), heap(&node.arrivals));
    let requests = (heap(&node.claims), heap(&node.parked), heap(&node.breaks), heap(&node.taken));
    number((memory, queues, locks, barriers, requests))
}

/// All nodes, and what is under way between them.
pub(super) fn of_cluster(cluster: &Cluster) -> u64 {
    let nodes: Vec<u64> = cluster.nodes.iter().map(of_node).collect();
    let messages =
        cluster.channels.iter().flat_map(|(ends, queue)| queue.iter().map(move |body| (ends, body)));
    let answers = (heap(&cluster.replies), heap(&cluster.claimed));
    number((nodes, heap(messages), heap(&cluster.effects), answers, &cluster.shadow, cluster.stage))
}
