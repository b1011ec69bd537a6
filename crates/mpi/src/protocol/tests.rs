//! Several ranks on the simulated network: every message arrives whole, in order, within the bounds.

use std::sync::atomic::AtomicU8;

use proptest::prelude::*;

use super::core::{Core, Limits, Manner, Port, Source, Violation};
use super::packet::{Kind, Packet};
use super::sim::Net;
use super::{Request, Soon, Status};
use crate::error::Class;
use crate::group::Group;
use crate::matching::{Envelope, Pattern};
use crate::raw::Span;

const LIMITS: Limits = Limits { eager: 200, fragment: 64, piece: 64, credits: 4, room: 2100 };

fn envelope(source: usize, tag: i32) -> Envelope {
    Envelope { context: 9, source: source as i32, tag }
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed * 13 + at / 200) as u8).collect()
}

fn contents(span: &Span) -> Vec<u8> {
    let mut out = vec![0; span.bytes()];
    span.read(0, &mut out);
    out
}

/// A message of the plan.
#[derive(Clone, Debug)]
struct Planned {
    from: usize,
    to: usize,
    tag: i32,
    len: usize,
    synchronous: bool,
}

fn planned(size: usize) -> impl Strategy<Value = Planned> {
    let len = prop_oneof![Just(0), 1usize..64, Just(64), Just(65), 65usize..600];
    (0..size, 0..size, 0i32..3, len, any::<bool>()).prop_map(|(from, to, tag, len, synchronous)| Planned {
        from,
        to,
        tag,
        len,
        synchronous,
    })
}

fn isend(net: &mut Net, plan: &Planned, span: &Span) -> Request {
    let (core, wire) = &mut net.ranks[plan.from];
    let manner = if plan.synchronous { Manner::Synchronous } else { Manner::Nonblocking };
    core.isend(wire, span, plan.to, envelope(plan.from, plan.tag), manner, None)
}

fn irecv(net: &mut Net, me: usize, pattern: Pattern, span: &Span) -> Request {
    let size = net.ranks.len();
    let source = match pattern.source {
        Some(rank) => Source::Process(rank as usize),
        None => Source::Any(Group::new(0..size as u32)),
    };
    let (core, wire) = &mut net.ranks[me];
    core.irecv(wire, span, pattern, source, None)
}

