//! Small models, of which every order of events is tried: two nodes, one page, a few accesses each.
//!
//! The search goes from state to state, and stops where it has been before. Every load is checked, a page that one node has
//! alone is mapped nowhere else, and some event changes something until every worker is at its end: there is no circle of
//! waits.

use std::collections::HashSet;

use super::cluster::Cluster;
use super::mutation::Mutation;
use super::run::{Simulation, Thread};
use crate::variant::{Variant, Way};

/// What a search has seen.
#[derive(Clone, Copy, Debug, Default)]
struct Explored {
    states: usize,
    /// Ways that came to the end of the program.
    ends: usize,
    /// Ways that were left because they were too long.
    cut: usize,
}

/// Tries every order of events, for at most `longest` of them.
fn explore(start: impl Fn() -> Simulation, longest: usize) -> Explored {
    let (mut seen, mut found) = (HashSet::new(), Explored::default());
    let mut ways: Vec<Vec<usize>> = vec![Vec::new()];
    while let Some(mut way) = ways.pop() {
        let mut simulation = start();
        for &choice in &way {
            let event = simulation.events()[choice];
            simulation.apply(event);
        }
        loop {
            simulation.cluster.borrow().check();
            let here = simulation.fingerprint();
            if !seen.insert(here) {
                break;
            }
            found.states += 1;
            if simulation.is_over() {
                found.ends += 1;
                break;
            }
            if way.len() == longest {
                found.cut += 1;
                break;
            }
            // The first event that changes something; the others are tried later, from the start.
            let events = simulation.events();
            let next = (0..events.len()).find(|&choice| {
                simulation.apply(events[choice]);
                simulation.fingerprint() != here
            });
            let Some(next) = next else {
                panic!("nothing can go on: {}", simulation.cluster.borrow().state());
            };
            ways.extend((next + 1..events.len()).map(|other| [&way[..], &[other]].concat()));
            way.push(next);
        }
    }
    found
}

/// A program for the workers of two nodes.
#[derive(Clone, Copy, Debug)]
enum Model {
    /// Both nodes store to one page and load after a barrier.
    Neighbours,
    /// What was stored before a flag is loaded after it, where an old copy was.
    Flag,
    /// So it is, while a sibling of the worker that waits fetches the page for a byte beside it.
    Siblings,
    /// Both nodes count under a lock.
    Lock,
    /// A node writes again and again what it has alone, and the other takes it back.
    Alone,
    /// As `Siblings`, after an acquire that may drain the notice before the flag is seen.
    Drained,
    /// As `Alone`, with a release in the middle.
    Flushed,
    /// A worker that stored to a page has its mapping taken away before it releases, while its sibling fetches the page to store
    /// to it too, and the other node stores to it all the time.
    Crossing,
}

impl Model {
    const ALL: [Model; 5] = [Model::Neighbours, Model::Flag, Model::Siblings, Model::Lock, Model::Alone];

    /// Those with so many orders that only a full run tries all of them.
    const LARGE: [Model; 2] = [Model::Drained, Model::Flushed];

    /// Whether homes are claimed, or given.
    fn homes(self) -> &'static [bool] {
        if matches!(self, Model::Crossing) { &[true] } else { &[false, true] }
    }

    /// Whether other processes go on also between two steps of a worker that waits for nothing. In the usual run where that makes
    /// not too many orders, in a full one but for the two largest, and for `Neighbours` where it has remote writes.
    fn is_fine(self, variant: Variant) -> bool {
        match self {
            Model::Alone | Model::Crossing => true,
            Model::Flag | Model::Lock => viaduct_kit::effort::full() || variant.metadata() == Way::Message,
            Model::Siblings => viaduct_kit::effort::full(),
            Model::Neighbours => viaduct_kit::effort::full() && variant.metadata() == Way::Message,
            Model::Drained | Model::Flushed => false,
        }
    }

    fn workers(self) -> usize {
        if matches!(self, Model::Siblings | Model::Drained | Model::Crossing) { 2 } else { 1 }
    }

    async fn run(self, mut thread: Thread) {
        let node = thread.number / self.workers();
        match (self, node) {
            (Model::Neighbours, _) => {
                thread.store(node, 1).await;
                thread.barrier(0).await;
                thread.load(1 - node).await;
            }
            (Model::Flag | Model::Siblings | Model::Drained, 0) if thread.number == 0 => {
                thread.store(0, 1).await;
                thread.set_flag(0).await;
            }
            (Model::Flag, _) => {
                thread.load(1).await;
                thread.wait_flag(0).await;
                thread.load(0).await;
            }
            (Model::Siblings | Model::Drained, 1) if thread.number == 2 => {
                if matches!(self, Model::Drained) {
                    thread.acquire().await;
                }
                thread.wait_flag(0).await;
                thread.load(0).await;
            }
            (Model::Siblings | Model::Drained, 1) => drop(thread.load(1).await),
            (Model::Siblings | Model::Drained, _) => {}
            (Model::Lock, _) => {
                thread.lock(0).await;
                let value = thread.load(0).await;
                thread.store(0, value + 1).await;
                thread.unlock(0).await;
            }
            (Model::Crossing, 0) if thread.number == 0 => {
                thread.store(0, 1).await;
                thread.reach(1);
                thread.after(2).await;
                thread.release().await;
                thread.reach(3);
                thread.after(4).await;
                thread.store(0, 2).await;
                thread.release().await;
                thread.reach(5);
                thread.acquire().await;
                thread.store(0, 3).await;
            }
            (Model::Crossing, 1) if thread.number == 2 => {
                thread.after(1).await;
                thread.store(1, 1).await;
                thread.reach(2);
                thread.after(3).await;
                thread.acquire().await;
                thread.reach(4);
                thread.after(5).await;
                thread.acquire().await;
                thread.release().await;
            }
            (Model::Crossing, 1) => {
                thread.after(4).await;
                thread.store(2, 1).await;
            }
            (Model::Crossing, _) => {}
            (Model::Alone | Model::Flushed, 0) => {
                thread.wait_flag(0).await;
                thread.load(0).await;
                thread.store(1, 1).await;
                thread.set_flag(1).await;
                if matches!(self, Model::Flushed) {
                    thread.wait_flag(2).await;
                    thread.load(2).await;
                }
            }
            (Model::Alone | Model::Flushed, _) => {
                thread.store(0, 1).await;
                thread.store(2, 1).await;
                thread.set_flag(0).await;
                thread.store(2, 2).await;
                if matches!(self, Model::Flushed) {
                    thread.set_flag(2).await;
                }
                thread.wait_flag(1).await;
                thread.load(1).await;
            }
        }
    }

    /// Explores the model with homes that are claimed, or given.
    fn explore(self, variant: Variant, given: bool, mutation: Mutation) -> Explored {
        let start = || {
            let mut cluster = Cluster::new(variant, 2, self.workers(), 1, u64::from(given));
            cluster.explored = true;
            cluster.doubles = false;
            cluster.mutation = mutation;
            cluster.fine = mutation == Mutation::None && self.is_fine(variant);
            Simulation::new(cluster, move |thread| self.run(thread))
        };
        explore(start, LONGEST)
    }
}

