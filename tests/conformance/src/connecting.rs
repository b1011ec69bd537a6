//! Connecting as client and server: requests, answers, time limits, backlog, private data.

use std::thread;

use viaduct_via::Reliability::{ReliableDelivery, ReliableReception, Unreliable};
use viaduct_via::{AcceptError, Error, ViState};

use crate::world::{LONG, SHORT, Side, World, until};

/// The server waits, the client tries until the server waits: VIA's way, each on a thread of its own.
pub fn client_and_server(mut w: World) {
    let address = w.address();
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let World { mut a, mut b, folder: _folder, .. } = w;
    thread::scope(|scope| {
        scope.spawn(|| {
            let request = b.connect_wait(&address, LONG).unwrap();
            assert_eq!(request.remote().reliability, ReliableDelivery);
            b.accept(request, vb).unwrap();
        });
        until("the server to wait", || match a.connect_request(va, &address, LONG) {
            Ok(theirs) => {
                assert_eq!(theirs.reliability, ReliableDelivery);
                Some(())
            }
            Err(Error::NoMatch(_)) => None,
            Err(e) => panic!("{e}"),
        });
    });
    assert_eq!((a.state(va), b.state(vb)), (ViState::Connected, ViState::Connected));
}

/// No answer in time; a late one finds no request, and does no harm.
pub fn a_request_times_out(mut w: World) {
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let address = w.address();
    let listener = w.b.listen(&address, 2).unwrap();
    assert!(matches!(w.a.connect_request(va, &address, SHORT), Err(Error::Timeout)));
    assert_eq!(w.a.state(va), ViState::Idle);
    // The request may have gone with its client; if not, it is too late for it.
    if let Ok(late) = w.b.wait_listener(listener, SHORT) {
        match w.b.accept(late, vb) {
            Err(AcceptError { error: Error::NotReachable(_), request }) => w.b.reject(request).unwrap(),
            Err(refused) => panic!("{refused}"),
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
    let AcceptError { error, request } = w.b.accept_with(request, vb, &beyond).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    w.b.accept_with(request, vb, &most).unwrap();
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
        let AcceptError { error, request: again } = w.b.accept(request, vb).unwrap_err();
        assert!(
            matches!(error, Error::ReliabilityMismatch { ours, theirs: ReliableDelivery } if ours == level)
        );
        request = again;
    }
    let mut other = good.clone();
    other.max_transfer_size = 4096;
    w.b.set_vi_attributes(vb, other).unwrap();
    let AcceptError { error, request } = w.b.accept(request, vb).unwrap_err();
    assert!(matches!(error, Error::TransferSizeMismatch { ours: 4096, .. }), "{error}");
    let mut other = good.clone();
    other.qos = 9;
    w.b.set_vi_attributes(vb, other).unwrap();
    let AcceptError { error, request } = w.b.accept(request, vb).unwrap_err();
    assert!(matches!(error, Error::QosMismatch { ours: 9, theirs: 0 }), "{error}");
    w.idle();
    assert!(w.a.connect_poll(va).unwrap().is_none(), "the client still waits");
    assert_eq!(w.b.state(vb), ViState::Idle);
    w.b.set_vi_attributes(vb, good).unwrap();
    w.b.accept(request, vb).unwrap();
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
        let AcceptError { error, request: again } = w.b.accept(request, vi).unwrap_err();
        assert!(matches!(error, Error::InvalidState { found, .. } if found == state), "{error}");
        request = again;
    }
    w.b.accept(request, vb).unwrap();
    w.a.connect_finish(va).unwrap();
    assert_eq!(w.b.state(busy), ViState::Connected, "not disturbed");
}

/// A VI may be connected to another VI of the same NIC.
pub fn a_nic_connects_to_itself(mut w: World) {
    let (one, two) = (w.a.vi(ReliableDelivery), w.a.vi(ReliableDelivery));
    let address = w.address();
    w.a.post_recvs(two, 1, 16);
    let listener = w.a.listen(&address, 1).unwrap();
    w.a.connect_start(one, None, &address, &[], LONG).unwrap();
    let request = w.a.wait_listener(listener, LONG).unwrap();
    w.a.accept(request, two).unwrap();
    w.a.connect_finish(one).unwrap();
    w.a.send(one, b"to myself");
    let got = w.next(Side::A, two, viaduct_via::Queue::Receive);
    assert_eq!(got.data(), b"to myself");
}

/// A client that is closed before it looked at the answer leaves no server hanging.
pub fn a_client_closed_before_the_answer_is_read(mut w: World) {
    let mut third = w.node();
    let (vc, vb) = (third.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let address = w.address();
    let listener = w.b.listen(&address, 1).unwrap();
    third.connect_start(vc, None, &address, &[], LONG).unwrap();
    let request = w.b.wait_listener(listener, LONG).unwrap();
    w.b.accept(request, vb).unwrap();
    drop(third);
    w.reaches(Side::B, vb, ViState::Error);
}
