//! Ranks on different hosts, one on each or two: one machine plays them, over libfabric.

use viaduct_kit::effort;
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
fn a_first_send_across_the_network_does_not_wait_for_a_call_of_its_receiver() {
    if has_network() {
        crate::away::send_first(&["between-hosts"]);
        crate::away::send_first(&["between-hosts", "VIADUCT_MPI_CONNECT_ALL=0"]);
    }
}

#[test]
fn collectives_cross_the_network() {
    if has_network() {
        let counts: &[usize] = if effort::full() { &[2, 3, 4, 5] } else { &[3] };
        counts.iter().for_each(|&ranks| run("far", ranks, &["between-hosts"]));
    }
}

#[test]
fn ranks_of_one_host_and_of_another_are_in_one_job() {
    if has_network() {
        let counts: &[usize] = if effort::full() { &[3, 4, 5] } else { &[4] };
        counts.iter().for_each(|&ranks| run("far", ranks, &["two-on-each-host"]));
        run("crossing", 4, &["two-on-each-host"]);
        run("wildcards", 4, &["two-on-each-host", "VIADUCT_MPI_CONNECT_ALL=0"]);
        run("making-threads", 3, &["two-on-each-host"]);
    }
}

#[test]
fn a_rank_that_is_killed_fails_the_calls_of_ranks_on_its_host_and_on_others() {
    if has_network() {
        crate::faults::kill_one(&["between-hosts"]);
        crate::faults::kill_one(&["two-on-each-host"]);
    }
}

#[test]
fn processes_on_different_hosts_in_different_operations_are_told() {
    if has_network() {
        run("mismatch", 2, &["between-hosts"]);
        run("uneven", 2, &["between-hosts"]);
        run("other-root", 2, &["between-hosts"]);
        run("other-reduction", 2, &["between-hosts"]);
    }
}

#[test]
fn messages_in_blocks_cross_the_network() {
    if has_network() {
        crate::reading::gathered_where_they_lie(&["between-hosts"]);
    }
}

#[test]
fn long_messages_are_read_across_the_network() {
    if has_network() {
        crate::reading::read_by_rdma(&["between-hosts"]);
    }
}

pub(crate) fn far(world: &World) {
    let comm = world.comm_world();
    let here = world.comm_split_host(comm, 0).unwrap();
    assert!(here.size() <= 2 && here.size() < comm.size(), "{} of {} on a host", here.size(), comm.size());
    world.barrier(&here).unwrap();
    let copy = world.comm_dup(comm).unwrap();
    for count in [1, 3000, 40_000] {
        let mut memory: Vec<i32> = (0..count).map(|at| at * (comm.rank() + 1)).collect();
        world.allreduce(None, &span(&mut memory, INT), &Operation::predefined(Op::Sum), &copy).unwrap();
        let times = (1..=comm.size()).sum::<i32>();
        assert!(memory.iter().enumerate().all(|(at, value)| *value == at as i32 * times));
        world.bcast(&span(&mut memory, INT), comm.size() - 1, comm).unwrap();
    }
}
