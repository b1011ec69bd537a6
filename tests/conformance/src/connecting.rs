//! Connecting as client and server: requests, answers, time limits, backlog, private data.

use std::thread;

use viaduct_via::Reliability::{ReliableDelivery, ReliableReception, Unreliable};
use viaduct_via::{Error, NetAddress, ViState};

use crate::world::{LONG, SHORT, Side, World, until};

/// The server waits, the client tries until somebody waits: VIA's way, each on a thread of its own.
pub fn client_and_server(mut w: World) {
    let address = w.address();
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let World { mut a, mut b, folder: _folder, .. } = w;
    thread::scope(|scope| {
        scope.spawn(|| {
            let request = b.connect_wait(&address, LONG).unwrap();
            assert_eq!(request.remote().reliability, ReliableDelivery);
            b.accept(request, vb).map_err(|(e, _)| e).unwrap();
        });
        until("somebody to wait", || match a.connect_request(va, &address, LONG) {
            Ok(theirs) => Some(assert_eq!(theirs.reliability, ReliableDelivery)),
            Err(Error::NoMatch(_)) => None,
            Err(e) => panic!("{e}"),
        });
    });
    assert_eq!((a.state(va), b.state(vb)), (ViState::Connected, ViState::Connected));
}

/// Without a waiter the answer comes by itself, also to a request without time limit.
pub fn nobody_there_is_told_at_once(mut w: World) {
    let va = w.a.vi(ReliableDelivery);
    let address = w.address();
    assert!(matches!(w.a.connect_request(va, &address, None), Err(Error::NoMatch(_))));
    // Somebody who has stopped waiting is nobody, too.
    assert!(matches!(w.b.connect_wait(&address, SHORT), Err(Error::Timeout)));
    assert!(matches!(w.a.connect_request(va, &address, None), Err(Error::NoMatch(_))));
    let closed = w.address();
    let listener = w.b.listen(&closed, 1).unwrap();
    w.b.unlisten(listener).unwrap();
    assert!(matches!(w.a.connect_request(va, &closed, None), Err(Error::NoMatch(_))));
    assert_eq!(w.a.state(va), ViState::Idle);
}

/// No answer in time; a late one finds nobody, and does no harm.
pub fn a_request_times_out(mut w: World) {
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let address = w.address();
    let listener = w.b.listen(&address, 2).unwrap();
    assert!(matches!(w.a.connect_request(va, &address, SHORT), Err(Error::Timeout)));
    assert_eq!(w.a.state(va), ViState::Idle);
    // The request may have gone with its client; if not, it is too late for it.
    if let Ok(late) = w.b.wait_listener(listener, SHORT) {
        match w.b.accept(late, vb) {
            Err((Error::NotReachable(_), request)) => w.b.reject(request).unwrap(),
            Err((e, _)) => panic!("{e}"),
            Ok(()) => {
                w.reaches(Side::B, vb, ViState::Error);
                w.b.disconnect(vb).unwrap();
            }
        }
    }
    assert_eq!((w.a.state(va), w.b.state(vb)), (ViState::Idle, ViState::Idle));
    w.connect(va, vb);
}

/// Requests need some time.
pub fn no_time_at_all_is_refused(mut w: World) {
    let va = w.a.vi(ReliableDelivery);
    let (here, there) = (w.address(), w.address());
    let none = Some(std::time::Duration::ZERO);
    assert!(matches!(w.a.connect_request(va, &there, none), Err(Error::InvalidParameter(_))));
    assert!(matches!(w.a.connect_start(va, None, &there, &[], none), Err(Error::InvalidParameter(_))));
    assert!(matches!(w.a.connect_peer_request(va, &here, &there, none), Err(Error::InvalidParameter(_))));
    assert_eq!(w.a.state(va), ViState::Idle);
}

