//! The three levels of reliability: when a send is complete, and what happens when something cannot be delivered.

use std::sync::Arc;

use viaduct_via::Reliability::{self, ReliableDelivery, ReliableReception, Unreliable};
use viaduct_via::hooks::{Action, Faults, Rule};
use viaduct_via::{Descriptor, ErrorCode, MemAttributes, Queue, Status, Vi, ViState};

use crate::pattern::bytes;
use crate::world::{Side, World, connect, until};

/// Errors met so far, as (VI, code).
fn errors(w: &mut World, side: Side) -> Vec<(Vi, ErrorCode)> {
    let node = w.side(side);
    std::iter::from_fn(|| node.take_error()).map(|e| (e.vi, e.code)).collect()
}

/// With receives posted nothing is lost, doubled or swapped at any level.
pub fn data_arrives_once_and_in_order(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair(level);
        let sizes = [1usize, 40, 100, 700, 5000];
        w.b.post_recvs(vb, 16, 5000);
        let mut posted = 0u64;
        for n in 0..300u64 {
            while posted < 300 && posted < n + 8 {
                w.a.send(va, &bytes(posted, sizes[posted as usize % 5]));
                posted += 1;
            }
            let got = w.received(vb);
            assert_eq!(got.data(), bytes(n, sizes[n as usize % 5]), "message {n} at {level:?}");
            w.b.post_recv(vb, got.descriptor).unwrap();
            drop(w.a.drain(va, Queue::Send));
        }
        assert!(errors(&mut w, Side::A).is_empty() && errors(&mut w, Side::B).is_empty());
    }
}

/// An unreliable or delivered send is complete without the receiver's doing anything.
pub fn a_send_completes_without_the_receiver(mut w: World) {
    for level in [Unreliable, ReliableDelivery] {
        let (va, vb) = w.pair(level);
        w.b.post_recvs(vb, 1, 64);
        w.a.send(va, &[1; 32]);
        // Only one of the two NICs is driven.
        let sent = until("the send", || w.a.poll_send(va).unwrap());
        assert_eq!(sent.status, Status::Success, "{level:?}");
        assert_eq!(w.received(vb).data(), [1; 32]);
    }
}

/// With reliable reception a send that is complete is in the remote memory: the receive is done at the next look.
pub fn reception_means_that_it_is_there(mut w: World) {
    let (va, vb) = w.pair(ReliableReception);
    for n in 0..50u64 {
        w.b.post_recvs(vb, 1, 5000);
        let message = bytes(n, [4, 100, 5000][n as usize % 3]);
        w.a.send(va, &message);
        let mut got = None;
        let sent = until("the send", || {
            let sent = w.a.poll_send(va).unwrap();
            if sent.is_none() && got.is_none() {
                got = w.b.poll_recv(vb).unwrap();
            }
            sent
        });
        assert_eq!(sent.status, Status::Success);
        let got = got.or_else(|| w.b.poll_recv(vb).unwrap()).expect("there as soon as the sender is told");
        assert_eq!(got.data(), message);
    }
}

/// With reliable reception a send is not complete while nothing is posted to take it.
pub fn reception_waits_for_the_receive(mut w: World) {
    let (va, vb) = w.pair(ReliableReception);
    w.a.send(va, b"early");
    for _ in 0..1000 {
        assert!(w.a.poll_send(va).unwrap().is_none(), "the peer cannot have received it");
    }
    w.b.post_recvs(vb, 1, 8);
    assert_eq!(w.received(vb).data(), b"early");
    assert_eq!(w.sent(va).status, Status::Success);
}

/// Unreliable: a message that meets no receive vanishes; the receiver gets one error for each, the sender none.
pub fn unreliable_drops_what_meets_no_receive(mut w: World) {
    let (va, vb) = w.pair(Unreliable);
    for n in 0..5 {
        w.a.send(va, &[n]);
        assert_eq!(w.sent(va).status, Status::Success);
    }
    w.until("five errors", |w| {
        w.b.poll_recv(vb).unwrap();
        (w.b.counters().read(viaduct_via::Counter::Dropped) == 5).then_some(())
    });
    assert_eq!(errors(&mut w, Side::B), [(vb, ErrorCode::ReceiveQueueEmpty); 5]);
    assert_eq!(errors(&mut w, Side::A), []);
    assert_eq!((w.a.state(va), w.b.state(vb)), (ViState::Connected, ViState::Connected));
    w.b.post_recvs(vb, 1, 8);
    w.a.send(va, b"heard");
    assert_eq!(w.received(vb).data(), b"heard");
}

