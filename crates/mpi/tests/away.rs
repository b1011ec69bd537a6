//! A receiver that stays away: short sends to it end at once, and many of them wait, since it keeps no more than its room.

use std::time::{Duration, Instant};

use viaduct_kit::child::{hear, say};
use viaduct_kit::effort;
use viaduct_kit::watchdog::Watchdog;
use viaduct_mpi::world::{Mode, World};

use crate::ranks::{BYTE, LIMIT, run, span, start};

/// Bytes of one message.
const LEN: usize = 1024;
/// What a receiver may grow by, as documented for one sender: its room of 1 MiB, and 32 receives of 16 KiB with a header each.
const BOUND: usize = (1 << 20) + 32 * ((16 << 10) + 64);
/// What else a process grows by meanwhile: an allocator takes more at a time, code is run for the first time.
const SLACK: usize = 256 << 10;

#[test]
fn a_first_send_does_not_wait_for_a_call_of_its_receiver() {
    for setting in ["VIADUCT_MPI_CONNECT_ALL=16", "VIADUCT_MPI_CONNECT_ALL=0"] {
        send_first(&[setting]);
    }
}

/// The receivers of first messages make no call before all are sent.
pub(crate) fn send_first(settings: &[&str]) {
    let _watch = Watchdog::arm(effort::scaled(LIMIT), "a first send");
    let mut ranks = start("away", 3, settings);
    ranks[0].expect_line("sent", LIMIT);
    for rank in &mut ranks[1..] {
        rank.send_line("call");
    }
    for rank in &mut ranks {
        assert!(rank.wait(LIMIT).success(), "{settings:?}");
    }
}

#[test]
fn a_receiver_that_stays_away_keeps_its_room_and_no_more() {
    let _watch = Watchdog::arm(effort::scaled(5 * LIMIT), "a sender that runs ahead");
    // A message without bytes takes room, too.
    for scenario in ["gigabyte", "empty-ones"] {
        let mut ranks = start(scenario, 2, &[]);
        let sent: u64 = ranks[0].expect_line("waits after ", LIMIT).parse().unwrap();
        assert!(sent * (LEN as u64) < 2 << 20, "{sent} messages were sent to a receiver that made no call");
        ranks[1].send_line("call");
        for rank in &mut ranks {
            assert!(rank.wait(5 * LIMIT).success(), "{scenario}");
        }
    }
}

#[test]
fn a_sender_that_runs_ahead_waits() {
    run("flood", 2, &[]);
}

pub(crate) fn away(world: &World) {
    let comm = world.comm_world();
    let mut memory = [comm.rank() as u8; LEN];
    if comm.rank() == 0 {
        for peer in 1..comm.size() {
            world.send(Mode::Standard, &span(&mut memory, BYTE), peer, 0, comm).unwrap();
        }
        return say("sent");
    }
    hear().expect("the test says when to call");
    world.recv(&span(&mut memory, BYTE), 0, 0, comm).unwrap();
    assert_eq!(memory, [0; LEN]);
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

pub(crate) fn gigabyte(world: &World) {
    many(world, LEN);
}

pub(crate) fn empty_ones(world: &World) {
    many(world, 0);
}

/// The receiver makes no call, then looks for another message, then takes all.
fn many(world: &World, len: usize) {
    let (comm, mut memory) = (world.comm_world(), vec![7u8; len]);
    let count = effort::rounds(30_000, 1_000_000);
    if comm.rank() == 0 {
        let mut said = false;
        for number in 0..count {
            let sent = world.isend(Mode::Standard, &span(&mut memory, BYTE), 1, 1, comm).unwrap();
            if !said && !world.done(sent) {
                said = true;
                say(format!("waits after {number}"));
            }
            assert_eq!(world.wait(sent).error, None);
        }
        return;
    }
    let before = resident();
    let check = |when: &str| {
        let grown = resident().saturating_sub(before);
        assert!(grown < BOUND + SLACK, "{grown} bytes {when}, of {count} messages of {len} bytes");
    };
    hear().expect("the test says when to call");
    check("before the first call");
    // Until nothing is taken in any more, as far as memory tells.
    let (mut quiet, mut most) = (Instant::now(), before);
    while quiet.elapsed() < Duration::from_millis(300) {
        (0..100).for_each(|_| assert_eq!(world.iprobe(0, 2, comm).unwrap(), None));
        let now = resident();
        if now > most {
            (quiet, most) = (Instant::now(), now);
        }
    }
    check("while another message was looked for");
    for _ in 0..count {
        world.recv(&span(&mut memory, BYTE), 0, 1, comm).unwrap();
    }
    check("at the end");
}

/// Many sends are under way while the receiver stays away; then it takes the last one first.
pub(crate) fn flood(world: &World) {
    let comm = world.comm_world();
    let count = 4000;
    let pattern = |seed: usize| (0..LEN).map(|at| (at * 31 + at / 253 + seed) as u8).collect::<Vec<_>>();
    if comm.rank() == 0 {
        let mut memory: Vec<Vec<u8>> = (0..count).map(pattern).collect();
        let send = |(tag, bytes): (usize, &mut Vec<u8>)| {
            Some(world.isend(Mode::Standard, &span(bytes, BYTE), 1, tag as i32, comm).unwrap())
        };
        let sends: Vec<_> = memory.iter_mut().enumerate().map(send).collect();
        world.wait_all(&sends);
        assert!(sends.into_iter().flatten().all(|send| world.take(send).unwrap().error.is_none()));
        return;
    }
    std::thread::sleep(Duration::from_millis(50));
    for tag in (0..count).rev() {
        let mut memory = vec![0; LEN];
        world.recv(&span(&mut memory, BYTE), 0, tag as i32, comm).unwrap();
        assert!(memory == pattern(tag), "message {tag}");
    }
}