/// Events of a way: locks by remote write may be tried for ever.
const LONGEST: usize = 120;

/// Explores models on a variant, with homes that are claimed and that are given.
fn every_order(variant: Variant, models: &[Model]) {
    for model in models {
        for &given in model.homes() {
            let found = model.explore(variant, given, Mutation::None);
            // A way without end would be one on which locks or pages move and no worker ever has them.
            assert!(found.ends > 0 && found.cut == 0, "{variant}, {model:?}, homes given {given}: {found:?}");
            eprintln!("{variant}, {model:?}, homes given {given}: {found:?}");
        }
    }
}

#[test]
fn every_order_of_events_by_messages() {
    every_order(Variant::None, &Model::ALL);
}

#[test]
fn every_order_of_events_by_messages_with_migration() {
    every_order(Variant::NoneMg, &Model::ALL);
}

#[test]
fn every_order_of_events_of_large_models() {
    if !viaduct_kit::effort::full() {
        viaduct_kit::skip!("takes minutes: a full run has it");
    }
    for variant in [Variant::None, Variant::NoneMg] {
        every_order(variant, &Model::LARGE);
    }
    every_order(Variant::NoneMg, &[Model::Crossing]);
    for variant in [Variant::Dms, Variant::MsMg] {
        every_order(variant, &[Model::Flushed]);
    }
}

/// Remote writes land one by one, so that there are many more orders. All but the lock's, which is tried again without
/// end: `array.rs` has a model of it.
fn models_by_remote_writes() -> &'static [Model] {
    const MODELS: [Model; 4] = [Model::Flag, Model::Alone, Model::Siblings, Model::Neighbours];
    &MODELS[..if viaduct_kit::effort::full() { 4 } else { 2 }]
}

#[test]
fn every_order_of_events_by_remote_writes() {
    every_order(Variant::Dms, models_by_remote_writes());
}

#[test]
fn every_order_of_events_with_direct_metadata_and_migration() {
    every_order(Variant::MsMg, models_by_remote_writes());
}

#[test]
fn a_broken_rule_shows_in_some_order() {
    let rules = [
        (Mutation::WordDiffs, Variant::None, Model::Neighbours),
        (Mutation::EarlyNotices, Variant::None, Model::Flag),
        (Mutation::NoNotices, Variant::Dms, Model::Flag),
        (Mutation::EarlyStamps, Variant::None, Model::Drained),
        (Mutation::LateStamps, Variant::None, Model::Siblings),
        (Mutation::Unsettled, Variant::Dms, Model::Flushed),
        (Mutation::OwnHomes, Variant::NoneMg, Model::Flag),
        (Mutation::SharedExclusive, Variant::None, Model::Flag),
        (Mutation::LockWithoutToken, Variant::None, Model::Lock),
        (Mutation::EarlyFlag, Variant::None, Model::Flag),
        (Mutation::UnawaitedDiffs, Variant::Dms, Model::Flag),
    ];
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let missed: Vec<_> = rules
        .into_iter()
        .filter(|&(mutation, variant, model)| {
            let found = |given| std::panic::catch_unwind(|| model.explore(variant, given, mutation)).is_err();
            !found(true) && !found(false)
        })
        .collect();
    std::panic::set_hook(quiet);
    assert!(missed.is_empty(), "{missed:?} were not found");
}
