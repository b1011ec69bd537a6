//! Ranks that are in one collective operation with different roots, reductions or types.

use viaduct_mpi::datatype::Datatype;
use viaduct_mpi::error::Result;
use viaduct_mpi::op::Op;
use viaduct_mpi::raw::Span;
use viaduct_mpi::world::{Comm, Operation, World};

use crate::ranks::{INT, run, span};

/// `MPI_SHORT_INT`, which has a gap, and `MPI_2INT`, which has none.
const PAIRS: [u32; 2] = [0x8c00_0003, 0x4c00_0816];

#[test]
fn processes_with_different_roots_are_told() {
    for size in [2, 3, 5] {
        run("other-root", size, &[]);
    }
    for size in [2, 3] {
        run("other-root-awaited", size, &[]);
    }
}

#[test]
fn processes_with_different_roots_are_told_by_messages() {
    run("other-root", 2, &["VIADUCT_MPI_BOARD=off"]);
    run("other-root", 2, &["VIADUCT_MPI_CONNECT_ALL=0"]);
}

#[test]
fn processes_with_different_reductions_are_told() {
    run("other-reduction", 2, &[]);
    run("other-reduction", 2, &["VIADUCT_MPI_BOARD=off"]);
}

#[test]
fn processes_with_a_type_with_gaps_and_one_without_are_told() {
    run("other-type", 2, &[]);
}

/// How many ranks were told, and that they were told in words that fit.
fn told(world: &World, result: &Result<()>, words: &[&str]) -> i32 {
    if let Err(error) = result {
        let text = error.to_string();
        assert!(words.iter().any(|words| text.contains(words)) && !text.contains("  "), "{text}");
    }
    let mut count = [i32::from(result.is_err())];
    let sum = Operation::predefined(Op::Sum);
    world.allreduce(None, &span(&mut count, INT), &sum, world.comm_world()).unwrap();
    count[0]
}

/// A call on a communicator of its own, which is kept: messages of an operation that failed may be under way there. Then a
/// barrier: a rank that only sends to ranks that do not receive may learn of it no earlier.
fn then_barrier(world: &World, kept: &mut Vec<Comm>, call: &dyn Fn(&Comm) -> Result<()>) -> Result<()> {
    let copy = world.comm_dup(world.comm_world()).unwrap();
    let (called, met) = (call(&copy), world.barrier(&copy));
    kept.push(copy);
    called.and(met)
}

/// Numbers of elements: on the board, by messages and, with two ranks, by messages that wait for their receivers. Between more,
/// long ones go around in rings, where ranks wait for one that was told and left.
fn counts(world: &World) -> &'static [usize] {
    if world.comm_world().size() == 2 { &[10, 1000, 300_000] } else { &[10, 1000] }
}

/// Ranks 0 and 1 have roots such that each of them sends and neither receives.
pub(crate) fn other_root(world: &World) {
    let rank = world.comm_world().rank();
    let sum = Operation::predefined(Op::Sum);
    // What each of them says, or that the message of one was in the way of the barrier.
    let words = |call: &'static str| ["with another root: ", call];
    let mut kept = Vec::new();
    for &count in counts(world) {
        let (mut out, mut all) = (vec![rank; count], vec![-1; count * world.comm_world().size() as usize]);
        let (own, into) = (span(&mut out, INT), span(&mut all[..count], INT));
        let bcast = then_barrier(world, &mut kept, &|comm| world.bcast(&own, rank.min(1), comm));
        assert!(told(world, &bcast, &words("is in MPI_Bcast as operation 0")) > 0, "bcast of {count}");
        let other = i32::from(rank == 0);
        let reduce = then_barrier(world, &mut kept, &|comm| {
            world.reduce(Some(&own), (rank == other).then_some(&into), &sum, other, comm)
        });
        assert!(told(world, &reduce, &words("is in MPI_Reduce as operation 0")) > 0, "reduce of {count}");
        let gather = then_barrier(world, &mut kept, &|comm| {
            world.gather(Some(&own), (rank == other).then_some(&into), other, comm)
        });
        assert!(told(world, &gather, &words("is in MPI_Gather(v) as operation 0")) > 0, "gather of {count}");
    }
}

