//! Random programs without data races, whose every load is checked.
//!
//! A program has phases between barriers. In each phase a byte belongs to one thread, is read by all, or is guarded by a
//! lock; bytes of different kinds lie side by side on few pages.

use std::future::Future;

use super::cluster::{Cluster, PAGE};
use super::random::Random;
use super::run::{Thread, run};
use crate::variant::Variant;

#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) nodes: usize,
    pub(super) workers: usize,
    pub(super) pages: usize,
    pub(super) phases: usize,
}

const LOCKS: usize = 2;

/// How a byte is used in a phase: below `threads` by that thread, then read by all, then guarded by a lock.
fn role(seed: u64, phase: usize, byte: usize, threads: usize) -> usize {
    let mut random = Random::new(seed ^ (phase as u64) << 32 ^ (byte as u64) << 8);
    random.below(threads + 1 + LOCKS)
}

pub(super) fn random_program(
    shape: Shape,
    seed: u64,
) -> impl Fn(Thread) -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
    move |mut thread| {
        Box::pin(async move {
            let mut random = Random::new(seed.wrapping_mul(31).wrapping_add(thread.number as u64));
            let threads = shape.nodes * shape.workers;
            let bytes = shape.pages * PAGE;
            for phase in 0..shape.phases {
                for _ in 0..random.below(14) {
                    let byte = random.below(bytes);
                    let role = role(seed, phase, byte, threads);
                    if role == thread.number {
                        thread.load(byte).await;
                        thread.store(byte, random.next() as u8).await;
                    } else if role == threads {
                        thread.load(byte).await;
                    } else if role > threads {
                        let lock = (role - threads - 1) as u32;
                        thread.lock(lock).await;
                        let value = thread.load(byte).await;
                        thread.store(byte, value.wrapping_add(1 + thread.number as u8)).await;
                        thread.unlock(lock).await;
                    }
                }
                thread.barrier(0).await;
            }
            for byte in 0..bytes {
                thread.load(byte).await;
            }
        })
    }
}

fn many(variant: Variant, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let shapes = [(2, 1), (2, 2), (3, 1), (3, 2), (4, 2)];
        let (nodes, workers) = shapes[seed as usize % shapes.len()];
        let shape = Shape { nodes, workers, pages: 1 + seed as usize % 3, phases: 3 };
        let what = format!("{variant}, seed {seed}, {shape:?}");
        let outcome = std::panic::catch_unwind(|| {
            run(Cluster::new(variant, nodes, workers, shape.pages, seed), random_program(shape, seed))
        });
        assert!(outcome.is_ok(), "{what}");
    }
}

/// Programs of each variant: few in the usual run, many in a full one.
fn seeds() -> std::ops::Range<u64> {
    0..viaduct_kit::effort::rounds(150, 20_000)
}

#[test]
fn programs_by_remote_writes_load_what_was_stored() {
    many(Variant::Dms, seeds());
}

#[test]
fn programs_with_direct_metadata_and_migration_load_what_was_stored() {
    many(Variant::MsMg, seeds());
}

#[test]
fn programs_by_messages_load_what_was_stored() {
    many(Variant::None, seeds());
}

#[test]
fn programs_by_messages_with_migration_load_what_was_stored() {
    many(Variant::NoneMg, seeds());
}