fn take(net: &mut Net, me: usize, request: Request) -> Status {
    let done = net.ranks[me].0.take(request).expect("done");
    assert_eq!(done.error, None);
    done.status
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }) })]

    /// Whatever is sent when, and received by whatever pattern, each receive gets the message that is next for it.
    #[test]
    fn every_message_meets_its_receive(
        seed in any::<u64>(),
        readable in any::<bool>(),
        plan in prop::collection::vec(planned(3), 1..60),
        open in prop::collection::vec((any::<bool>(), any::<bool>()), 60),
    ) {
        let mut net = Net::new(3, LIMITS, readable, seed);
        let mut sends: Vec<Option<(Span, Request)>> = vec![None; plan.len()];
        let mut receives: Vec<(usize, Pattern, Span, Request)> = Vec::new();
        let (mut next_send, mut next_receive) = (0, 0);
        while next_send < plan.len() || next_receive < plan.len() {
            match net.draw(3) {
                0 if next_send < plan.len() => {
                    let message = &plan[next_send];
                    let span = Span::owned(&bytes(message.len, next_send));
                    let request = isend(&mut net, message, &span);
                    sends[next_send] = Some((span, request));
                    next_send += 1;
                }
                1 if next_receive < plan.len() => {
                    // One receive for each message, in the order of messages: with open source or tag they are matched
                    // in some order, but all of them are.
                    let (message, (any_source, any_tag)) = (&plan[next_receive], open[next_receive]);
                    let all_open = plan.iter().any(|other| other.to == message.to) && any_source && any_tag;
                    let pattern = Pattern {
                        context: 9,
                        source: (!all_open).then_some(message.from as i32),
                        tag: (!all_open).then_some(message.tag),
                    };
                    let span = Span::zeroes(600);
                    let request = irecv(&mut net, message.to, pattern, &span);
                    receives.push((message.to, pattern, span, request));
                    next_receive += 1;
                }
                _ => { net.step(); }
            }
            net.check();
        }
        net.settle();
        // Receives for anything may take what named ones wait for: then as many named ones are left as messages.
        let mut got: Vec<(usize, usize, Vec<u8>)> = Vec::new();
        for (me, pattern, span, request) in &receives {
            if let Some(done) = net.ranks[*me].0.take(*request) {
                prop_assert_eq!(&done.error, &None);
                let status = done.status;
                let came = Envelope { context: 9, source: status.source, tag: status.tag };
                prop_assert!(pattern.takes(&came));
                let mut whole = contents(span);
                whole.truncate(status.bytes as usize);
                got.push((status.source as usize, *me, whole));
            }
        }
        let mut sent: Vec<(usize, usize, Vec<u8>)> = plan.iter().enumerate()
            .map(|(index, message)| (message.from, message.to, bytes(message.len, index))).collect();
        for message in &got {
            let at = sent.iter().position(|other| other == message);
            prop_assert!(at.is_some(), "a message that was not sent: {:?}", message);
            sent.remove(at.unwrap());
        }
        // What is left over was taken by no receive, because its receive took another message.
        let named = receives.iter().filter(|(_, pattern, ..)| pattern.source.is_some()).count();
        prop_assert!(sent.len() <= named);
    }

    /// Receives by name get the messages of a sender in their order, and all sends end.
    #[test]
    fn messages_of_one_sender_stay_in_order(
        seed in any::<u64>(),
        readable in any::<bool>(),
        lens in prop::collection::vec(prop_oneof![0usize..70, 60usize..2000], 1..80),
        late in any::<bool>(),
    ) {
        let mut net = Net::new(2, LIMITS, readable, seed);
        let spans: Vec<Span> = lens.iter().enumerate().map(|(seed, len)| Span::owned(&bytes(*len, seed))).collect();
        let message = Planned { from: 0, to: 1, tag: 5, len: 0, synchronous: false };
        let sends: Vec<Request> = spans.iter().map(|span| isend(&mut net, &message, span)).collect();
        if late {
            net.settle();
        }
        let pattern = Pattern { context: 9, source: Some(0), tag: None };
        let back: Vec<(Span, Request)> = lens.iter().map(|len| {
            let span = Span::zeroes(*len);
            let request = irecv(&mut net, 1, pattern, &span);
            net.step();
            (span, request)
        }).collect();
        net.settle();
        for (index, (span, request)) in back.iter().enumerate() {
            let status = take(&mut net, 1, *request);
            prop_assert_eq!(status.bytes, lens[index] as u64);
            prop_assert!(contents(span) == bytes(lens[index], index), "message {}", index);
        }
        for send in sends {
            take(&mut net, 0, send);
        }
        prop_assert!(net.ranks[0].0.is_idle() && net.ranks[1].0.is_idle());
        prop_assert_eq!(net.ranks[1].0.early_bytes(), 0);
    }

    /// Packets of any content neither panic nor finish what they do not belong to.
    #[test]
    fn nonsense_is_refused(seed in any::<u64>(), packets in prop::collection::vec((any::<[u8; 32]>(), 1u8..9), 1..20)) {
        let mut net = Net::new(2, LIMITS, false, seed);
        let waiting = irecv(&mut net, 0, Pattern { context: 9, source: Some(1), tag: Some(1) }, &Span::zeroes(100));
        let long = Span::owned(&bytes(500, 1));
        let send = isend(&mut net, &Planned { from: 0, to: 1, tag: 0, len: 500, synchronous: false }, &long);
        for _ in 0..50 {
            net.step();
        }
        for (mut header, kind) in packets {
            header[0] = kind;
            let packet = Packet::parse(&header).unwrap();
            let (core, wire) = &mut net.ranks[0];
            if core.arrived(wire, 1, &packet, &[], None).is_err() {
                core.lost(1, "gone");
                break;
            }
        }
        let core = &net.ranks[0].0;
        prop_assert!(!core.is_lost(1) || core.is_done(waiting) && core.is_done(send));
    }
}

#[test]
fn a_receiver_that_stays_away_is_sent_no_more_than_its_room() {
    let mut net = Net::new(2, LIMITS, false, 7);
    let span = Span::owned(&bytes(50, 0));
    let message = Planned { from: 0, to: 1, tag: 0, len: 50, synchronous: false };
    let sends: Vec<Request> = (0..1000).map(|_| isend(&mut net, &message, &span)).collect();
    net.settle();
    let done = sends.iter().filter(|send| net.ranks[0].0.is_done(**send)).count();
    assert!(done < 10, "{done} sends of 50 bytes are done with room for 600");
    let pattern = Pattern { context: 9, source: Some(0), tag: Some(0) };
    for _ in 0..1000 {
        let back = Span::zeroes(50);
        let request = irecv(&mut net, 1, pattern, &back);
        net.settle();
        assert_eq!(take(&mut net, 1, request).bytes, 50);
    }
    assert!(sends.iter().all(|send| net.ranks[0].0.is_done(*send)));
}

