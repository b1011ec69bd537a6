//! Connecting peer to peer, giving up while a request is under way, and connecting again.

use viaduct_via::Reliability::{self, ReliableDelivery, ReliableReception};
use viaduct_via::{Error, NetAddress, Queue, Vi, ViState};

use crate::world::{LONG, SHORT, Side, World};

fn finish(w: &mut World, va: Vi, vb: Vi) {
    let (mut done_a, mut done_b) = (false, false);
    w.until("both peers to meet", |w| {
        done_a |= !done_a && w.a.connect_poll(va).unwrap().is_some();
        done_b |= !done_b && w.b.connect_poll(vb).unwrap().is_some();
        (done_a && done_b).then_some(())
    });
    assert_eq!((w.a.state(va), w.b.state(vb)), (ViState::Connected, ViState::Connected));
}

fn talk(w: &mut World, va: Vi, vb: Vi) {
    w.b.post_recvs(vb, 1, 16);
    w.a.post_recvs(va, 1, 16);
    w.a.send(va, b"from a");
    w.b.send(vb, b"from b");
    assert_eq!(w.received(vb).data(), b"from a");
    assert_eq!(w.next(Side::A, va, Queue::Receive).data(), b"from b");
    drop((w.sent(va), w.next(Side::B, vb, Queue::Send)));
}

/// Crossed requests meet, whichever comes first and whichever address is the smaller.
pub fn crossed_requests_meet_in_any_order(mut w: World) {
    for (first, swap) in [(Side::A, false), (Side::B, false), (Side::A, true), (Side::B, true)] {
        let (mut x, mut y) = (w.address(), w.address());
        if swap {
            std::mem::swap(&mut x, &mut y);
        }
        let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
        if first == Side::A {
            w.a.connect_peer_request(va, &x, &y, LONG).unwrap();
            assert_eq!(w.a.state(va), ViState::ConnectPending);
            w.idle();
            w.b.connect_peer_request(vb, &y, &x, LONG).unwrap();
        } else {
            w.b.connect_peer_request(vb, &y, &x, LONG).unwrap();
            w.idle();
            w.a.connect_peer_request(va, &x, &y, LONG).unwrap();
        }
        finish(&mut w, va, vb);
        talk(&mut w, va, vb);
    }
}

/// All requests first, all waits later, and both ends of some on the same NIC.
pub fn many_peers_ask_first_and_wait_later(mut w: World) {
    let pairs: Vec<_> = (0..6).map(|_| (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery))).collect();
    let addresses: Vec<(NetAddress, NetAddress)> = pairs.iter().map(|_| (w.address(), w.address())).collect();
    for ((va, _), (x, y)) in pairs.iter().zip(&addresses) {
        w.a.connect_peer_request(*va, x, y, LONG).unwrap();
    }
    for ((_, vb), (x, y)) in pairs.iter().zip(&addresses).rev() {
        w.b.connect_peer_request(*vb, y, x, LONG).unwrap();
    }
    for (va, vb) in &pairs {
        w.a.connect_finish(*va).unwrap();
        w.b.connect_finish(*vb).unwrap();
    }
    for (va, vb) in pairs {
        talk(&mut w, va, vb);
    }
}

/// Requests that are not crossed, or name one address twice, do not meet.
pub fn only_crossed_requests_meet(mut w: World) {
    let (x, y, z) = (w.address(), w.address(), w.address());
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    assert!(matches!(w.a.connect_peer_request(va, &x, &x, LONG), Err(Error::InvalidParameter(_))));
    w.a.connect_peer_request(va, &x, &y, SHORT).unwrap();
    w.b.connect_peer_request(vb, &y, &z, SHORT).unwrap();
    assert!(matches!(w.a.connect_finish(va), Err(Error::Timeout)));
    assert!(matches!(w.b.connect_finish(vb), Err(Error::Timeout)));
    assert_eq!((w.a.state(va), w.b.state(vb)), (ViState::Idle, ViState::Idle));
}

/// A peer that does not come in time; the addresses are free again afterwards.
pub fn a_peer_request_times_out(mut w: World) {
    let (x, y) = (w.address(), w.address());
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    for (local, remote) in [(&x, &y), (&y, &x)] {
        w.a.connect_peer_request(va, local, remote, SHORT).unwrap();
        assert!(matches!(w.a.connect_finish(va), Err(Error::Timeout)));
        assert_eq!(w.a.state(va), ViState::Idle);
    }
    // The one given up is not met by a late partner.
    w.b.connect_peer_request(vb, &y, &x, SHORT).unwrap();
    assert!(matches!(w.b.connect_finish(vb), Err(Error::Timeout)));
    w.a.connect_peer_request(va, &x, &y, LONG).unwrap();
    w.b.connect_peer_request(vb, &y, &x, LONG).unwrap();
    finish(&mut w, va, vb);
    talk(&mut w, va, vb);
}

