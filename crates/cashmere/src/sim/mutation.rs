//! The tests find a protocol that breaks one of its rules: each broken rule here is caught by random programs.

use super::cluster::Cluster;
use super::programs::{Shape, random_program};
use super::run::run;
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
}

fn caught(mutation: Mutation, variant: Variant) -> bool {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = (0..400).any(|seed| {
        std::panic::catch_unwind(|| {
            let shape = Shape { nodes: 3, workers: 2, pages: 2, phases: 4 };
            let mut cluster = Cluster::new(variant, shape.nodes, shape.workers, shape.pages, seed);
            cluster.mutation = mutation;
            run(cluster, random_program(shape, seed));
        })
        .is_err()
    });
    std::panic::set_hook(quiet);
    found
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
        (Mutation::Unsettled, Variant::Dms),
    ];
    for (mutation, variant) in rules {
        assert!(caught(mutation, variant), "{mutation:?} was not caught on {variant}");
    }
}