#[test]
fn the_loss_of_a_peer_fails_what_needs_it() {
    let mut net = Net::new(3, LIMITS, false, 3);
    let long = Span::owned(&bytes(500, 0));
    let send = |to: usize| Planned { from: 0, to, tag: 0, len: 500, synchronous: false };
    let (lost, kept) = (isend(&mut net, &send(1), &long), isend(&mut net, &send(2), &long));
    let named = irecv(&mut net, 0, Pattern { context: 9, source: Some(1), tag: None }, &Span::zeroes(9));
    let any = irecv(&mut net, 0, Pattern { context: 9, source: None, tag: None }, &Span::zeroes(9));
    let other = irecv(&mut net, 0, Pattern { context: 9, source: Some(2), tag: None }, &Span::zeroes(9));
    net.settle();
    let core = &mut net.ranks[0].0;
    core.lost(1, "gone");
    core.lost(1, "gone");
    for request in [lost, named, any] {
        assert_eq!(core.take(request).unwrap().error.unwrap().class(), Class::ProcAborted);
    }
    assert!(!core.is_done(kept) && !core.is_done(other));
    let again = isend(&mut net, &send(1), &long);
    assert_eq!(net.ranks[0].0.take(again).unwrap().error.unwrap().class(), Class::ProcAborted);
}

#[test]
fn a_message_that_is_too_long_is_cut_and_named() {
    let mut net = Net::new(2, LIMITS, false, 5);
    for len in [60, 150, 500] {
        let span = Span::owned(&bytes(len, 2));
        let message = Planned { from: 0, to: 1, tag: 1, len, synchronous: false };
        let send = isend(&mut net, &message, &span);
        let back = Span::zeroes(40);
        let receive = irecv(&mut net, 1, Pattern { context: 9, source: None, tag: Some(1) }, &back);
        net.settle();
        let done = net.ranks[1].0.take(receive).unwrap();
        assert_eq!((done.status.bytes, done.error.unwrap().class()), (40, Class::Truncate));
        assert_eq!(contents(&back), bytes(len, 2)[..40]);
        take(&mut net, 0, send);
    }
}

#[test]
fn answers_to_nothing_are_violations() {
    let mut net = Net::new(2, LIMITS, false, 5);
    let (core, wire) = &mut net.ranks[0];
    let refused = |core: &mut Core, wire: &mut _, packet: Packet| -> Violation {
        arrived(core, wire, packet).unwrap_err()
    };
    for kind in [Kind::Reply, Kind::Ack, Kind::Data, Kind::More] {
        refused(core, wire, Packet::new(kind));
    }
    refused(core, wire, Packet { number: 1, ..Packet::new(Kind::Eager) });
    refused(core, wire, Packet { tag: -1, ..Packet::new(Kind::Eager) });
    refused(core, wire, Packet { credits: 1, ..Packet::new(Kind::Credit) });
}

fn arrived(core: &mut Core, wire: &mut impl Port, packet: Packet) -> Result<(), Violation> {
    core.arrived(wire, 1, &packet, &[], None)
}

/// What a rank sends with so many bytes, packet by packet.
fn packets_of(net: &mut Net, len: usize, tag: i32) -> Vec<(Packet, Vec<AtomicU8>)> {
    let message = Planned { from: 1, to: 0, tag, len, synchronous: false };
    let sent = isend(net, &message, &Span::owned(&bytes(len, len)));
    while net.ranks[1].1.is_silent() {
        net.open_all();
    }
    let packets = net.ranks[1].1.take_all(0);
    take(net, 1, sent);
    packets
}

#[test]
fn a_receive_inside_its_turn_takes_a_message_that_no_posted_one_takes() {
    let mut net = Net::new(2, LIMITS, false, 5);
    let exact = |tag| Pattern { context: 9, source: Some(1), tag: Some(tag) };
    let posted = irecv(&mut net, 0, exact(3), &Span::zeroes(60));
    let back = Span::zeroes(60);
    let mut soon = Soon::new(Pattern { context: 9, source: None, tag: None }, &back);
    for (tag, taken) in [(3, false), (4, true), (5, false)] {
        for (packet, payload) in packets_of(&mut net, 50, tag) {
            let (core, wire) = &mut net.ranks[0];
            core.arrived(wire, 1, &packet, &payload, Some(&mut soon)).unwrap();
        }
        if taken {
            assert!(soon.is_done(), "the first one that was left over");
            let status = soon.result().unwrap();
            assert_eq!((status.tag, status.bytes), (4, 50));
            assert_eq!(contents(&back)[..50], bytes(50, 50));
            soon = Soon::new(exact(4), &back);
        }
        assert!(!soon.is_done());
    }
    assert_eq!(take(&mut net, 0, posted).tag, 3);
    let (core, wire) = &mut net.ranks[0];
    assert!(
        core.may_wait_soon(wire, &mut soon) && soon.is_waiting(),
        "its tag is 4, that of the early message 5"
    );
    let mut soon = Soon::new(exact(5), &back);
    assert!(!core.may_wait_soon(wire, &mut soon) && soon.is_done());
    assert_eq!(soon.result().map(|status| status.tag), Ok(5));
    assert_eq!(core.early_bytes(), 0);
}