/// Recalled: Reliable delivery: a message that meets no receive breaks the connection; the receiver gets the error.
pub fn delivery_breaks_when_nothing_is_posted(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    w.b.post_recvs(vb, 1, 8);
    w.a.post_recvs(va, 2, 8);
    w.a.send(va, b"taken");
    w.a.send(va, b"too many");
    assert_eq!(w.received(vb).data(), b"taken");
    w.reaches(Side::B, vb, ViState::Error);
    w.reaches(Side::A, va, ViState::Error);
    assert_eq!(errors(&mut w, Side::B), [(vb, ErrorCode::ReceiveQueueEmpty)]);
    let flushed = w.a.drain(va, Queue::Receive);
    assert!(flushed.len() == 2 && flushed.iter().all(|c| c.status == Status::Flushed));
}

/// Recalled: Reliable reception: the same, and the failing descriptor says so; later ones are not carried out.
pub fn reception_tells_which_send_failed(mut w: World) {
    let (va, vb) = w.pair(ReliableReception);
    w.b.post_recvs(vb, 2, 8);
    for n in 0..5 {
        w.a.send(va, &[n]);
    }
    w.reaches(Side::B, vb, ViState::Error);
    w.reaches(Side::A, va, ViState::Error);
    let statuses: Vec<Status> = w.a.drain(va, Queue::Send).iter().map(|c| c.status).collect();
    use Status::{Flushed, RemoteDescriptorError, Success};
    assert_eq!(statuses, [Success, Success, RemoteDescriptorError, Flushed, Flushed]);
    let received: Vec<Vec<u8>> = w.b.drain(vb, Queue::Receive).iter().map(|c| c.data()).collect();
    assert_eq!(received, [[0], [1]]);
    assert_eq!(errors(&mut w, Side::B), [(vb, ErrorCode::ReceiveQueueEmpty)]);
}

/// Recalled: Too long for the receive: its descriptor says so; a reliable connection breaks, an unreliable one goes on.
pub fn too_long_for_the_receive(mut w: World) {
    for level in Reliability::ALL {
        for len in [9usize, 100, 6000] {
            let (va, vb) = w.pair(level);
            w.b.post_recvs(vb, 2, 8);
            let mut guarded = w.b.buffer(4);
            guarded.write(0, &[0xee; 4]);
            w.a.send(va, &bytes(1, len));
            let got = w.received(vb);
            assert_eq!((got.status, got.length), (Status::LengthError, 0), "{level:?} {len}");
            if level == Unreliable {
                assert_eq!(w.sent(va).status, Status::Success, "the sender is not told");
                w.a.send(va, b"short");
                assert_eq!(w.received(vb).data(), b"short");
                assert_eq!(errors(&mut w, Side::B), [], "the descriptor has told already");
                continue;
            }
            w.reaches(Side::B, vb, ViState::Error);
            w.reaches(Side::A, va, ViState::Error);
            assert_eq!(errors(&mut w, Side::B), [(vb, ErrorCode::TooLong)], "{level:?} {len}");
            assert_eq!(w.b.poll_recv(vb).unwrap().unwrap().status, Status::Flushed);
            let sent = w.a.drain(va, Queue::Send);
            assert_eq!(sent.len(), 1);
            if level == ReliableReception {
                assert_eq!(sent[0].status, Status::RemoteDescriptorError, "{len}");
            }
        }
    }
}

/// Recalled: Longer than the VI allows: refused at the sender, by the descriptor.
pub fn too_long_for_the_vi(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair_with(level, |mut attributes| {
            attributes.max_transfer_size = 64;
            attributes
        });
        w.b.post_recvs(vb, 2, 128);
        w.a.send(va, &[1; 64]);
        assert_eq!(w.received(vb).length, 64);
        assert_eq!(w.sent(va).status, Status::Success);
        w.a.send(va, &[1; 65]);
        let sent = w.sent(va);
        assert_eq!((sent.status, sent.length), (Status::LengthError, 0), "{level:?}");
        let expected = if level == Unreliable { ViState::Connected } else { ViState::Error };
        w.reaches(Side::A, va, expected);
        w.reaches(Side::B, vb, expected);
        let left = w.b.drain(vb, Queue::Receive);
        assert!(left.iter().all(|c| c.status == Status::Flushed), "nothing arrived");
    }
}

