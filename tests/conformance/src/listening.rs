//! The server's side of connecting: addresses, backlogs, requests that are not answered.

use std::thread;

use viaduct_via::Reliability::ReliableDelivery;
use viaduct_via::{AcceptError, Error, NetAddress, ViState};

use crate::world::{LONG, SHORT, World, until};

/// Without a waiter the answer comes by itself, also to a request without time limit.
pub fn a_request_without_a_listener_is_refused_at_once(mut w: World) {
    let va = w.a.vi(ReliableDelivery);
    let address = w.address();
    assert!(matches!(w.a.connect_request(va, &address, None), Err(Error::NoMatch(_))));
    // A server that has stopped waiting is no listener, either.
    assert!(matches!(w.b.connect_wait(&address, SHORT), Err(Error::Timeout)));
    assert!(matches!(w.a.connect_request(va, &address, None), Err(Error::NoMatch(_))));
    let closed = w.address();
    let listener = w.b.listen(&closed, 1).unwrap();
    w.b.unlisten(listener).unwrap();
    assert!(matches!(w.a.connect_request(va, &closed, None), Err(Error::NoMatch(_))));
    assert_eq!(w.a.state(va), ViState::Idle);
}

/// An address of another host is refused, by `listen` and by the wait of VIA, and its name stays free.
pub fn a_listener_is_on_its_own_host(mut w: World) {
    // 203.0.113.0/24 is for documents.
    let (own, foreign) = (w.address(), format!("203.0.113.7/{}", w.address()).parse().unwrap());
    for refused in [w.b.listen(&foreign, 1).map(drop), w.b.connect_wait(&foreign, SHORT).map(drop)] {
        // A provider of the network hears it from the kernel, or is not there.
        let network = !["shm", "loopback"].contains(&w.b.attributes().name.as_str());
        match refused {
            Err(Error::NotReachable(why)) => assert!(why.starts_with("203.0.113.7/"), "{why}"),
            Err(Error::Transport { .. } | Error::Unavailable { .. } | Error::Os(_)) if network => {}
            other => panic!("{other:?}"),
        }
    }
    let name = NetAddress::new(b"", foreign.discriminator()).unwrap();
    for address in [own, name] {
        w.b.listen(&address, 1).unwrap();
    }
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

/// As many requests wait as the backlog says; the next is told that there is no room, not that no listener is there.
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
    match w.a.connect_request(vis[2], &address, LONG) {
        Err(Error::NoRoom { address: at, .. }) => assert_eq!(at, address.to_string()),
        other => panic!("{other:?}"),
    }
    let vb = w.b.vi(ReliableDelivery);
    w.b.accept(first, vb).unwrap();
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
            Err(Error::NoRoom { .. }) => None,
            other => panic!("{other:?}"),
        });
    }
    w.until("the request that still stands", |w| {
        if w.a.state(va) == ViState::Idle {
            let _ = w.a.connect_poll(va);
            w.a.connect_start(va, None, &address, &[], LONG).unwrap();
        }
        if let Some(request) = w.b.poll_listener(listener).unwrap()
            && let Err(AcceptError { request: stale, .. }) = w.b.accept(request, vb)
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
        w.b.accept(request, vb).unwrap();
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
            b.accept(next, two).unwrap();
            b.accept(waiting, one).unwrap();
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
        w.b.accept(request, vb).unwrap();
        w.a.connect_finish(va).unwrap();
    }
}

/// Requests that were not fetched are answered when the listener goes; one that was fetched can still be accepted.
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
    w.b.accept(request, vb).unwrap();
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