/// Private data of request, acceptance and rejection, up to the limit and beyond it.
pub fn private_data_goes_both_ways(mut w: World) {
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let address = w.address();
    let listener = w.b.listen(&address, 1).unwrap();
    let most = vec![7; w.a.attributes().max_private_data];
    let beyond = vec![7; most.len() + 1];
    let refused = w.a.connect_start(va, None, &address, &beyond, LONG).unwrap_err();
    assert!(matches!(refused, Error::Limit { .. }), "{refused}");
    w.a.connect_start(va, None, &address, &most, LONG).unwrap();
    let request = w.b.wait_listener(listener, LONG).unwrap();
    assert_eq!(request.remote().private_data, most);
    w.b.reject_with(request, b"not you").unwrap();
    match w.a.connect_finish(va) {
        Err(Error::Rejected(reason)) => assert_eq!(reason, b"not you"),
        other => panic!("{other:?}"),
    }
    w.a.connect_start(va, None, &address, b"hi", LONG).unwrap();
    let request = w.b.wait_listener(listener, LONG).unwrap();
    let (error, request) = w.b.accept_with(request, vb, &beyond).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    w.b.accept_with(request, vb, &most).map_err(|(e, _)| e).unwrap();
    assert_eq!(w.a.connect_finish(va).unwrap().private_data, most);
    assert_eq!(w.b.query_vi(vb).unwrap().remote.unwrap().private_data, b"hi");
}

/// A rejection that cannot be sent as asked still is one: the client is not left waiting.
pub fn a_rejection_with_too_much_data_still_rejects(mut w: World) {
    let va = w.a.vi(ReliableDelivery);
    let address = w.address();
    let listener = w.b.listen(&address, 1).unwrap();
    w.a.connect_start(va, None, &address, &[], LONG).unwrap();
    let request = w.b.wait_listener(listener, LONG).unwrap();
    let beyond = vec![0; w.b.attributes().max_private_data + 1];
    assert!(matches!(w.b.reject_with(request, &beyond), Err(Error::Limit { .. })));
    drop(w.b.poll_listener(listener));
    assert!(matches!(w.a.connect_finish(va), Err(Error::Rejected(_))));
}

/// A request that the server forgets is answered for it, at the NIC's next call.
pub fn a_forgotten_request_is_rejected(mut w: World) {
    let va = w.a.vi(ReliableDelivery);
    let address = w.address();
    let listener = w.b.listen(&address, 1).unwrap();
    for _ in 0..3 {
        w.a.connect_start(va, None, &address, &[], LONG).unwrap();
        drop(w.b.wait_listener(listener, LONG).unwrap());
        drop(w.b.poll_listener(listener));
        assert!(matches!(w.a.connect_finish(va), Err(Error::Rejected(_))));
    }
}

/// Level, size and quality of service must agree; a failed accept tells the client nothing and can be repeated.
pub fn a_mismatch_leaves_the_request_usable(mut w: World) {
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let address = w.address();
    let listener = w.b.listen(&address, 1).unwrap();
    w.a.connect_start(va, None, &address, &[], LONG).unwrap();
    let mut request = w.b.wait_listener(listener, LONG).unwrap();
    let good = w.b.vi_attributes(ReliableDelivery);
    for level in [Unreliable, ReliableReception] {
        w.b.set_vi_attributes(vb, good.clone().reliability(level)).unwrap();
        let (error, again) = w.b.accept(request, vb).unwrap_err();
        assert!(matches!(error, Error::ReliabilityMismatch { ours, theirs: ReliableDelivery } if ours == level));
        request = again;
    }
    let mut other = good.clone();
    other.max_transfer_size = 4096;
    w.b.set_vi_attributes(vb, other).unwrap();
    let (error, request) = w.b.accept(request, vb).unwrap_err();
    assert!(matches!(error, Error::TransferSizeMismatch { ours: 4096, .. }), "{error}");
    let mut other = good.clone();
    other.qos = 9;
    w.b.set_vi_attributes(vb, other).unwrap();
    let (error, request) = w.b.accept(request, vb).unwrap_err();
    assert!(matches!(error, Error::QosMismatch { ours: 9, theirs: 0 }), "{error}");
    w.idle();
    assert!(w.a.connect_poll(va).unwrap().is_none(), "the client still waits");
    assert_eq!(w.b.state(vb), ViState::Idle);
    w.b.set_vi_attributes(vb, good).unwrap();
    w.b.accept(request, vb).map_err(|(e, _)| e).unwrap();
    w.a.connect_finish(va).unwrap();
}

/// Only an idle VI accepts.
pub fn only_an_idle_vi_accepts(mut w: World) {
    let (_, busy) = w.pair(ReliableDelivery);
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let pending = w.b.vi(ReliableDelivery);
    let (address, elsewhere) = (w.address(), w.address());
    let _somebody = w.a.listen(&elsewhere, 1).unwrap();
    w.b.connect_start(pending, None, &elsewhere, &[], LONG).unwrap();
    let listener = w.b.listen(&address, 1).unwrap();
    w.a.connect_start(va, None, &address, &[], LONG).unwrap();
    let mut request = w.b.wait_listener(listener, LONG).unwrap();
    for (vi, state) in [(busy, ViState::Connected), (pending, ViState::ConnectPending)] {
        let (error, again) = w.b.accept(request, vi).unwrap_err();
        assert!(matches!(error, Error::InvalidState { found, .. } if found == state), "{error}");
        request = again;
    }
    w.b.accept(request, vb).map_err(|(e, _)| e).unwrap();
    w.a.connect_finish(va).unwrap();
    assert_eq!(w.b.state(busy), ViState::Connected, "not disturbed");
}

