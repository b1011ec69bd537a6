//! Ranks on different hosts: one machine plays them, over libfabric.

use viaduct_kit::packages::skip;
use viaduct_providers::Config;

use viaduct_mpi::op::Op;
use viaduct_mpi::world::{Operation, World};

use crate::ranks::{INT, run, span};

/// Whether libfabric is here; if not, the test says that it is skipped.
fn has_network() -> bool {
    let found =
        viaduct_providers::ofi::find(&Config::default().ofi).is_ok_and(|found| !found.offers.is_empty());
    if !found {
        skip("libfabric is not here (Debian: libfabric1)");
    }
    found
}

#[test]
fn messages_of_all_lengths_cross_the_network() {
    if has_network() {
        run("lengths", 2, &["between-hosts"]);
    }
}

#[test]
fn collectives_cross_the_network() {
    if has_network() {
        run("far", 3, &["between-hosts"]);
    }
}

#[test]
fn long_messages_are_read_across_the_network() {
    if has_network() {
        run("pulled", 2, &["between-hosts"]);
    }
}

pub(crate) fn far(world: &World) {
    let comm = world.comm_world();
    assert_eq!(world.comm_split_host(comm, 0).unwrap().size(), 1);
    let copy = world.comm_dup(comm).unwrap();
    for count in [1, 3000, 40_000] {
        let mut memory: Vec<i32> = (0..count).map(|at| at * (comm.rank() + 1)).collect();
        world.allreduce(None, &span(&mut memory, INT), &Operation::predefined(Op::Sum), &copy).unwrap();
        let times = (1..=comm.size()).sum::<i32>();
        assert!(memory.iter().enumerate().all(|(at, value)| *value == at as i32 * times));
        world.bcast(&span(&mut memory, INT), comm.size() - 1, comm).unwrap();
    }
}
