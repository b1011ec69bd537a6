//! Communicators are made and used, and their messages stay apart.

use viaduct_mpi::op::Op;
use viaduct_mpi::world::{Comm, Mode, Operation, World};

use crate::ranks::{INT, ranks, run, span};

#[test]
fn communicators_of_every_kind_are_made() {
    for &size in ranks(&[1, 2, 5, 8]) {
        run("making", size, &[]);
    }
}

#[test]
fn threads_make_communicators_at_the_same_time() {
    run("making-threads", 3, &[]);
}

/// The sum of the ranks of the world in a communicator.
fn sum(world: &World, comm: &Comm) -> i32 {
    let mut memory = [world.comm_world().rank()];
    world.allreduce(None, &span(&mut memory, INT), &Operation::predefined(Op::Sum), comm).unwrap();
    memory[0]
}

pub(crate) fn all(world: &World) {
    let comm = world.comm_world();
    let (rank, size) = (comm.rank(), comm.size());
    let total = size * (size - 1) / 2;
    // More than there are numbers: they come back.
    for _ in 0..10 {
        let copy = world.comm_dup(comm).unwrap();
        assert_eq!(sum(world, &copy), total);
    }
    let copy = world.comm_dup(comm).unwrap();
    if size > 1 && rank == 0 {
        world.send(Mode::Standard, &span(&mut [1], INT), 1, 0, comm).unwrap();
        world.send(Mode::Standard, &span(&mut [2], INT), 1, 0, &copy).unwrap();
    } else if rank == 1 {
        let mut got = [0];
        world.recv(&span(&mut got, INT), 0, 0, &copy).unwrap();
        assert_eq!(got, [2], "the message of the copy");
        world.recv(&span(&mut got, INT), 0, 0, comm).unwrap();
        assert_eq!(got, [1]);
    }
    let half = world.comm_split(comm, Some(rank % 2), -rank).unwrap().unwrap();
    let members: Vec<u32> = (0..size as u32).rev().filter(|member| member % 2 == rank as u32 % 2).collect();
    assert_eq!(half.group().members(), members);
    assert_eq!(sum(world, &half), members.iter().sum::<u32>() as i32);
    let odd = world.comm_split(comm, (rank % 2 == 1).then_some(0), 0).unwrap();
    assert_eq!(odd.is_some(), rank % 2 == 1);
    let here = world.comm_split_host(comm, 0).unwrap();
    assert_eq!(here.size(), size);
    let last = comm.group().include(&[size - 1]).unwrap();
    assert_eq!(world.comm_create(comm, &last).unwrap().is_some(), rank == size - 1);
    if rank < (size + 1) / 2 {
        let first: Vec<i32> = (0..(size + 1) / 2).collect();
        let group = comm.group().include(&first).unwrap();
        let part = world.comm_create_group(comm, &group, 5).unwrap().unwrap();
        assert_eq!(sum(world, &part), first.iter().sum::<i32>());
    }
    world.barrier(comm).unwrap();
}

pub(crate) fn threads(world: &World) {
    let parents: Vec<Comm> = (0..3).map(|_| world.comm_dup(world.comm_world()).unwrap()).collect();
    std::thread::scope(|scope| {
        for parent in &parents {
            scope.spawn(move || {
                for _ in 0..10 {
                    let copy = world.comm_dup(parent).unwrap();
                    assert_eq!(sum(world, &copy), 3);
                }
            });
        }
    });
}
