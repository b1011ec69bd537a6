//! Every operation for 1 to 17 ranks, every algorithm, against the plain definition.

use super::sim::World;
use super::*;
use crate::datatype::{basic, build};

/// Makes every operation take its short form, or its long one.
const SHORT: Limits = Limits {
    bcast_long: usize::MAX,
    tree_short: usize::MAX,
    allgather_short: usize::MAX,
    alltoall_short: usize::MAX,
    reduce_long: usize::MAX,
};
const LONG: Limits =
    Limits { bcast_long: 0, tree_short: 0, allgather_short: 0, alltoall_short: 0, reduce_long: 0 };

fn word() -> Datatype {
    Datatype::of_basic(basic::find(0x4c00043d).unwrap())
}

/// Two words with a gap of one before and after them.
fn gapped() -> Datatype {
    build::resized(&build::indexed(&[1, 1], &[1, 3], &word()).unwrap(), 0, 20)
}

fn nothing(_: &mut [u8], _: &[u8]) {}

/// A value that tells its origin.
fn value(rank: usize, index: usize) -> u32 {
    (rank * 1000 + index) as u32
}

/// Elements of one rank in the layout of `kind`, which has `words` words at these offsets.
fn filled(kind: &Datatype, values: &[u32]) -> Vec<u8> {
    let words = kind.size() / 4;
    let mut memory = vec![0xee; (kind.extent() as usize) * values.len().div_ceil(words)];
    let packed: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    scatter_bytes(kind, &mut memory, &packed);
    memory
}

fn scatter_bytes(kind: &Datatype, memory: &mut [u8], packed: &[u8]) {
    let mut at = 0;
    kind.layout().visit_all(packed.len() / kind.size(), kind.extent(), 0, packed.len(), &mut |run| {
        for block in 0..run.count as i64 {
            let first = (run.disp + block * run.stride) as usize;
            memory[first..first + run.len].copy_from_slice(&packed[at..at + run.len]);
            at += run.len;
        }
    });
}