/// Unreliable: what is left of a message that was too long for its receive, or met none, is never taken for a message.
pub fn the_rest_of_a_lost_message_is_no_message(mut w: World) {
    let long = |w: &mut World, va| {
        // Ordinary memory, so that it travels in pieces.
        let tag = w.a.tag;
        let buffer = w.a.register(bytes(1, 200_000), MemAttributes::local(tag)).unwrap();
        w.a.post_send(va, Descriptor::send(buffer)).unwrap();
    };
    for (first, second) in [(100_000, 200_000), (10, 200_000), (199_999, 64)] {
        let (va, vb) = w.pair(Unreliable);
        w.b.post_recvs(vb, 1, first);
        w.b.post_recvs(vb, 1, second);
        long(&mut w, va);
        w.a.send(va, b"marker");
        let short = w.received(vb);
        assert_eq!((short.status, short.length), (Status::LengthError, 0));
        assert_eq!(w.received(vb).data(), b"marker", "{first} {second}");
        assert_eq!((w.a.state(va), w.b.state(vb)), (ViState::Connected, ViState::Connected));
    }
    let (va, vb) = w.pair(Unreliable);
    long(&mut w, va);
    w.until("the loss", |w| {
        w.a.poll_send(va).unwrap();
        assert!(w.b.poll_recv(vb).unwrap().is_none());
        (w.b.counters().read(viaduct_via::Counter::Dropped) == 1).then_some(())
    });
    // Receives come while pieces of it may still be on their way.
    w.b.post_recvs(vb, 2, 200_000);
    w.a.send(va, b"marker");
    assert_eq!(w.received(vb).data(), b"marker");
    assert_eq!(w.b.counters().read(viaduct_via::Counter::Dropped), 1);
}

/// Unreliable with losses: at most one receive per send, in order, what arrives is whole.
pub fn losses_are_gaps_and_nothing_else(mut w: World) {
    let faults = Arc::new(Faults::new(7, [Rule::Every(3, Action::Lose)]));
    let mut lossy = w.hooked(faults.clone());
    let (va, vb) = (lossy.vi(Unreliable), w.b.vi(Unreliable));
    let address = w.address();
    connect(&mut lossy, va, &mut w.b, vb, &address);
    w.b.post_recvs(vb, 100, 64);
    let mut arrived = Vec::new();
    for n in 0..90u64 {
        let buffer = lossy.message(&bytes(n, 64));
        lossy.post_send(va, Descriptor::send(buffer)).unwrap();
        let sent = until("the send", || {
            arrived.extend(w.b.poll_recv(vb).unwrap());
            lossy.poll_send(va).unwrap()
        });
        assert_eq!(sent.status, Status::Success, "a loss is not told");
    }
    assert_eq!(faults.injected(), 30);
    let kept = (0..90).filter(|n| n % 3 != 2);
    until("what was not lost", || {
        arrived.extend(w.b.poll_recv(vb).unwrap());
        (arrived.len() == 60).then_some(())
    });
    for (n, got) in kept.zip(arrived) {
        assert_eq!(got.data(), bytes(n, 64));
    }
    assert_eq!(w.b.query_vi(vb).unwrap().receives, 40, "one receive for each that arrived");
    assert!(w.b.take_error().is_none());
}

/// A break is seen at both ends, and says so once.
pub fn a_break_is_seen_at_both_ends(mut w: World) {
    for level in Reliability::ALL {
        let mut third = w.hooked(Arc::new(Faults::new(1, [Rule::Nth(1, Action::Break)])));
        let (vc, vb) = (third.vi(level), w.b.vi(level));
        let address = w.address();
        connect(&mut third, vc, &mut w.b, vb, &address);
        w.b.post_recvs(vb, 3, 8);
        third.send(vc, b"fine");
        third.send(vc, b"breaks");
        until("the break", || (third.state(vc) == ViState::Error).then_some(()));
        let lost = third.take_error().unwrap();
        assert_eq!((lost.vi, lost.code), (vc, ErrorCode::ConnectionLost));
        assert!(third.take_error().is_none(), "once");
        w.reaches(Side::B, vb, ViState::Error);
        let statuses: Vec<Status> = w.b.drain(vb, Queue::Receive).iter().map(|c| c.status).collect();
        assert_eq!(statuses, [Status::Success, Status::Flushed, Status::Flushed], "{level:?}");
        let sent: Vec<Status> = third.drain(vc, Queue::Send).iter().map(|c| c.status).collect();
        assert_eq!(sent.last(), Some(&Status::Flushed), "{level:?}");
    }
}
