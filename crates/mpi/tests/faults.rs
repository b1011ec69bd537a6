//! Ranks that die or leave: the others are told and do not hang.

use viaduct_kit::child::{hear, say};
use viaduct_kit::effort;
use viaduct_kit::watchdog::Watchdog;
use viaduct_mpi::error::Class;
use viaduct_mpi::world::{ANY_SOURCE, Mode, World};

use crate::ranks::{BYTE, INT, LIMIT, arguments, heard, span, start, start_with};

#[test]
fn a_rank_that_is_killed_fails_the_calls_of_the_others() {
    kill_one(&[]);
}

/// Three ranks, of which the last is killed.
pub(crate) fn kill_one(settings: &[&str]) {
    let _watch = Watchdog::arm(effort::scaled(LIMIT), "a job with a rank that dies");
    let mut ranks = start("death", 3, settings);
    for rank in &mut ranks {
        rank.expect_line("ready", LIMIT);
    }
    ranks[2].kill();
    for rank in &mut ranks[..2] {
        rank.expect_line("told", LIMIT);
        rank.kill();
    }
}

#[test]
fn a_rank_that_ends_without_finalize_fails_the_calls_of_the_others() {
    let _watch = Watchdog::arm(effort::scaled(LIMIT), "a job with a rank that leaves");
    let mut ranks = start("leaving", 2, &[]);
    ranks[0].expect_line("told", LIMIT);
    ranks[0].kill();
    assert!(ranks[1].wait(LIMIT).success());
}

#[test]
fn statistics_are_printed_when_asked_for() {
    let _watch = Watchdog::arm(effort::scaled(LIMIT), "a job that counts");
    let args = arguments("idle", 2, &["VIADUCT_MPI_STATS=on", "VIADUCT_MPI_BOARD=off"]);
    let ranks: Vec<_> = args.iter().map(|args| heard(args)).collect();
    for (rank, child) in ranks.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && text.contains(&format!("rank {rank} to {}: ", 1 - rank)),
            "{text}"
        );
    }
}

#[test]
fn a_rank_with_other_settings_is_named() {
    // With the second, one rank would connect in MPI_Init and share a board while the other does neither.
    for setting in ["VIADUCT_MPI_EAGER=4096", "VIADUCT_MPI_CONNECT_ALL=0"] {
        let _watch = Watchdog::arm(effort::scaled(LIMIT), "a job whose ranks differ");
        let mut args = arguments("idle", 2, &[]);
        args[1].push(setting.into());
        let ranks: Vec<_> = args.iter().map(|args| heard(args)).collect();
        for (rank, child) in ranks.into_iter().enumerate() {
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            let named = format!("rank {} was started with other values of VIADUCT_MPI_EAGER", 1 - rank);
            assert!(!output.status.success() && text.contains(&named), "{setting}: {text}");
        }
    }
}

#[test]
fn ranks_that_cannot_be_connected_for_want_of_memory_are_told() {
    for poor in 0..2 {
        let _watch = Watchdog::arm(effort::scaled(LIMIT), "a job with a rank that has no memory for a VI");
        let mut args = arguments("no-vi", 2, &["VIADUCT_MPI_CONNECT_ALL=0"]);
        args[poor].push("VIADUCT_SHM_MEMORY_BUDGET=262144".into());
        let mut ranks = start_with(&args);
        // The first rank asks. If it is the one without memory, the other never hears of it.
        for rank in &mut ranks[..=poor] {
            let why = rank.expect_line("told: ", LIMIT);
            assert!(why.contains("could not be connected") && why.contains("shared memory"), "{why}");
        }
        ranks.iter_mut().for_each(|rank| rank.kill());
    }
}

pub(crate) fn death(world: &World) {
    let (comm, mut memory) = (world.comm_world(), [0]);
    world.barrier(comm).unwrap();
    say("ready");
    if comm.rank() == 2 {
        let _ = hear();
        unreachable!("killed before");
    }
    // A receive from the dead rank, from any rank, a long send to it, and an operation with it.
    let class = |result: viaduct_mpi::error::Result<()>| result.unwrap_err().class();
    let named = world.recv(&span(&mut memory, INT), 2, 0, comm).map(|_| ());
    assert_eq!(class(named), Class::ProcAborted);
    assert_eq!(
        class(world.recv(&span(&mut memory, INT), ANY_SOURCE, 0, comm).map(|_| ())),
        Class::ProcAborted
    );
    let mut long = vec![0; 1 << 20];
    assert_eq!(class(world.send(Mode::Standard, &span(&mut long, BYTE), 2, 0, comm)), Class::ProcAborted);
    assert_eq!(class(world.probe(2, 0, comm).map(|_| ())), Class::ProcAborted);
    assert_eq!(class(world.barrier(comm)), Class::ProcAborted);
    // The other rank is still there.
    let peer = 1 - comm.rank();
    world.sendrecv(&span(&mut [1], INT), peer, 1, &span(&mut memory, INT), peer, 1, comm).unwrap();
    say("told");
    let _ = hear();
}

pub(crate) fn leaving(world: &World) {
    let comm = world.comm_world();
    world.barrier(comm).unwrap();
    if comm.rank() == 1 {
        std::process::exit(0);
    }
    let error = world.recv(&span(&mut [0], INT), 1, 0, comm).unwrap_err();
    assert_eq!(error.class(), Class::ProcAborted);
    say("told");
    let _ = hear();
}

pub(crate) fn no_vi(world: &World) {
    let comm = world.comm_world();
    let done = match comm.rank() {
        0 => world.send(Mode::Standard, &span(&mut [1], INT), 1, 0, comm),
        _ => world.recv(&span(&mut [0], INT), 0, 0, comm).map(|_| ()),
    };
    let error = done.unwrap_err();
    assert_eq!(error.class(), Class::ProcAborted);
    say(format!("told: {error}"));
    let _ = hear();
}

pub(crate) fn idle(world: &World) {
    world.barrier(world.comm_world()).unwrap();
}