/// Peers that ask for different things are both told.
pub fn peers_must_agree(mut w: World) {
    let (x, y) = (w.address(), w.address());
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableReception));
    w.a.connect_peer_request(va, &x, &y, LONG).unwrap();
    w.b.connect_peer_request(vb, &y, &x, LONG).unwrap();
    let error = w.a.connect_finish(va).unwrap_err();
    assert!(matches!(
        error,
        Error::ReliabilityMismatch { ours: ReliableDelivery, theirs: ReliableReception }
    ));
    let error = w.b.connect_finish(vb).unwrap_err();
    assert!(matches!(
        error,
        Error::ReliabilityMismatch { ours: ReliableReception, theirs: ReliableDelivery }
    ));
    assert_eq!((w.a.state(va), w.b.state(vb)), (ViState::Idle, ViState::Idle));
}

/// Disconnecting while a request is under way takes it back and flushes the receives.
pub fn a_pending_request_is_taken_back(mut w: World) {
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let address = w.address();
    let listener = w.b.listen(&address, 2).unwrap();
    w.a.post_recvs(va, 2, 8);
    w.a.connect_start(va, None, &address, &[], None).unwrap();
    w.a.disconnect(va).unwrap();
    assert_eq!(w.a.state(va), ViState::Idle);
    let back = w.a.drain(va, Queue::Receive);
    assert!(back.len() == 2 && back.iter().all(|c| c.status == viaduct_via::Status::Flushed));
    assert!(matches!(w.a.connect_poll(va), Err(Error::InvalidState { .. })));
    if let Ok(late) = w.b.wait_listener(listener, SHORT)
        && w.b.accept(late, vb).is_ok()
    {
        w.reaches(Side::B, vb, ViState::Error);
        w.b.disconnect(vb).unwrap();
    }
    assert_eq!(w.a.state(va), ViState::Idle, "no late answer connects it");
    w.connect(va, vb);
    talk(&mut w, va, vb);
}

/// The answer to a request that was taken back is not taken for the answer to the next one.
pub fn an_old_answer_is_not_taken_for_a_new_one(mut w: World) {
    let (va, old, new) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let (first, second) = (w.address(), w.address());
    let (at_first, at_second) = (w.b.listen(&first, 1).unwrap(), w.b.listen(&second, 1).unwrap());
    w.a.connect_start(va, None, &first, &[], LONG).unwrap();
    let request = w.b.wait_listener(at_first, LONG).unwrap();
    w.b.accept_with(request, old, b"old").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20)); // the answer lies there, unread
    w.a.disconnect(va).unwrap();
    w.a.connect_start(va, None, &second, &[], LONG).unwrap();
    w.reaches(Side::B, old, ViState::Error);
    let request = w.b.wait_listener(at_second, LONG).unwrap();
    w.b.accept_with(request, new, b"new").unwrap();
    assert_eq!(w.a.connect_finish(va).unwrap().private_data, b"new");
    talk(&mut w, va, new);
}

/// The outcome of an old request is forgotten when the VI accepts one.
pub fn an_unread_refusal_is_forgotten(mut w: World) {
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let absent = w.address();
    w.b.connect_start(vb, None, &absent, &[], LONG).unwrap();
    w.reaches(Side::B, vb, ViState::Idle);
    w.connect(va, vb);
    let answer = w.b.connect_poll(vb);
    assert!(matches!(answer, Err(Error::InvalidState { found: ViState::Connected, .. })), "{answer:?}");
}

/// A VI connects again after a disconnect, in either role, and after an error.
pub fn a_vi_connects_again(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair(level);
        for round in 0..6 {
            talk(&mut w, va, vb);
            if round % 2 == 0 {
                w.a.disconnect(va).unwrap();
                w.reaches(Side::B, vb, ViState::Error);
                w.b.disconnect(vb).unwrap();
            } else {
                w.b.disconnect(vb).unwrap();
                w.reaches(Side::A, va, ViState::Error);
                w.a.disconnect(va).unwrap();
            }
            if round < 3 {
                w.connect(va, vb);
                continue;
            }
            let address = w.address();
            let listener = w.a.listen(&address, 1).unwrap();
            w.b.connect_start(vb, None, &address, &[], LONG).unwrap();
            let request = w.a.wait_listener(listener, LONG).unwrap();
            w.a.accept(request, va).unwrap();
            w.b.connect_finish(vb).unwrap();
        }
        talk(&mut w, va, vb);
    }
}

/// A VI in the error state can reconnect with what was flushed still in its queues.
pub fn reconnecting_does_not_need_empty_queues(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    w.b.post_recvs(vb, 3, 16);
    w.a.disconnect(va).unwrap();
    w.reaches(Side::B, vb, ViState::Error);
    w.b.disconnect(vb).unwrap();
    let buffer = w.b.buffer(16);
    w.b.post_recv(vb, viaduct_via::Descriptor::recv(buffer).context(3)).unwrap();
    w.connect(va, vb);
    w.a.send(va, b"fresh");
    for n in 0..3 {
        let back = w.received(vb);
        assert_eq!((back.status, back.descriptor.work().context), (viaduct_via::Status::Flushed, n));
    }
    let got = w.received(vb);
    assert_eq!((got.data(), got.descriptor.work().context), (b"fresh".to_vec(), 3));
}
