//! Small programs that each show one property, on every variant, at one and two levels.

use std::future::Future;

use super::cluster::{Cluster, Counts, PAGE};
use super::run::{Thread, run};
use crate::variant::{Variant, Way};

/// Runs a program on each variant, with workers on nodes of their own and two on each node.
fn everywhere<F: Future<Output = ()> + 'static>(program: impl Fn(Thread) -> F + Copy) {
    for variant in Variant::ALL {
        for (nodes, workers) in [(4, 1), (2, 2), (3, 1), (3, 2)] {
            for seed in 0..20 {
                run(Cluster::new(variant, nodes, workers, 2, seed), program);
            }
        }
    }
}

fn counts<F: Future<Output = ()> + 'static>(variant: Variant, program: impl Fn(Thread) -> F) -> Counts {
    run(Cluster::new(variant, 3, 1, 2, 7), program)
}

#[test]
fn a_flag_passes_what_was_stored_before_it() {
    everywhere(|mut thread| async move {
        for round in 0..3 {
            if thread.number == round % 2 {
                thread.store(3, 10 + round as u8).await;
                thread.store(PAGE + 1, 20 + round as u8).await;
                thread.set_flag(round as u32).await;
            } else {
                thread.wait_flag(round as u32).await;
                thread.load(3).await;
                thread.load(PAGE + 1).await;
            }
            thread.barrier(0).await;
        }
    });
}

#[test]
fn a_lock_passes_what_was_stored_under_it() {
    everywhere(|mut thread| async move {
        for _ in 0..4 {
            thread.lock(1).await;
            let value = thread.load(5).await;
            thread.store(5, value + 1).await;
            thread.unlock(1).await;
        }
        thread.barrier(0).await;
        thread.load(5).await;
    });
}

#[test]
fn neighbours_on_a_page_write_at_the_same_time() {
    everywhere(|mut thread| async move {
        for round in 0..4 {
            thread.store(thread.number, round).await;
            thread.store(PAGE - 1 - thread.number, round + 1).await;
            thread.barrier(0).await;
            for byte in 0..PAGE {
                thread.load(byte).await;
            }
            thread.barrier(1).await;
        }
    });
}

#[test]
fn a_page_that_all_touch_first_at_once_keeps_every_store() {
    for variant in Variant::ALL {
        for seed in 0..viaduct_kit::effort::rounds(600, 10_000) {
            run(Cluster::new(variant, 3, 2, 1, seed), |mut thread| async move {
                thread.store(thread.number, 1).await;
                thread.barrier(0).await;
                for byte in 0..6 {
                    thread.load(byte).await;
                }
            });
        }
    }
}

#[test]
fn a_page_bounces_between_nodes_that_have_it_alone() {
    everywhere(|mut thread| async move {
        for round in 0..6_usize {
            if thread.number == round % 2 {
                for byte in 0..PAGE {
                    let value = thread.load(byte).await;
                    thread.store(byte, value + 1).await;
                }
            }
            thread.barrier(0).await;
        }
    });
}

#[test]
fn locks_nest_and_go_hand_over_hand() {
    everywhere(|mut thread| async move {
        for _ in 0..3 {
            thread.lock(0).await;
            let value = thread.load(0).await;
            thread.lock(1).await;
            thread.store(0, value + 1).await;
            thread.unlock(0).await;
            let other = thread.load(PAGE).await;
            thread.store(PAGE, other + 1).await;
            thread.unlock(1).await;
            thread.lock(2).await;
            thread.unlock(2).await;
        }
    });
}

/// Neighbours that write one page, and a counter under a lock.
async fn busy(mut thread: Thread) {
    for round in 0..5 {
        thread.store(thread.number, round).await;
        thread.lock(0).await;
        let value = thread.load(PAGE).await;
        thread.store(PAGE, value + 1).await;
        thread.unlock(0).await;
        thread.barrier(0).await;
        thread.load((thread.number + 1) % 3).await;
        thread.barrier(1).await;
    }
}