/// As many requests wait as the backlog says; the next is told that nobody is there.
pub fn the_backlog_is_bounded(mut w: World) {
    let address = w.address();
    assert!(matches!(w.b.listen(&address, 0), Err(Error::InvalidParameter(_))));
    let listener = w.b.listen(&address, 2).unwrap();
    let vis: Vec<_> = (0..4).map(|_| w.a.vi(ReliableDelivery)).collect();
    for vi in &vis[..2] {
        w.a.connect_start(*vi, None, &address, &[], LONG).unwrap();
    }
    let first = w.b.wait_listener(listener, LONG).unwrap();
    let second = w.b.wait_listener(listener, LONG).unwrap();
    assert!(matches!(w.a.connect_request(vis[2], &address, LONG), Err(Error::NoMatch(_))));
    let vb = w.b.vi(ReliableDelivery);
    w.b.accept(first, vb).map_err(|(e, _)| e).unwrap();
    w.a.connect_finish(vis[0]).unwrap();
    w.a.connect_start(vis[3], None, &address, &[], LONG).unwrap();
    let third = w.b.wait_listener(listener, LONG).unwrap();
    w.b.reject(second).unwrap();
    w.b.reject(third).unwrap();
    assert!(w.a.connect_finish(vis[1]).is_err() && w.a.connect_finish(vis[3]).is_err());
}

/// A client that gave up leaves its place in the backlog to the next.
pub fn a_request_given_up_leaves_its_place(mut w: World) {
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let address = w.address();
    let listener = w.b.listen(&address, 1).unwrap();
    for _ in 0..3 {
        until("a place", || match w.a.connect_request(va, &address, SHORT) {
            Err(Error::Timeout) => Some(()),
            Err(Error::NoMatch(_)) => None,
            other => panic!("{other:?}"),
        });
    }
    w.until("the request that still stands", |w| {
        if w.a.state(va) == ViState::Idle {
            let _ = w.a.connect_poll(va);
            w.a.connect_start(va, None, &address, &[], LONG).unwrap();
        }
        if let Some(request) = w.b.poll_listener(listener).unwrap()
            && let Err((_, stale)) = w.b.accept(request, vb)
        {
            w.b.reject(stale).unwrap();
        }
        if w.b.state(vb) == ViState::Error {
            w.b.disconnect(vb).unwrap();
        }
        (w.a.state(va) == ViState::Connected).then_some(())
    });
}

/// One address, one listener, one connection after another.
pub fn the_same_address_serves_again_and_again(mut w: World) {
    let address = w.address();
    let listener = w.b.listen(&address, 1).unwrap();
    assert!(matches!(w.b.listen(&address, 1), Err(Error::AddressInUse(_))));
    assert!(matches!(w.a.listen(&address, 1), Err(Error::AddressInUse(_))));
    for _ in 0..5 {
        let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
        w.a.connect_start(va, None, &address, &[], LONG).unwrap();
        let request = w.b.wait_listener(listener, LONG).unwrap();
        w.b.accept(request, vb).map_err(|(e, _)| e).unwrap();
        w.a.connect_finish(va).unwrap();
    }
    w.b.unlisten(listener).unwrap();
    let listener = w.a.listen(&address, 1).unwrap();
    w.a.unlisten(listener).unwrap();
}

