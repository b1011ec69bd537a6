//! The core of the protocol under random schedules: delays, stalls, half close, death, and a byte oracle.
//!
//! SOVIA, sections 3.2 and 4.3. Nothing here has a thread or a clock: a schedule is a list of choices, and a failure
//! shrinks to the shortest one.

use crate::pair;

use pair::{Pair, greeting};
use proptest::prelude::*;
use viaduct_sovia::protocol::{Came, Connection, State, Violation, WriteStep};
use viaduct_sovia::wire::{Kind, Packet};
use viaduct_sovia::{Config, Path, Step};

#[derive(Clone, Copy, Debug)]
enum Choice {
    Write(usize, usize),
    Read(usize, usize),
    Deliver(usize),
    Expire(usize),
    Combining(usize, bool),
    ShutdownWrite(usize),
    Close(usize),
}

fn choice() -> impl Strategy<Value = Choice> {
    use Choice::*;
    prop_oneof![
        8 => (0..2usize, 1..500usize).prop_map(|(e, n)| Write(e, n)),
        4 => (0..2usize, 1..700usize).prop_map(|(e, n)| Read(e, n)),
        10 => (0..2usize).prop_map(Deliver),
        2 => (0..2usize).prop_map(Expire),
        1 => (0..2usize, any::<bool>()).prop_map(|(e, on)| Combining(e, on)),
        1 => (0..2usize).prop_map(ShutdownWrite),
        1 => (0..2usize).prop_map(Close),
    ]
}

/// Small numbers, so that every limit is met all the time.
fn config() -> impl Strategy<Value = Config> {
    (1..9u32, 0..9u32, 1..300usize, 0..40usize, any::<bool>(), 0..3u8, 256..1500usize).prop_map(
        |(window, t, mtu, copy, combining, way, ring)| {
            let (threshold, copy_max) = (t % window, copy.min(mtu));
            let path = if way == 0 { Path::Messages } else { Path::Ring };
            let ring_memory = if way == 1 { 0 } else { ring };
            Config {
                window,
                threshold,
                mtu,
                copy_max,
                combining,
                path,
                ring,
                ring_memory,
                ..Config::default()
            }
        },
    )
}

fn apply(pair: &mut Pair, choice: Choice) {
    match choice {
        Choice::Write(e, n) => drop(pair.write(e, n)),
        Choice::Read(e, n) => drop(pair.read(e, n)),
        Choice::Deliver(e) => drop(pair.deliver(e)),
        Choice::Expire(e) => drop(pair.ends[e].expire()),
        Choice::Combining(e, on) => pair.ends[e].set_combining(on),
        Choice::ShutdownWrite(e) => pair.ends[e].shutdown_write(),
        Choice::Close(e) => pair.ends[e].close(),
    }
    pair.check_posted();
}

