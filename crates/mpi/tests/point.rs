//! Messages between processes.

use viaduct_mpi::world::{ANY_SOURCE, ANY_TAG, Mode, World};

use crate::ranks::{BYTE, INT, run, span};

#[test]
fn a_message_goes_around_a_ring() {
    for size in [2, 3, 5] {
        run("ring", size, &[]);
    }
}

#[test]
fn sixteen_ranks_form_a_ring() {
    run("ring", 16, &[]);
}

#[test]
fn ranks_connect_on_first_use() {
    run("ring", 6, &["VIADUCT_MPI_CONNECT_ALL=0"]);
    run("crossing", 4, &["VIADUCT_MPI_CONNECT_ALL=0"]);
}

#[test]
fn messages_of_all_lengths_arrive() {
    run("lengths", 2, &[]);
    run(
        "lengths",
        2,
        &[
            "VIADUCT_MPI_CREDITS=4",
            "VIADUCT_MPI_EAGER=600",
            "VIADUCT_MPI_FRAGMENT=256",
            "VIADUCT_MPI_ROOM=2K",
        ],
    );
}

#[test]
fn wildcards_take_messages_in_order() {
    run("wildcards", 4, &[]);
}

#[test]
fn both_send_before_both_receive() {
    run("crossing", 3, &[]);
}

#[test]
fn threads_send_and_receive_at_the_same_time() {
    run("threads", 2, &[]);
}

#[test]
fn modes_end_as_they_promise() {
    run("modes", 2, &[]);
}

pub(crate) fn ring(world: &World) {
    let comm = world.comm_world();
    let (rank, size) = (comm.rank(), comm.size());
    for round in 0..50 {
        let mut token = vec![0; 3];
        if rank == 0 {
            token.copy_from_slice(&[round, 1, 2]);
            world.send(Mode::Standard, &span(&mut token, INT), 1 % size, 7, comm).unwrap();
        }
        let status = world.recv(&span(&mut token, INT), (rank + size - 1) % size, 7, comm).unwrap();
        assert_eq!((status.bytes, &token[..]), (12, &[round, 1, 2][..]));
        if rank != 0 {
            world.send(Mode::Standard, &span(&mut token, INT), (rank + 1) % size, 7, comm).unwrap();
        }
    }
}

pub(crate) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 253 + seed) as u8).collect()
}

pub(crate) fn lengths(world: &World) {
    let comm = world.comm_world();
    let lengths = [0, 1, 8, 72, 73, 96, 97, 255, 256, 257, 1000, 8191, 8192, 8193, 20_000, 65_536, 1 << 20];
    for (seed, len) in lengths.into_iter().enumerate() {
        for posted_first in [false, true] {
            let mut memory = if comm.rank() == 0 { pattern(len, seed) } else { vec![0; len] };
            let all = span(&mut memory, BYTE);
            if comm.rank() == 0 {
                if posted_first {
                    world.recv(&span(&mut [0u8; 0], BYTE), 1, 99, comm).unwrap();
                }
                world.send(Mode::Standard, &all, 1, 5, comm).unwrap();
                world.recv(&all, 1, 6, comm).unwrap();
            } else {
                let receive = if posted_first {
                    let receive = world.irecv(&all, 0, 5, comm).unwrap();
                    world.send(Mode::Standard, &span(&mut [0u8; 0], BYTE), 0, 99, comm).unwrap();
                    receive
                } else {
                    let status = world.probe(0, ANY_TAG, comm).unwrap();
                    assert_eq!(status.bytes, len as u64);
                    world.irecv(&all, 0, 5, comm).unwrap()
                };
                let done = world.wait(receive);
                assert_eq!((done.status.bytes, done.error), (len as u64, None));
                assert!(memory == pattern(len, seed), "{len} bytes");
                world.send(Mode::Standard, &span(&mut memory, BYTE), 0, 6, comm).unwrap();
            }
            assert!(memory == pattern(len, seed), "{len} bytes and back");
        }
    }
}

