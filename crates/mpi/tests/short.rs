//! Short collective operations in memory that the ranks of a host share.

use viaduct_mpi::error::Result;
use viaduct_mpi::op::Op;
use viaduct_mpi::world::{Operation, World};

use crate::ranks::{INT, ranks, run, span};

#[test]
fn a_root_runs_ahead_of_ranks_that_are_slow() {
    for &size in ranks(&[1, 2, 3, 4, 5, 8, 16]) {
        run("running-ahead", size, &[]);
    }
}

#[test]
fn communicators_of_different_ranks_do_not_disturb_each_other() {
    for &size in ranks(&[2, 5]) {
        run("communicators", size, &[]);
    }
}

#[test]
fn processes_in_different_short_operations_are_told() {
    run("short-mismatch", 3, &[]);
}

#[test]
fn processes_that_give_another_length_are_told() {
    run("uneven", 2, &[]);
}

#[test]
fn processes_that_give_another_length_are_told_by_messages() {
    run("uneven", 2, &["VIADUCT_MPI_BOARD=off"]);
    run("uneven", 2, &["VIADUCT_MPI_CONNECT_ALL=0"]);
}

pub(crate) fn running_ahead(world: &World) {
    let comm = world.comm_world();
    let (rank, size) = (comm.rank(), comm.size());
    let sum = Operation::predefined(Op::Sum);
    for round in 0..400 {
        // The root of some rounds does not wait for any rank, that of others for all.
        let root = round / 40 % size;
        if rank != root && round % 97 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let mut told = [if rank == root { round * 7 } else { -1 }; 30];
        world.bcast(&span(&mut told, INT), root, comm).unwrap();
        assert_eq!(told, [round * 7; 30], "round {round}");
        let (mut own, mut all) = ([rank + round; 3], [-1; 3]);
        let result = (rank == root).then(|| span(&mut all, INT));
        world.reduce(Some(&span(&mut own, INT)), result.as_ref(), &sum, root, comm).unwrap();
        let wanted = (0..size).map(|other| other + round).sum::<i32>();
        assert_eq!(all, [if rank == root { wanted } else { -1 }; 3], "round {round}");
        if round % 50 == 0 {
            let mut whole = [rank; 2];
            world.allreduce(None, &span(&mut whole, INT), &sum, comm).unwrap();
            assert_eq!(whole, [(0..size).sum::<i32>(); 2]);
        }
        if round % 30 == 0 {
            // Too long for it: messages in between.
            let mut long = vec![if rank == root { round } else { -1 }; 2000];
            world.bcast(&span(&mut long, INT), root, comm).unwrap();
            assert!(long.iter().all(|value| *value == round));
        }
    }
}

pub(crate) fn communicators(world: &World) {
    let comm = world.comm_world();
    let sum = Operation::predefined(Op::Sum);
    // More than there are boards, and numbers that are used again.
    for round in 0..70 {
        let half = world.comm_split(comm, Some((comm.rank() + round) % 2), comm.rank()).unwrap().unwrap();
        let whole = world.comm_dup(comm).unwrap();
        for step in 0..5 {
            let (mut one, mut all) = ([half.rank() + step], [whole.rank() + round]);
            world.allreduce(None, &span(&mut one, INT), &sum, &half).unwrap();
            assert_eq!(one[0], (0..half.size()).map(|rank| rank + step).sum::<i32>());
            world.allreduce(None, &span(&mut all, INT), &sum, &whole).unwrap();
            assert_eq!(all[0], (0..whole.size()).map(|rank| rank + round).sum::<i32>());
        }
        world.barrier(&half).unwrap();
    }
}

pub(crate) fn mismatch(world: &World) {
    let (comm, mut memory) = (world.comm_world(), [0; 4]);
    world.barrier(comm).unwrap();
    let sum = Operation::predefined(Op::Sum);
    // Two ranks agree, the third is elsewhere.
    let result = match comm.rank() {
        2 => world.allreduce(None, &span(&mut memory, INT), &sum, comm),
        _ => world.barrier(comm),
    };
    let text = result.unwrap_err().to_string();
    assert!(text.contains("MPI_Allreduce") && text.contains("MPI_Barrier"), "{text}");
}

/// Rank 0 gives so many bytes and rank 1 so many. On the board an operation has at most 2 KiB.
pub(crate) fn uneven(world: &World) {
    let (comm, sum) = (world.comm_world(), Operation::predefined(Op::Sum));
    let rank = comm.rank();
    let told = |result: Result<()>, what: &str| {
        let text = result.expect_err(what).to_string();
        assert!(text.contains("another length") || text.contains("came for a receive of"), "{what}: {text}");
        assert!(!text.contains("  "), "{what}: {text}");
    };
    for bytes in [[80, 40], [40, 80], [4000, 100], [100, 4000], [3000, 5000], [2048, 2052], [1 << 20, 40]] {
        let what = format!("{bytes:?} bytes");
        let (mut memory, mut result) =
            (vec![rank; bytes[rank as usize] / 4], vec![-1; bytes[rank as usize] / 4]);
        let (own, into) = (span(&mut memory, INT), span(&mut result, INT));
        // Each on a communicator of its own: messages of operations that failed may be under way.
        let copy = world.comm_dup(comm).unwrap();
        let heard = world.bcast(&own, 0, &copy);
        if rank == 1 {
            told(heard, &what);
        }
        // The root may have gone on before it could be told.
        let copy = world.comm_dup(comm).unwrap();
        let reduced = world.reduce(Some(&own), (rank == 1).then_some(&into), &sum, 1, &copy);
        if rank == 1 {
            told(reduced, &what);
        }
        let copy = world.comm_dup(comm).unwrap();
        told(world.allreduce(Some(&own), &into, &sum, &copy), &what);
    }
}
