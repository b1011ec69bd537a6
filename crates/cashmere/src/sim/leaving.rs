//! Two nodes that leave two pages at the same time, each by way of a former home that is just leaving it too.

use super::cluster::{Cluster, PAGE};
use super::mutation::Mutation;
use super::run::{Thread, run};
use crate::protocol::rules::Rule;
use crate::variant::Variant;
use crate::world::World;

const NODES: usize = 3;
const WORKERS: usize = 2;

/// Two nodes are the homes of a page each and have both. The workers of the third take a home each by a store, and their notices
/// come to the two in any order.
async fn program(first: usize, mut thread: Thread) {
    let (node, worker) = (thread.number / WORKERS, thread.number % WORKERS);
    let stores = (node + NODES - first) % NODES == 2;
    if !stores && worker == 0 {
        thread.load(0).await;
        thread.load(PAGE).await;
    }
    thread.barrier(0).await;
    if stores {
        thread.store(worker * PAGE, 1).await;
    }
    // All others are past the barrier, which drains notices, and both stores are done.
    let passed = thread.world.cluster.borrow().stage + 1;
    thread.reach(passed);
    thread.after((NODES * WORKERS) as u8).await;
    if stores {
        thread.release().await;
    } else if worker == 0 {
        let both = thread.world.until(|node| node.at_node(|node| node.bins.len()) == 2);
        both.await.expect("no node dies here");
        thread.acquire().await;
    }
}

/// Runs it with the homes given, by this and the next seeds; whether all came to their ends.
fn all_end(mutation: Mutation) -> bool {
    (0..40).all(|number| {
        let seed = 2 * number + 1;
        let first = (seed as usize / 2) % NODES;
        let mut cluster = Cluster::new(Variant::NoneMg, NODES, WORKERS, 2, seed);
        cluster.mutation = mutation;
        let run = || run(cluster, move |thread| program(first, thread));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_ok()
    })
}

#[test]
fn nodes_that_leave_two_pages_do_not_wait_for_each_other() {
    assert!(all_end(Mutation::None));
}

#[test]
fn nodes_that_let_requests_wait_while_they_leave_wait_for_each_other() {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let end = all_end(Mutation::Of(Rule::LeavesAnswering));
    std::panic::set_hook(quiet);
    assert!(!end, "the broken rule was not found");
}