#[test]
fn variants_communicate_as_table_one_says() {
    for variant in Variant::ALL {
        let counts = counts(variant, busy);
        let direct = [variant.data(), variant.metadata(), variant.synchronisation()].contains(&Way::Direct);
        assert_eq!(counts.remote_writes > 0, direct, "{variant}: {counts:?}");
        assert_eq!(
            counts.sync_messages == 0,
            variant.synchronisation() == Way::Direct,
            "{variant}: {counts:?}"
        );
        let metadata = counts.notices + counts.directory_messages;
        assert_eq!(metadata == 0, variant.metadata() == Way::Direct, "{variant}: {counts:?}");
        assert_eq!(counts.migrated > 0, variant.migrates(), "{variant}: {counts:?}");
    }
}

#[test]
fn a_page_that_one_node_has_alone_sends_no_messages() {
    for variant in Variant::ALL {
        let once = |rounds: usize| {
            counts(variant, move |mut thread| async move {
                for round in 0..rounds {
                    if thread.number == 1 {
                        thread.store(0, round as u8).await;
                        thread.store(PAGE, round as u8).await;
                    }
                    thread.barrier(0).await;
                }
            })
        };
        let (few, many) = (once(2), once(20));
        let data = |c: Counts| (c.fetches, c.diffs, c.notices, c.breaks, c.directory_messages);
        assert_eq!(data(few), data(many), "{variant}");
    }
}

#[test]
fn migration_ends_the_diffs_of_a_page_with_one_writer() {
    // Thread 0 touches the page first, and is its home; thread 1 writes it from then on and thread 2 reads it.
    let program = |mut thread: Thread| async move {
        if thread.number == 0 {
            thread.store(0, 1).await;
        }
        thread.barrier(0).await;
        for round in 0..20 {
            if thread.number == 1 {
                thread.store(1, round).await;
            }
            thread.barrier(0).await;
            if thread.number == 2 {
                thread.load(1).await;
            }
            thread.barrier(1).await;
        }
    };
    let (without, with) = (counts(Variant::None, program), counts(Variant::NoneMg, program));
    assert!(without.diffs >= 19, "{without:?}");
    assert!(with.diffs <= 1 && with.migrated >= 1, "{with:?}");
}

#[test]
fn siblings_that_touch_a_page_at_once_fetch_it_once() {
    const ROUNDS: u8 = 12;
    for variant in Variant::ALL {
        for seed in 0..20 {
            // Thread 0 is the home; threads 2 and 3 of the other node load what it stored.
            let counts = run(Cluster::new(variant, 2, 2, 1, 2 * seed), |mut thread| async move {
                for round in 0..ROUNDS {
                    if thread.number == 0 {
                        thread.store(0, round).await;
                    }
                    thread.barrier(0).await;
                    if thread.number >= 2 {
                        thread.load(0).await;
                    }
                    thread.barrier(1).await;
                }
            });
            assert_eq!(counts.fetches, u64::from(ROUNDS), "{variant}, seed {seed}");
        }
    }
}

#[test]
fn siblings_that_fault_on_one_page_fetch_it_once() {
    for variant in Variant::ALL {
        let mut coalesced = 0;
        for seed in 0..200 {
            // Node 0 is the home from the start.
            let mut cluster = Cluster::new(variant, 2, 3, 1, 4 * seed + 1);
            cluster.doubles = false;
            let counts = run(cluster, |mut thread| async move {
                if thread.number < 3 {
                    thread.store(thread.number, 7).await;
                }
                thread.barrier(0).await;
                if thread.number >= 3 {
                    thread.load(thread.number - 3).await;
                }
            });
            assert_eq!(counts.fetches, 1, "{variant}, seed {seed}");
            coalesced += counts.coalesced;
        }
        assert!(coalesced > 100, "{variant}: {coalesced} faults waited for a sibling's fetch");
    }
}
