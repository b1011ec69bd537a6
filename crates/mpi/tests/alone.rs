//! A program that no launcher started: one rank, which sends to itself.

use viaduct_mpi::error::Class;
use viaduct_mpi::op::Op;
use viaduct_mpi::world::{ANY_SOURCE, ANY_TAG, Mode, Operation, PROC_NULL, Status, World};

use crate::ranks::{BYTE, INT, open, span};

fn world() -> World {
    World::init(&|_| None, open).expect("a world")
}

#[test]
fn a_process_alone_sends_to_itself() {
    let world = world();
    let comm = world.comm_world();
    assert_eq!((comm.rank(), comm.size()), (0, 1));
    let (mut out, mut back) = (vec![7, 8, 9], vec![0; 5]);
    world.send(Mode::Standard, &span(&mut out, INT), 0, 3, comm).unwrap();
    let found = world.probe(ANY_SOURCE, ANY_TAG, comm).unwrap();
    assert_eq!(found, Status { source: 0, tag: 3, bytes: 12, cancelled: false });
    let got = world.recv(&span(&mut back, INT), 0, 3, comm).unwrap();
    assert_eq!((got, &back[..]), (found, &[7, 8, 9, 0, 0][..]));
    world.finalize().unwrap();
}

#[test]
fn a_receive_comes_before_its_message_to_itself() {
    let world = world();
    let comm = world.comm_self();
    for len in [0, 1, 100, 8 << 10, (8 << 10) + 1, 3 << 20] {
        let (mut out, mut back) = (vec![5u8; len], vec![0u8; len]);
        let receive = world.irecv(&span(&mut back, BYTE), 0, ANY_TAG, comm).unwrap();
        let send = world.isend(Mode::Synchronous, &span(&mut out, BYTE), 0, 1, comm).unwrap();
        assert_eq!(world.wait(receive).status.bytes, len as u64);
        assert_eq!(world.wait(send).error, None);
        assert_eq!(out, back);
        // And after it, too long to be kept.
        let send = world.isend(Mode::Standard, &span(&mut out, BYTE), 0, 1, comm).unwrap();
        back.fill(0);
        world.recv(&span(&mut back, BYTE), 0, 1, comm).unwrap();
        assert_eq!(world.wait(send).error, None);
        assert_eq!(out, back);
    }
    world.finalize().unwrap();
}

#[test]
fn no_process_is_a_peer_of_its_own() {
    let world = world();
    let (comm, mut memory) = (world.comm_world(), vec![1]);
    let span = span(&mut memory, INT);
    world.send(Mode::Standard, &span, PROC_NULL, 0, comm).unwrap();
    assert_eq!(world.recv(&span, PROC_NULL, 0, comm).unwrap(), Status::PROC_NULL);
    assert_eq!(world.iprobe(PROC_NULL, 0, comm).unwrap(), Some(Status::PROC_NULL));
    let (message, _) = world.mprobe(PROC_NULL, 0, comm).unwrap();
    assert_eq!(world.mrecv(message, &span).unwrap(), Status::PROC_NULL);
    world.finalize().unwrap();
}

#[test]
fn wrong_arguments_are_named() {
    let world = world();
    let (comm, mut memory) = (world.comm_world(), vec![1, 2]);
    let all = span(&mut memory, INT);
    let class = |result: viaduct_mpi::error::Result<()>| result.unwrap_err().class();
    assert_eq!(class(world.send(Mode::Standard, &all, 1, 0, comm)), Class::Rank);
    assert_eq!(class(world.send(Mode::Standard, &all, 0, -1, comm)), Class::Tag);
    assert_eq!(class(world.recv(&all, 7, 0, comm).map(|_| ())), Class::Rank);
    assert_eq!(class(world.bcast(&all, 1, comm)), Class::Root);
    world.send(Mode::Standard, &all, 0, 0, comm).unwrap();
    let mut short = [0];
    let error = world.recv(&span(&mut short, INT), 0, 0, comm).unwrap_err();
    assert_eq!((error.class(), short), (Class::Truncate, [1]));
    world.finalize().unwrap();
    assert_eq!(class(world.send(Mode::Standard, &all, 0, 0, comm)), Class::Other);
}

#[test]
fn collectives_of_one_process_copy() {
    let world = world();
    let (comm, mut out, mut back) = (world.comm_world(), vec![3, 4], vec![0, 0]);
    let (send, recv) = (span(&mut out, INT), span(&mut back, INT));
    world.barrier(comm).unwrap();
    world.allreduce(Some(&send), &recv, &Operation::predefined(Op::Sum), comm).unwrap();
    assert_eq!(back, [3, 4]);
    let error = world.allreduce(Some(&send), &recv, &Operation::predefined(Op::Minloc), comm).unwrap_err();
    assert_eq!(error.class(), Class::Op);
    let copy = world.comm_dup(comm).unwrap();
    assert!(copy != *comm && copy.group() == comm.group());
    assert!(world.comm_split(comm, None, 0).unwrap().is_none());
    world.finalize().unwrap();
}

#[test]
fn a_receive_without_a_message_can_be_cancelled() {
    let world = world();
    let (comm, mut memory) = (world.comm_world(), vec![0]);
    let receive = world.irecv(&span(&mut memory, INT), 0, 9, comm).unwrap();
    assert!(!world.done(receive));
    world.cancel(receive);
    assert!(world.wait(receive).status.cancelled);
    world.finalize().unwrap();
}

#[test]
fn memory_is_given_once() {
    let world = world();
    let address = world.alloc_mem(100_000).unwrap();
    world.free_mem(address).unwrap();
    assert_eq!(world.free_mem(address).unwrap_err().class(), Class::Base);
    world.finalize().unwrap();
}