/// Ranks 0 and 1 have roots such that each of them waits for the other, which only the board can tell.
pub(crate) fn other_root_awaited(world: &World) {
    let (comm, sum) = (world.comm_world(), Operation::predefined(Op::Sum));
    let rank = comm.rank();
    let mut kept = Vec::new();
    for &count in counts(world) {
        let (mut out, mut result) = (vec![rank; count], vec![-1; count]);
        let (own, into) = (span(&mut out, INT), span(&mut result, INT));
        let copy = world.comm_dup(comm).unwrap();
        let heard = world.bcast(&own, i32::from(rank == 0), &copy);
        assert!(told(world, &heard, &["with another root: "]) > 0, "bcast of {count}");
        kept.push(copy);
        let copy = world.comm_dup(comm).unwrap();
        let collected = world.reduce(Some(&own), (rank < 2).then_some(&into), &sum, rank.min(1), &copy);
        assert!(told(world, &collected, &["with another root: "]) > 0, "reduce of {count}");
        kept.push(copy);
    }
}

/// Rank 1 has another reduction than rank 0. Every rank that receives is told.
pub(crate) fn other_reduction(world: &World) {
    let comm = world.comm_world();
    let rank = comm.rank();
    let op = |rank| Operation::predefined(if rank == 0 { Op::Sum } else { Op::Max });
    let mut kept = Vec::new();
    for count in [10, 5000] {
        let (mut out, mut result) = (vec![rank; count], vec![-1; count]);
        let (own, into) = (span(&mut out, INT), span(&mut result, INT));
        // All at once, since messages of operations that failed stay on theirs.
        let copies = [(); 4].map(|()| world.comm_dup(comm).unwrap());
        let both = world.allreduce(Some(&own), &into, &op(rank), &copies[0]);
        let words = if rank == 0 { "reduction: MPI_MAX, this" } else { "reduction: MPI_SUM, this" };
        assert_eq!(told(world, &both, &[words]), 2, "allreduce of {count}");
        let root = world.reduce(Some(&own), (rank == 1).then_some(&into), &op(rank), 1, &copies[1]);
        assert!(rank == 0 || root.is_err(), "reduce of {count}");
        assert!(told(world, &root, &[words]) > 0);
        let last = world.scan(Some(&own), &into, &op(rank), &copies[2]);
        assert!(rank == 0 || last.is_err(), "scan of {count}");
        assert!(told(world, &last, &[words]) > 0);
        // One of the program's goes by messages, one of the standard's on the board if it is short.
        let own_op = match rank {
            0 => op(0),
            _ => Operation::user(true, Box::new(|_, _, _| ())),
        };
        let both = world.allreduce(Some(&own), &into, &own_op, &copies[3]);
        let words = if rank == 0 { "reduction: one of the program" } else { "reduction: MPI_SUM" };
        assert_eq!(told(world, &both, &[words]), 2, "allreduce of {count} by an operation of the program");
        kept.extend(copies);
    }
}

/// Pairs of one length, which go by messages if they have gaps, else on the board.
pub(crate) fn other_type(world: &World) {
    let comm = world.comm_world();
    let handle = PAIRS[comm.rank() as usize];
    let kind =
        Datatype::predefined().iter().find(|kind| kind.handle() == Some(handle)).expect("a type of pairs");
    let mut memory = [0u64; 4];
    // SAFETY: 24 bytes in 4 or 3 elements of 8, and the call is over before the memory goes.
    let pairs = unsafe { Span::new(memory.as_mut_ptr().cast(), 24 / kind.size(), kind) };
    assert_eq!(pairs.bytes(), 24);
    let copy = world.comm_dup(comm).unwrap();
    let result = world.allreduce(None, &pairs, &Operation::predefined(Op::Minloc), &copy);
    assert_eq!(told(world, &result, &["with another type: "]), 2);
}