pub(crate) fn wildcards(world: &World) {
    let comm = world.comm_world();
    let (rank, size, each) = (comm.rank(), comm.size(), 200);
    if rank > 0 {
        for number in 0..each {
            let mut message = [rank, number];
            world.send(Mode::Standard, &span(&mut message, INT), 0, number % 3, comm).unwrap();
        }
        return;
    }
    let mut next = vec![0; size as usize];
    for _ in 0..each * (size - 1) {
        let mut message = [0, 0];
        let status = world.recv(&span(&mut message, INT), ANY_SOURCE, ANY_TAG, comm).unwrap();
        assert_eq!((status.source, status.tag), (message[0], message[1] % 3));
        assert_eq!(message[1], next[message[0] as usize], "messages of one sender stay in order");
        next[message[0] as usize] += 1;
    }
}

pub(crate) fn crossing(world: &World) {
    let comm = world.comm_world();
    let (rank, size) = (comm.rank(), comm.size());
    for len in [4, 5000, 300_000] {
        let peers: Vec<i32> = (0..size).filter(|peer| *peer != rank).collect();
        let mut out: Vec<Vec<u8>> =
            peers.iter().map(|peer| pattern(len, (rank * 16 + peer) as usize)).collect();
        let mut back = vec![vec![0; len]; peers.len()];
        let mut requests = Vec::new();
        for (peer, bytes) in peers.iter().zip(&mut out) {
            requests.push(Some(world.isend(Mode::Standard, &span(bytes, BYTE), *peer, 1, comm).unwrap()));
        }
        for (peer, bytes) in peers.iter().zip(&mut back) {
            requests.push(Some(world.irecv(&span(bytes, BYTE), *peer, 1, comm).unwrap()));
        }
        while let Some(at) = world.wait_any(&requests) {
            assert_eq!(world.take(requests[at].take().unwrap()).unwrap().error, None);
        }
        for (peer, bytes) in peers.iter().zip(&back) {
            assert!(*bytes == pattern(len, (peer * 16 + rank) as usize));
        }
    }
}

pub(crate) fn threads(world: &World) {
    let comm = world.comm_world();
    let peer = 1 - comm.rank();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                for round in 0..100 {
                    let len = if round % 10 == 9 { 20_000 } else { 64 };
                    let (mut out, mut back) = (pattern(len, thread + round), vec![0; len]);
                    let (send, recv) = (span(&mut out, BYTE), span(&mut back, BYTE));
                    world.sendrecv(&send, peer, thread as i32, &recv, peer, thread as i32, comm).unwrap();
                    assert!(out == back);
                }
            });
        }
    });
}

pub(crate) fn modes(world: &World) {
    let comm = world.comm_world();
    for len in [10, 50_000] {
        if comm.rank() == 0 {
            let mut bytes = pattern(len, 3);
            let all = span(&mut bytes, BYTE);
            world.send(Mode::Buffered, &all, 1, 0, comm).unwrap();
            all.write(0, &vec![0; len]);
            world.flush_buffered().unwrap();
            assert_eq!(world.buffered(), 0);
            all.write(0, &pattern(len, 4));
            let send = world.isend(Mode::Synchronous, &all, 1, 1, comm).unwrap();
            world.recv(&span(&mut [0u8; 0], BYTE), 1, 2, comm).unwrap();
            world.progress();
            assert!(!world.done(send), "the receive is not posted yet");
            world.send(Mode::Standard, &span(&mut [0u8; 0], BYTE), 1, 3, comm).unwrap();
            assert_eq!(world.wait(send).error, None);
        } else {
            let mut bytes = vec![0; len];
            world.recv(&span(&mut bytes, BYTE), 0, 0, comm).unwrap();
            assert!(bytes == pattern(len, 3));
            world.send(Mode::Standard, &span(&mut [0u8; 0], BYTE), 0, 2, comm).unwrap();
            world.recv(&span(&mut [0u8; 0], BYTE), 0, 3, comm).unwrap();
            let (message, status) = world.mprobe(0, 1, comm).unwrap();
            assert_eq!(status.bytes, len as u64);
            world.mrecv(message, &span(&mut bytes, BYTE)).unwrap();
            assert!(bytes == pattern(len, 4));
        }
    }
}