fn values(kind: &Datatype, memory: &[u8], count: usize) -> Vec<u32> {
    let mut packed = Vec::new();
    kind.layout().visit_all(count, kind.extent(), 0, count * kind.size(), &mut |run| {
        for block in 0..run.count as i64 {
            let first = (run.disp + block * run.stride) as usize;
            packed.extend_from_slice(&memory[first..first + run.len]);
        }
    });
    packed.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

/// Runs a test for numbers of ranks, types, counts, limits and seeds.
fn everywhere(mut test: impl FnMut(usize, &Datatype, usize, &Limits, u64)) {
    let sizes: &[usize] = if cfg!(miri) { &[1, 3] } else { &[1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17] };
    for size in sizes {
        for kind in [word(), gapped()] {
            for count in [0, 1, 5, 40] {
                for (seed, limits) in [SHORT, LONG, Limits::default()].into_iter().enumerate() {
                    test(*size, &kind, count, &limits, (size * 31 + count * 7 + seed) as u64);
                }
            }
        }
    }
}

fn own(kind: &Datatype, rank: usize, count: usize) -> Vec<u32> {
    (0..count * kind.size() / 4).map(|index| value(rank, index)).collect()
}

#[test]
fn barriers_end() {
    for size in 1..20 {
        let (kind, none) = (word(), nothing);
        let mut world = World::new(&kind, &kind, &none, size as u64);
        (0..size).for_each(|rank| world.add(barrier(Me { rank, size }), vec![], vec![]));
        world.run();
    }
}

#[test]
fn a_broadcast_reaches_every_rank() {
    everywhere(|size, kind, count, limits, seed| {
        let (root, none) = (size / 2, nothing);
        let mut world = World::new(kind, kind, &none, seed);
        for rank in 0..size {
            let words = if rank == root { own(kind, root, count) } else { vec![0; count * kind.size() / 4] };
            let plan = bcast(Me { rank, size }, root, Data { count, kind }, limits);
            world.add(plan, vec![], filled(kind, &words));
        }
        world.run();
        for rank in &world.ranks {
            assert_eq!(values(kind, &rank.recv, count), own(kind, root, count));
        }
    });
}

#[test]
fn gather_and_scatter_are_opposites() {
    everywhere(|size, kind, count, limits, seed| {
        let (root, none, byte) = (size - 1, nothing, word());
        let words = kind.size() / 4;
        // The root's side is in plain words, the others' in the type of the test.
        let plain = Data { count: count * words, kind: &byte };
        let typed = Data { count, kind };
        let all: Vec<u32> = (0..size).flat_map(|rank| own(kind, rank, count)).collect();
        let mut world = World::new(kind, &byte, &none, seed);
        for rank in 0..size {
            let plan = gather(Me { rank, size }, root, Some(typed), plain, limits);
            let room = if rank == root { 4 * all.len() } else { 0 };
            world.add(plan, filled(kind, &own(kind, rank, count)), vec![0; room]);
        }
        world.run();
        assert_eq!(values(&byte, &world.ranks[root].recv, all.len()), all);

        let mut world = World::new(&byte, kind, &none, seed);
        for rank in 0..size {
            let plan = scatter(Me { rank, size }, root, plain, Some(typed), limits);
            let send = if rank == root { filled(&byte, &all) } else { vec![] };
            world.add(plan, send, filled(kind, &vec![0; count * words]));
        }
        world.run();
        for (rank, state) in world.ranks.iter().enumerate() {
            assert_eq!(values(kind, &state.recv, count), own(kind, rank, count));
        }
    });
}

#[test]
fn different_lengths_are_gathered_and_scattered() {
    for size in [1, 2, 5, 8] {
        let (kind, none, root) = (word(), nothing, size / 3);
        let counts: Vec<usize> = (0..size).map(|rank| (rank * 5) % 7).collect();
        let displs: Vec<i64> = (0..size).map(|rank| (size - 1 - rank) as i64 * 8).collect();
        let mut world = World::new(&kind, &kind, &none, 5);
        for (rank, count) in counts.iter().copied().enumerate() {
            let send = Data { count, kind: &kind };
            let plan = gatherv(Me { rank, size }, root, Some(send), send, &counts, &displs);
            world.add(plan, filled(&kind, &own(&kind, rank, count)), vec![0; size * 32]);
        }
        world.run();
        let gathered = world.ranks[root].recv.clone();
        for (rank, count) in counts.iter().copied().enumerate() {
            let at = displs[rank] as usize * 4;
            assert_eq!(values(&kind, &gathered[at..], count), own(&kind, rank, count));
        }
        let mut world = World::new(&kind, &kind, &none, 6);
        for (rank, count) in counts.iter().copied().enumerate() {
            let recv = Data { count, kind: &kind };
            let plan = scatterv(Me { rank, size }, root, recv, Some(recv), &counts, &displs);
            world.add(plan, gathered.clone(), vec![0; 4 * count]);
        }
        world.run();
        for (rank, count) in counts.iter().copied().enumerate() {
            assert_eq!(values(&kind, &world.ranks[rank].recv, count), own(&kind, rank, count));
        }
    }
}

#[test]
fn every_rank_gets_everything() {
    everywhere(|size, kind, count, limits, seed| {
        let (none, words) = (nothing, count * kind.size() / 4);
        let all: Vec<u32> = (0..size).flat_map(|rank| own(kind, rank, count)).collect();
        for in_place in [false, true] {
            let mut world = World::new(kind, kind, &none, seed);
            for rank in 0..size {
                let data = Data { count, kind };
                let plan = allgather(Me { rank, size }, (!in_place).then_some(data), data, limits);
                let mut start = vec![0; size * words];
                if in_place {
                    start[rank * words..(rank + 1) * words].copy_from_slice(&own(kind, rank, count));
                }
                world.add(plan, filled(kind, &own(kind, rank, count)), filled(kind, &start));
            }
            world.run();
            for rank in &world.ranks {
                assert_eq!(values(kind, &rank.recv, size * count), all);
            }
        }
    });
}

#[test]
fn every_rank_gets_a_part_from_every_rank() {
    everywhere(|size, kind, count, limits, seed| {
        let (none, words) = (nothing, count * kind.size() / 4);
        let part = |from: usize, to: usize| (0..words).map(move |index| value(from * 20 + to, index));
        for in_place in [false, true] {
            let mut world = World::new(kind, kind, &none, seed);
            for rank in 0..size {
                let data = Data { count, kind };
                let plan = alltoall(Me { rank, size }, (!in_place).then_some(data), data, limits);
                let send: Vec<u32> = (0..size).flat_map(|to| part(rank, to)).collect();
                let recv = if in_place { send.clone() } else { vec![0; size * words] };
                world.add(plan, filled(kind, &send), filled(kind, &recv));
            }
            world.run();
            for (rank, state) in world.ranks.iter().enumerate() {
                let want: Vec<u32> = (0..size).flat_map(|from| part(from, rank)).collect();
                assert_eq!(values(kind, &state.recv, size * count), want);
            }
        }
    });
}

/// Composition of maps x -> a x + b: associative, and it does not commute.
fn compose(into: &mut [u8], from: &[u8]) {
    for (into, from) in into.as_chunks_mut::<8>().0.iter_mut().zip(from.as_chunks::<8>().0) {
        let split = |pair: &[u8; 8]| {
            let words = pair.as_chunks::<4>().0;
            (u32::from_ne_bytes(words[0]), u32::from_ne_bytes(words[1]))
        };
        let ((a, b), (c, d)) = (split(from), split(into));
        let (slope, offset) = (a.wrapping_mul(c), a.wrapping_mul(d).wrapping_add(b));
        into[..4].copy_from_slice(&slope.to_ne_bytes());
        into[4..].copy_from_slice(&offset.to_ne_bytes());
    }
}

fn add(into: &mut [u8], from: &[u8]) {
    for (into, from) in into.as_chunks_mut::<4>().0.iter_mut().zip(from.as_chunks::<4>().0) {
        *into = u32::from_ne_bytes(*from).wrapping_add(u32::from_ne_bytes(*into)).to_ne_bytes();
    }
}

/// Numbers that make every order of a composition differ.
fn operand(rank: usize, words: usize) -> Vec<u32> {
    (0..words).map(|index| (rank * 7 + index * 3 + 2) as u32).collect()
}

/// The reduction of ranks by its definition.
fn reduced(ranks: std::ops::Range<usize>, words: usize, combine: &dyn Fn(&mut [u8], &[u8])) -> Vec<u32> {
    let packed = |rank| operand(rank, words).iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let mut result = packed(ranks.end - 1);
    for rank in ranks.rev().skip(1) {
        combine(&mut result, &packed(rank));
    }
    result.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

/// Runs a reduction with an operation that commutes and with one that does not, in place and not.
fn reductions(
    plan: impl Fn(Me, Data<'_>, bool, bool, &Limits) -> Schedule,
    check: impl Fn(usize, usize, usize, Vec<u32>, &dyn Fn(&mut [u8], &[u8])),
) {
    everywhere(|size, kind, count, limits, seed| {
        // The composition needs two words an element.
        let pair = build::contiguous(2, &word()).unwrap();
        let kind = if kind.size() == 4 { &pair } else { kind };
        let words = count * 2;
        let adds: &dyn Fn(&mut [u8], &[u8]) = &add;
        let composes: &dyn Fn(&mut [u8], &[u8]) = &compose;
        for (combine, commutes) in [(adds, true), (composes, false)] {
            for in_place in [false, true] {
                let mut world = World::new(kind, kind, combine, seed);
                for rank in 0..size {
                    let data = Data { count, kind };
                    let contribution = operand(rank, words);
                    let recv = if in_place { contribution.clone() } else { vec![0; words] };
                    let plan = plan(Me { rank, size }, data, in_place, commutes, limits);
                    world.add(plan, filled(kind, &contribution), filled(kind, &recv));
                }
                world.run();
                for (rank, state) in world.ranks.iter().enumerate() {
                    check(rank, size, words, values(kind, &state.recv, count), combine);
                }
            }
        }
    });
}

#[test]
fn the_root_gets_the_reduction() {
    for root in [0, 1, 4] {
        let plan = |me: Me, data: Data<'_>, in_place: bool, commutes: bool, limits: &Limits| {
            reduce(me, root % me.size, data, in_place, commutes, limits)
        };
        reductions(plan, |rank, size, words, got, combine| {
            if rank == root % size {
                assert_eq!(got, reduced(0..size, words, combine), "{size} ranks, {words} words");
            }
        });
    }
}

#[test]
fn every_rank_gets_the_reduction() {
    reductions(allreduce, |_, size, words, got, combine| {
        assert_eq!(got, reduced(0..size, words, combine), "{size} ranks, {words} words");
    });
}

#[test]
fn scans_combine_the_ranks_before() {
    reductions(
        |me, data, in_place, _, _| scan(me, data, in_place),
        |rank, _, words, got, combine| assert_eq!(got, reduced(0..rank + 1, words, combine)),
    );
    reductions(
        |me, data, in_place, _, _| exscan(me, data, in_place),
        |rank, _, words, got, combine| {
            if rank > 0 {
                assert_eq!(got, reduced(0..rank, words, combine));
            }
        },
    );
}

#[test]
fn each_rank_gets_its_part_of_the_reduction() {
    for size in 1..12 {
        let counts: Vec<usize> = (0..size).map(|rank| (rank * 3) % 5).collect();
        let total: usize = counts.iter().sum();
        let pair = build::contiguous(2, &word()).unwrap();
        let adds: &dyn Fn(&mut [u8], &[u8]) = &add;
        let composes: &dyn Fn(&mut [u8], &[u8]) = &compose;
        for (combine, commutes) in [(adds, true), (composes, false)] {
            for in_place in [false, true] {
                let mut world = World::new(&pair, &pair, combine, size as u64);
                for rank in 0..size {
                    let data = Data { count: total, kind: &pair };
                    let words = operand(rank, 2 * total);
                    let plan = reduce_scatter(Me { rank, size }, data, &counts, in_place, commutes);
                    world.add(plan, filled(&pair, &words), filled(&pair, &words));
                }
                world.run();
                let want = reduced(0..size, 2 * total, combine);
                for (rank, state) in world.ranks.iter().enumerate() {
                    let first: usize = counts[..rank].iter().sum();
                    let part = &want[2 * first..2 * (first + counts[rank])];
                    assert_eq!(values(&pair, &state.recv, counts[rank]), part);
                }
            }
        }
    }
}

#[test]
fn blocks_cover_everything_once() {
    for (total, parts) in [(0, 3), (7, 3), (3, 7), (64, 8)] {
        let mut next = 0;
        for index in 0..parts {
            let (first, len) = block(total, parts, index);
            assert_eq!(first, next);
            next = first + len;
        }
        assert_eq!(next, total);
    }
}