#[test]
fn a_receive_inside_its_turn_becomes_a_request_for_a_message_in_pieces() {
    let mut net = Net::new(2, LIMITS, false, 5);
    let (back, mut request) = (Span::zeroes(200), None);
    let mut soon = Soon::new(Pattern { context: 9, source: Some(1), tag: Some(4) }, &back);
    let packets = packets_of(&mut net, 150, 4);
    assert_eq!(packets.len(), 3);
    for (packet, payload) in packets {
        let (core, wire) = &mut net.ranks[0];
        assert!(request.is_none_or(|request| !core.is_done(request)));
        core.arrived(wire, 1, &packet, &payload, Some(&mut soon)).unwrap();
        request = soon.request();
    }
    assert_eq!(take(&mut net, 0, request.expect("from the first piece on")).bytes, 150);
    assert_eq!(contents(&back)[..150], bytes(150, 150));
}

#[test]
fn a_receive_inside_its_turn_becomes_a_request_for_a_message_that_is_announced() {
    let mut net = Net::new(2, LIMITS, false, 5);
    let back = Span::zeroes(500);
    let mut soon = Soon::new(Pattern { context: 9, source: Some(1), tag: Some(4) }, &back);
    let sent = isend(
        &mut net,
        &Planned { from: 1, to: 0, tag: 4, len: 500, synchronous: false },
        &Span::owned(&bytes(500, 3)),
    );
    net.open_all();
    let (packet, payload) = net.ranks[1].1.take_all(0).remove(0);
    let (core, wire) = &mut net.ranks[0];
    core.arrived(wire, 1, &packet, &payload, Some(&mut soon)).unwrap();
    core.reposted(wire, 1);
    let request = soon.request().expect("from the envelope on");
    net.settle();
    assert_eq!(take(&mut net, 0, request).bytes, 500);
    assert_eq!(contents(&back), bytes(500, 3));
    take(&mut net, 1, sent);
}

#[test]
fn a_message_of_which_pieces_are_missing_waits_for_them_or_fails_with_its_sender() {
    for dies in [false, true] {
        let mut net = Net::new(2, LIMITS, false, 5);
        let pattern = Pattern { context: 9, source: Some(1), tag: Some(4) };
        let back = Span::zeroes(200);
        let mut packets = packets_of(&mut net, 150, 4);
        let last = packets.pop().unwrap();
        for (packet, payload) in packets {
            let (core, wire) = &mut net.ranks[0];
            core.arrived(wire, 1, &packet, &payload, None).unwrap();
        }
        assert_eq!(net.ranks[0].0.probe(&pattern).map(|status| status.bytes), Some(150));
        let before = irecv(&mut net, 0, pattern, &back);
        let core = &mut net.ranks[0].0;
        assert!(!core.is_done(before) && core.early_bytes() == 0);
        if dies {
            core.lost(1, "gone");
            assert_eq!(core.take(before).unwrap().error.unwrap().class(), Class::ProcAborted);
            continue;
        }
        let (core, wire) = &mut net.ranks[0];
        core.arrived(wire, 1, &last.0, &last.1, None).unwrap();
        assert_eq!(take(&mut net, 0, before).bytes, 150);
        assert_eq!(contents(&back)[..150], bytes(150, 150));
    }
}

#[test]
fn a_message_whose_sender_died_between_its_pieces_fails_its_receive() {
    let mut net = Net::new(2, LIMITS, false, 5);
    let (packet, payload) = packets_of(&mut net, 150, 4).remove(0);
    let (core, wire) = &mut net.ranks[0];
    core.arrived(wire, 1, &packet, &payload, None).unwrap();
    core.lost(1, "gone");
    let late = irecv(&mut net, 0, Pattern { context: 9, source: Some(1), tag: Some(4) }, &Span::zeroes(150));
    let core = &mut net.ranks[0].0;
    assert_eq!(core.take(late).unwrap().error.unwrap().class(), Class::ProcAborted);
    assert_eq!(core.early_bytes(), 0);
}
