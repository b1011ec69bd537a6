//! The tests find a protocol that breaks one of its rules: each broken rule here is caught by random programs, or where those
//! rarely come by it, by a model of which every order is tried.

use super::cluster::Cluster;
use super::programs::{Shape, random_program};
use super::run::{Thread, run};
use crate::protocol::rules::Rule;
use crate::variant::Variant;

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    None,
    /// A release leaves the worker's mapping writable.
    KeepWriting,
    /// A fetched page is copied over local changes.
    CopyOverChanges,
    /// Diffs have words, not bytes.
    WordDiffs,
    /// Bytes that were sent do not reach the twin.
    OldTwin,
    /// Notices leave no time stamp.
    NoStamps,
    /// Workers that write an unshared page do not learn that it is shared.
    ForgetUnlisted,
    /// A remote write of a diff is not waited for.
    UnawaitedDiffs,
    /// A word of the directory is not waited for.
    UnawaitedPublish,
    /// A node that gave a page up writes diffs before the home has stored it.
    Unsettled,
    /// Notices leave before the homes have acknowledged the diffs.
    EarlyNotices,
    /// A release notifies no other node.
    NoNotices,
    /// A notice counts from when the acquire began that drains it, not from when it was drained.
    EarlyStamps,
    /// A fetched page counts from when it came, not from when it was asked for.
    LateStamps,
    /// Every node that touches a page takes itself for its home.
    OwnHomes,
    /// A node takes a page to be its own alone while others have copies.
    SharedExclusive,
    /// A node takes itself for the home although the home did not give its place up.
    StolenHome,
    /// A lock by remote write is taken without a look at the other nodes' entries.
    BlindLock,
    /// A worker takes a lock by message that its node has not got.
    LockWithoutToken,
    /// A barrier does not hold the workers of a node back.
    OpenBarrier,
    /// A flag is taken to be set.
    EarlyFlag,
    /// Both copies of a request that was sent twice are answered.
    AnswerTwice,
    /// A rule of the page's state machine.
    Of(Rule),
}

impl Mutation {
    pub(super) fn rule(self) -> Option<Rule> {
        match self {
            Mutation::Of(rule) => Some(rule),
            _ => None,
        }
    }
}

/// One worker stores under a lock and one of another node loads under it, while a sibling of that fetches the page for a byte
/// beside it; then a flag passes what was stored before it; then random programs, which have neither.
async fn program(shape: Shape, seed: u64, mut thread: Thread) {
    for round in 0..4 {
        match thread.number {
            0 | 3 => {
                thread.lock(0).await;
                match thread.number {
                    0 => thread.store(0, round).await,
                    _ => drop(thread.load(0).await),
                }
                thread.unlock(0).await;
            }
            2 => {
                thread.lock(1).await;
                thread.unlock(1).await;
                thread.load(5).await;
            }
            _ => {}
        }
    }
    thread.barrier(0).await;
    for flag in 0..2 {
        if thread.number == flag {
            thread.store(3, 10 + flag as u8).await;
            thread.set_flag(flag as u32).await;
        } else {
            thread.wait_flag(flag as u32).await;
            thread.load(3).await;
        }
        thread.barrier(0).await;
    }
    random_program(shape, seed)(thread).await;
}

fn caught(mutation: Mutation, variant: Variant) -> bool {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = (0..800).any(|seed| {
        std::panic::catch_unwind(|| {
            let shape = Shape { nodes: 3, workers: 2, pages: 2, phases: 4 };
            let mut cluster = Cluster::new(variant, shape.nodes, shape.workers, shape.pages, seed);
            cluster.mutation = mutation;
            run(cluster, move |thread| program(shape, seed, thread));
        })
        .is_err()
    });
    std::panic::set_hook(quiet);
    found
}

#[test]
fn a_protocol_that_breaks_no_rule_is_not_caught() {
    assert!(Variant::ALL.into_iter().all(|variant| !caught(Mutation::None, variant)));
}

#[test]
fn each_broken_rule_is_caught() {
    let rules = [
        (Mutation::KeepWriting, Variant::None),
        (Mutation::CopyOverChanges, Variant::None),
        (Mutation::WordDiffs, Variant::None),
        (Mutation::OldTwin, Variant::None),
        (Mutation::NoStamps, Variant::None),
        (Mutation::ForgetUnlisted, Variant::NoneMg),
        (Mutation::UnawaitedDiffs, Variant::Dms),
        (Mutation::UnawaitedPublish, Variant::Dms),
        (Mutation::EarlyNotices, Variant::None),
        (Mutation::NoNotices, Variant::None),
        (Mutation::NoNotices, Variant::MsMg),
        (Mutation::LateStamps, Variant::None),
        (Mutation::OwnHomes, Variant::NoneMg),
        (Mutation::OwnHomes, Variant::MsMg),
        (Mutation::SharedExclusive, Variant::None),
        (Mutation::StolenHome, Variant::NoneMg),
        (Mutation::BlindLock, Variant::Dms),
        (Mutation::LockWithoutToken, Variant::None),
        (Mutation::OpenBarrier, Variant::None),
        (Mutation::EarlyFlag, Variant::None),
        (Mutation::AnswerTwice, Variant::NoneMg),
        (Mutation::Of(Rule::OneAtATime), Variant::None),
        (Mutation::Of(Rule::TwinStays), Variant::Dms),
        (Mutation::Of(Rule::AloneWithoutHome), Variant::None),
    ];
    for (mutation, variant) in rules {
        assert!(caught(mutation, variant), "{mutation:?} was not caught on {variant}");
    }
}