/// A server may wait for the next client before it has answered the last one.
pub fn waiting_again_before_answering(mut w: World) {
    let address = w.address();
    let (first, second) = (w.a.vi(ReliableDelivery), w.a.vi(ReliableDelivery));
    let (one, two) = (w.b.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let World { mut a, mut b, folder: _folder, .. } = w;
    thread::scope(|scope| {
        scope.spawn(|| {
            let waiting = b.connect_wait(&address, LONG).unwrap();
            let next = b.connect_wait(&address, LONG).unwrap();
            b.accept(next, two).map_err(|(e, _)| e).unwrap();
            b.accept(waiting, one).map_err(|(e, _)| e).unwrap();
        });
        until("both to be connected", || {
            for vi in [first, second] {
                match a.state(vi) {
                    ViState::Idle => a.connect_start(vi, None, &address, &[], LONG).unwrap(),
                    ViState::ConnectPending => match a.connect_poll(vi) {
                        Ok(_) | Err(Error::NoMatch(_)) => {}
                        Err(e) => panic!("{e}"),
                    },
                    _ => {}
                }
            }
            [first, second].iter().all(|vi| a.state(*vi) == ViState::Connected).then_some(())
        });
    });
}

/// Several VIs of one local address, and several discriminators of one host.
pub fn several_vis_share_an_address(mut w: World) {
    let local = w.address();
    for _ in 0..3 {
        let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
        let address = NetAddress::new(b"", &[0, 0xff, b'/', va.raw().index as u8]).unwrap();
        let listener = w.b.listen(&address, 1).unwrap();
        w.a.connect_start(va, Some(&local), &address, &[], LONG).unwrap();
        let request = w.b.wait_listener(listener, LONG).unwrap();
        assert_eq!(request.from(), &local, "the client's own address is told");
        w.b.accept(request, vb).map_err(|(e, _)| e).unwrap();
        w.a.connect_finish(va).unwrap();
    }
}

/// A VI may be connected to another VI of the same NIC.
pub fn a_nic_connects_to_itself(mut w: World) {
    let (one, two) = (w.a.vi(ReliableDelivery), w.a.vi(ReliableDelivery));
    let address = w.address();
    w.a.post_recvs(two, 1, 16);
    let listener = w.a.listen(&address, 1).unwrap();
    w.a.connect_start(one, None, &address, &[], LONG).unwrap();
    let request = w.a.wait_listener(listener, LONG).unwrap();
    w.a.accept(request, two).map_err(|(e, _)| e).unwrap();
    w.a.connect_finish(one).unwrap();
    w.a.send(one, b"to myself");
    let got = w.next(Side::A, two, viaduct_via::Queue::Receive);
    assert_eq!(got.data(), b"to myself");
}

/// Requests that nobody fetched are answered when the listener goes; one that was fetched can still be accepted.
pub fn a_listener_that_goes_answers(mut w: World) {
    let address = w.address();
    let listener = w.b.listen(&address, 2).unwrap();
    let (kept, left) = (w.a.vi(ReliableDelivery), w.a.vi(ReliableDelivery));
    w.a.connect_start(kept, None, &address, &[], None).unwrap();
    let request = w.b.wait_listener(listener, LONG).unwrap();
    w.a.connect_start(left, None, &address, &[], None).unwrap();
    w.b.unlisten(listener).unwrap();
    assert!(matches!(w.a.connect_finish(left), Err(Error::NoMatch(_) | Error::Rejected(_))));
    assert!(matches!(w.b.poll_listener(listener), Err(Error::InvalidHandle(_))));
    let vb = w.b.vi(ReliableDelivery);
    w.b.accept(request, vb).map_err(|(e, _)| e).unwrap();
    w.a.connect_finish(kept).unwrap();
}

/// A server that is closed answers its clients, even those without a time limit.
pub fn a_closed_server_answers(mut w: World) {
    let address = w.address();
    let mut third = w.node();
    let listener = third.listen(&address, 2).unwrap();
    let (fetched, left) = (w.a.vi(ReliableDelivery), w.a.vi(ReliableDelivery));
    w.a.connect_start(fetched, None, &address, &[], None).unwrap();
    let request = third.wait_listener(listener, LONG).unwrap();
    w.a.connect_start(left, None, &address, &[], None).unwrap();
    drop(third);
    assert!(w.a.connect_finish(fetched).is_err());
    assert!(w.a.connect_finish(left).is_err());
    drop(request);
    assert_eq!((w.a.state(fetched), w.a.state(left)), (ViState::Idle, ViState::Idle));
}

/// A client that is closed before it looked at the answer leaves nobody hanging.
pub fn a_client_closed_before_the_answer_is_read(mut w: World) {
    let mut third = w.node();
    let (vc, vb) = (third.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let address = w.address();
    let listener = w.b.listen(&address, 1).unwrap();
    third.connect_start(vc, None, &address, &[], LONG).unwrap();
    let request = w.b.wait_listener(listener, LONG).unwrap();
    w.b.accept(request, vb).map_err(|(e, _)| e).unwrap();
    drop(third);
    w.reaches(Side::B, vb, ViState::Error);
}