/// What was read is what was written, as far as it goes.
fn check_bytes(pair: &Pair) {
    for e in 0..2 {
        let (read, written) = (&pair.ends[1 - e].read, &pair.ends[e].written);
        assert!(written.starts_with(read), "lost, doubled or out of order");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_byte_is_lost_doubled_or_reordered(
        a in config(),
        b in config(),
        choices in prop::collection::vec(choice(), 0..200),
    ) {
        let mut pair = Pair::new(&a, &b);
        for choice in choices {
            apply(&mut pair, choice);
            check_bytes(&pair);
        }
        pair.settle();
        check_bytes(&pair);
        for e in 0..2 {
            // An end that still reads has everything that was written, and hears of the end.
            if !pair.ends[1 - e].closed {
                prop_assert_eq!(pair.ends[1 - e].read.len(), pair.ends[e].written.len());
            }
            prop_assert_eq!(pair.ends[1 - e].eof, pair.ends[e].shut);
            pair.ends[e].close();
        }
        pair.settle();
        prop_assert_eq!((pair.state(0), pair.state(1)), (State::Closed, State::Closed));
    }

    #[test]
    fn two_writers_that_only_read_when_stuck_get_through(
        a in config(),
        b in config(),
        sizes in (1..3000usize, 1..3000usize),
        order in prop::collection::vec(any::<bool>(), 64),
    ) {
        let mut pair = Pair::new(&a, &b);
        let left = [sizes.0, sizes.1];
        let mut order = order.into_iter().cycle();
        for turn in 0.. {
            prop_assert!(turn < 100_000, "deadlock: {:?} of {sizes:?} written",
                pair.ends.each_ref().map(|e| e.written.len()));
            let at = usize::from(order.next().unwrap());
            let want = left[at] - pair.ends[at].written.len();
            if want == 0 || pair.write(at, want.min(70)) == 0 {
                // Inside the write, so to speak: packets are taken in while it waits.
                while pair.deliver(at) {
                    pair.check_posted();
                }
                pair.read(at, 1 << 20);
            }
            if (0..2).all(|e| pair.ends[1 - e].read.len() == left[e]) {
                break;
            }
        }
        check_bytes(&pair);
    }

    #[test]
    fn a_death_at_any_moment_leaves_a_prefix_and_nothing_to_send(
        a in config(),
        choices in prop::collection::vec(choice(), 0..80),
    ) {
        let mut pair = Pair::new(&a, &a);
        for choice in choices {
            apply(&mut pair, choice);
        }
        // End 1 dies: what it sent may still be seen, or not; end 0 is told.
        let spent = pair.state(0).is_spent() || (pair.ends[0].eof && pair.ends[1].fin_says_no_more_reads);
        let end = &mut pair.ends[0];
        prop_assert_eq!(end.conn.lost(), !spent);
        prop_assert_eq!(end.conn.state(), State::Closed);
        prop_assert_eq!(end.conn.write(10), WriteStep::Shut);
        prop_assert!(end.conn.close().is_empty() && end.conn.flush().is_empty());
        check_bytes(&pair);
    }

    #[test]
    fn garbage_is_a_violation_or_harmless(words in prop::collection::vec((any::<u32>(), 0..64usize), 1..60)) {
        let config = Config { window: 3, threshold: 1, mtu: 50, copy_max: 50, ..Config::default() };
        let greeting = greeting(&config);
        let (mut conn, _) = Connection::open(&config, &greeting, &greeting);
        conn.packet(Packet::new(Kind::Wakeup, 0), Came::Message(0)).unwrap();
        conn.posted(0);
        for (word, len) in words {
            // Small fields make sense more often.
            let Some(packet) = Packet::decode(word & 0xf000_0003) else { continue };
            let came = if word & 8 == 0 { Came::Message(len) } else { Came::Ring(len) };
            if conn.packet(packet, came).is_err() {
                break;
            }
            prop_assert!(conn.credits() <= 3);
        }
    }
}

#[test]
fn as_many_descriptors_as_are_posted_can_be_used_up() {
    // Neither application looks at anything that was sent, and the peer's packets are all read.
    let config =
        Config { window: 4, threshold: 0, mtu: 8, copy_max: 0, combining: false, ..Config::default() };
    let mut pair = Pair::new(&config, &config);
    pair.settle();
    assert_eq!((pair.write(1, 100), pair.write(0, 100)), (32, 32));
    while pair.deliver(0) {}
    pair.read(0, 1000);
    pair.ends[1].shutdown_write();
    assert!(pair.deliver(0));
    pair.ends[0].shutdown_write();
    pair.check_posted();
    // Four packets of data, four ACKs, FINACK and FIN.
    assert_eq!(Config::descriptors(&greeting(&config), &greeting(&config)), 10);
    assert_eq!(pair.ends[1].least, 0);
    pair.settle();
    assert_eq!((pair.state(0), pair.state(1)), (State::Closed, State::Closed));
}

#[test]
fn acknowledgements_ride_on_data() {
    let config = Config { combining: false, ..Config::default() };
    let mut pair = Pair::new(&config, &config);
    for _ in 0..100 {
        pair.write(0, 8);
        while pair.deliver(1) {}
        pair.read(1, 8);
        pair.write(1, 8);
        while pair.deliver(0) {}
        pair.read(0, 8);
    }
    assert_eq!(pair.ends.each_ref().map(|e| e.sent[Kind::Ack as usize]), [0, 0], "a ping-pong needs no ACK");
    let one_way = |threshold| {
        let config = Config { threshold, ..config.clone() };
        let mut pair = Pair::new(&config, &config);
        for _ in 0..100 {
            pair.write(0, 8);
            pair.settle();
        }
        pair.ends[1].sent[Kind::Ack as usize]
    };
    assert_eq!(one_way(0), 101, "one each, and one for the WAKEUP");
    assert_eq!(one_way(16), 101 / 17);
}

#[test]
fn combining_sends_fewer_packets_and_never_waits_for_the_timer_in_a_ping_pong() {
    let mut pair = Pair::new(&Config::default(), &Config::default());
    pair.write(0, 8);
    assert_eq!(pair.ends[0].sent[Kind::Data as usize], 0, "held");
    for n in 2..=4096 {
        pair.write(0, 8);
        let sent = pair.ends[0].sent[Kind::Data as usize];
        assert_eq!(sent, 0, "4096 requests of 8 bytes are one packet, not yet full after {n}");
    }
    pair.write(0, 8);
    assert_eq!(pair.ends[0].sent[Kind::Data as usize], 1, "S_buf + S_req > MTU");
    pair.write(0, 2049);
    assert_eq!(pair.ends[0].sent[Kind::Data as usize], 3, "S_req > 2 kB: what is held, then the request");
    pair.write(0, 8);
    pair.read(0, 1);
    assert_eq!(pair.ends[0].sent[Kind::Data as usize], 4, "recv()");
    pair.write(0, 8);
    pair.ends[0].expire();
    assert_eq!(pair.ends[0].sent[Kind::Data as usize], 5, "the timer");
    pair.write(0, 8);
    pair.ends[0].close();
    assert_eq!(pair.ends[0].sent[Kind::Data as usize], 6, "close()");
    let mut pair = Pair::new(&Config::default(), &Config::default());
    for _ in 0..10 {
        for e in 0..2 {
            pair.write(e, 8);
            assert_eq!(pair.read(e, 8), 0);
            while pair.deliver(1 - e) {}
            assert_eq!(pair.read(1 - e, 8), 8, "it came without a timer");
        }
    }
}

#[test]
fn a_half_closed_connection_goes_on_in_the_other_direction() {
    for step in Step::ALL {
        let config = Config::step(step);
        let mut pair = Pair::new(&config, &config);
        pair.settle();
        assert_eq!(pair.write(0, 100), 100);
        pair.ends[0].shutdown_write();
        pair.settle();
        assert_eq!((pair.state(0), pair.state(1)), (State::FinWait2, State::CloseWait));
        assert!(pair.ends[1].eof && pair.ends[1].read.len() == 100);
        assert_eq!(pair.write(0, 1), 0, "our direction is closed");
        assert_eq!(pair.write(1, 1000), 1000, "{}: {:?}", step.name(), pair.ends[1].conn);
        pair.settle();
        assert_eq!(pair.ends[0].read.len(), 1000);
        pair.ends[1].close();
        pair.settle();
        assert_eq!((pair.state(0), pair.state(1)), (State::Closed, State::Closed));
    }
}

#[test]
fn both_close_at_once() {
    let mut pair = Pair::new(&Config::default(), &Config::default());
    pair.ends[0].close();
    pair.ends[1].close();
    pair.deliver(0);
    pair.deliver(0);
    assert_eq!(pair.state(0), State::Closing);
    pair.settle();
    assert_eq!((pair.state(0), pair.state(1)), (State::Closed, State::Closed));
}

#[test]
fn writing_to_an_end_that_closed_is_refused() {
    let mut pair = Pair::new(&Config::default(), &Config::default());
    pair.settle();
    pair.ends[1].close();
    pair.settle();
    assert_eq!(pair.write(0, 1), 0);
    assert_eq!(pair.ends[0].conn.write(1), WriteStep::Shut);
}

#[test]
fn rules_of_the_wire() {
    let config = Config { window: 2, threshold: 1, mtu: 50, copy_max: 50, ..Config::default() };
    let fresh = || Connection::open(&config, &greeting(&config), &greeting(&config)).0;
    let awake = || {
        let mut conn = fresh();
        conn.packet(Packet::new(Kind::Wakeup, 0), Came::Message(0)).unwrap();
        conn.posted(0);
        conn
    };
    let broken = |mut conn: Connection, packets: &[(Packet, usize)]| {
        let (last, before) = packets.split_last().unwrap();
        for (packet, len) in before {
            conn.packet(*packet, Came::Message(*len)).unwrap();
        }
        let Violation(what) = conn.packet(last.0, Came::Message(last.1)).unwrap_err();
        what
    };
    let p = Packet::new;
    assert_eq!(broken(fresh(), &[(p(Kind::Data, 0), 1)]), "WAKEUP is the first packet, and comes once");
    assert_eq!(broken(awake(), &[(p(Kind::Wakeup, 0), 0)]), "WAKEUP is the first packet, and comes once");
    let empty = "bytes come in DATA packets, and no DATA packet is empty";
    assert_eq!(broken(awake(), &[(p(Kind::Data, 0), 0)]), empty);
    assert_eq!(broken(awake(), &[(p(Kind::Fin, 0), 3)]), empty);
    assert_eq!(broken(awake(), &[(p(Kind::Ack, 2), 0)]), "more packets were acknowledged than sent");
    assert_eq!(broken(awake(), &[(p(Kind::Ack, 0), 0)]), "an ACK that acknowledges nothing");
    let wide = "more DATA than the window allows";
    assert_eq!(broken(awake(), &[(p(Kind::Data, 0), 51)]), wide);
    assert_eq!(broken(awake(), &[(p(Kind::Data, 0), 1), (p(Kind::Data, 0), 1)]), wide);
    assert_eq!(broken(awake(), &[(p(Kind::Fin, 0), 0), (p(Kind::Data, 0), 1)]), "DATA after FIN");
    assert_eq!(broken(awake(), &[(p(Kind::Fin, 0), 0), (p(Kind::Fin, 0), 0)]), "a second FIN");
    assert_eq!(broken(awake(), &[(p(Kind::FinAck, 0), 0)]), "a FINACK without a FIN");
}

#[test]
fn rules_of_the_ring() {
    let config = Config { path: Path::Ring, ring: 1024, ..Config::default() };
    let us = greeting(&config);
    let awake = || {
        let mut conn = Connection::open(&config, &us, &us).0;
        conn.packet(Packet::new(Kind::Wakeup, 0), Came::Message(0)).unwrap();
        conn
    };
    let p = |kind| Packet::new(kind, 0);
    let broken = |conn: &mut Connection, kind, came| conn.packet(p(kind), came).unwrap_err().0;
    let mut conn = awake();
    conn.packet(p(Kind::Ring), Came::Message(16)).unwrap();
    let second = "a ring where there is none, or a second one";
    assert_eq!(broken(&mut conn, Kind::Ring, Came::Message(16)), second);
    let nowhere = "written where there is no ring, or too long for it";
    assert_eq!(broken(&mut awake(), Kind::Data, Came::Ring(8)), nowhere);
    let mut conn = awake();
    conn.packet(p(Kind::Want), Came::Message(0)).unwrap();
    conn.offer(1024);
    assert_eq!(
        broken(&mut conn, Kind::Want, Came::Message(0)),
        "a ring is wanted where there is none, or twice"
    );
    let mut conn = awake();
    conn.packet(p(Kind::Want), Came::Message(0)).unwrap();
    conn.offer(1024);
    assert_eq!(conn.packet(p(Kind::Data), Came::Ring(100)).unwrap().at, Some((0, 128)));
    assert_eq!(conn.packet(p(Kind::Data), Came::Ring(100)).unwrap().at, Some((128, 128)));
    assert_eq!(broken(&mut conn, Kind::Data, Came::Ring(257)), nowhere);
    assert!(broken(&mut awake(), Kind::Fin, Came::Ring(8)).starts_with("bytes come in DATA"));
}

#[test]
fn without_memory_for_a_ring_bytes_go_as_messages() {
    let config = Config { path: Path::Ring, combining: false, ..Config::default() };
    let us = greeting(&config);
    let (mut conn, _) = Connection::open(&config, &us, &us);
    conn.packet(Packet::new(Kind::Wakeup, 0), Came::Message(0)).unwrap();
    assert!(matches!(conn.write(10_000), WriteStep::Ask(p) if p.kind == Kind::Want));
    assert!(matches!(conn.write(10_000), WriteStep::Send(_, 24, _)), "it does not wait for the ring");
    conn.packet(Packet::new(Kind::Ring, 0), Came::Message(16)).unwrap();
    conn.ring_came(0);
    assert!(matches!(conn.write(10_000), WriteStep::Send(_, 24, _)));
}

#[test]
fn an_end_with_a_ring_posts_little_until_it_is_used() {
    let config = Config { path: Path::Ring, combining: false, ring_memory: 0, ..Config::default() };
    let us = greeting(&config);
    assert!(Config::first_descriptors(&us, &us) <= 16, "{}", Config::first_descriptors(&us, &us));
    let mut pair = Pair::new(&config, &config);
    pair.settle();
    assert_eq!(pair.ends[0].conn.credits(), 3, "one was the WAKEUP");
    for _ in 0..10 {
        pair.write(0, 8);
        pair.settle();
    }
    assert!(pair.ends[0].conn.credits() > 10, "the window opens with use");
}
