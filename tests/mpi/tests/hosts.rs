//! The C set on several hosts, with one rank or more on each, over libfabric: one machine plays the hosts, or network
//! namespaces do.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use viaduct_kit::effort::{full, scaled};
use viaduct_kit::hosts::Hosts;
use viaduct_kit::packages::skip;
use viaduct_kit::watchdog::Watchdog;
use viaduct_mpi_tests::{Mpi, text};
use viaduct_providers::Config;

use crate::sets::{Headers, fortran};

/// Whether libfabric is here; if not, the test says that it is skipped.
fn has_network() -> bool {
    let found =
        viaduct_providers::ofi::find(&Config::default().ofi).is_ok_and(|found| !found.offers.is_empty());
    if !found {
        skip("libfabric is not here (Debian: libfabric1)");
    }
    found
}

/// Runs a program of the set to its good end. `place` puts a command on a host, and says that host's address. Each host has
/// `each` ranks, the last one perhaps fewer.
fn run_set(name: &str, ranks: usize, each: usize, place: &dyn Fn(usize, &mut Command) -> String) {
    let mpi = Mpi::new();
    let Some(program) = mpi.compile(name) else { return };
    run_program(&mpi, program.path(), &format!("{name}: good with {ranks}"), (ranks, each), place);
}

/// Runs a program until it has said its `sign`.
fn run_program(
    mpi: &Mpi,
    program: &Path,
    sign: &str,
    (ranks, each): (usize, usize),
    place: &dyn Fn(usize, &mut Command) -> String,
) {
    let _watch = Watchdog::arm(scaled(Duration::from_secs(120)), "ranks on different hosts");
    // A port that was free a moment ago; the first rank listens there.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let first = place(0, &mut Command::new("true"));
    // Tests beside this one have the same addresses, and ports go by the token of a job.
    let token = format!("{:064x}", std::process::id());
    let start = |rank: usize| {
        let mut command = Command::new(program);
        mpi.dress(&mut command);
        let host = rank / each;
        let address = place(host, &mut command);
        command.env("VIADUCT_NODE_NAME", address).env("VIADUCT_HOST", format!("host{host}"));
        // The set looks whether MPI_Comm_split_type finds as many.
        command.env("RANKS_OF_A_HOST", each.min(ranks - host * each).to_string());
        command.env("VIADUCT_MEET", format!("{first}:{port}")).env("VIADUCT_TOKEN", &token);
        command.env("VIADUCT_RANK", rank.to_string()).env("VIADUCT_SIZE", ranks.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the program can be started")
    };
    let children: Vec<_> = (0..ranks).map(start).collect();
    let outputs: Vec<_> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    let said: String = outputs.iter().map(text).collect();
    let well = outputs.iter().all(|output| output.status.success());
    assert!(well, "{sign}, {ranks} ranks, {each} on a host: {said}");
    assert!(said.contains(sign), "{said}");
}

#[test]
fn the_c_set_runs_between_hosts() {
    if !has_network() {
        return;
    }
    let all: &[(&str, usize)] = if full() {
        &[
            ("p2p", 2),
            ("p2p", 3),
            ("collectives", 2),
            ("collectives", 3),
            ("collectives", 4),
            ("collectives", 5),
            ("types", 2),
            ("comms", 3),
            ("objects", 2),
            ("older", 3),
            ("threads", 2),
        ]
    } else {
        &[("p2p", 2)]
    };
    for (name, ranks) in all {
        run_set(name, *ranks, 1, &|_, _| "127.0.0.1".to_owned());
    }
}

/// Every host has an address of its own, as they have: at one alone the ranks of other hosts may take all eight ports of the job.
fn own_address(host: usize, command: &mut Command) -> String {
    let address = format!("127.0.0.{}", host + 1);
    command.env("VIADUCT_OFI_BIND", &address);
    address
}

#[test]
fn the_c_set_runs_with_several_ranks_on_each_host() {
    if !has_network() {
        return;
    }
    let all: &[(&str, usize, usize)] = if full() {
        &[
            ("p2p", 4, 2),
            ("collectives", 3, 2),
            ("collectives", 4, 2),
            ("collectives", 5, 3),
            ("collectives", 8, 2),
            ("collectives", 16, 4),
            ("types", 4, 2),
            ("comms", 4, 2),
            ("comms", 5, 2),
            ("objects", 4, 2),
            ("older", 4, 2),
            ("threads", 4, 2),
        ]
    } else {
        &[("comms", 4, 2)]
    };
    for (name, ranks, each) in all {
        run_set(name, *ranks, *each, &own_address);
    }
}

#[test]
fn the_c_set_runs_between_network_namespaces() {
    if !has_network() {
        return;
    }
    let Some(hosts) = Hosts::new(3) else { return };
    let place = |host: usize, command: &mut Command| {
        hosts.enter(host as u8, command);
        hosts.address(host as u8).to_string()
    };
    let all: &[(&str, usize, usize)] = if full() {
        &[
            ("p2p", 3, 1),
            ("collectives", 1, 1),
            ("collectives", 2, 1),
            ("collectives", 3, 1),
            ("collectives", 4, 2),
            ("collectives", 5, 2),
            ("collectives", 8, 3),
            ("collectives", 16, 6),
            ("types", 2, 1),
            ("comms", 3, 1),
            ("comms", 6, 2),
            ("objects", 3, 1),
            ("older", 3, 1),
            ("threads", 4, 2),
        ]
    } else {
        &[("collectives", 3, 1)]
    };
    for (name, ranks, each) in all {
        run_set(name, *ranks, *each, &place);
    }
    if !full() {
        return;
    }
    let mpi = Mpi::new();
    for (name, sign) in
        [("messages.f", "messages: good"), ("set.f", "fortran: good"), ("objects.f", "objects: good")]
    {
        let Some((_folder, program)) = fortran(&mpi, name, Headers::Mpich) else { return };
        run_program(&mpi, &program, sign, (4, 2), &place);
    }
}
