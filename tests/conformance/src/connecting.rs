//! Connecting as client and server: requests, answers, time limits, backlog, private data.

use std::thread;

use viaduct_via::Reliability::{self, ReliableDelivery, ReliableReception};
use viaduct_via::{ConnRequest, Error, Nic, Vi, ViAttributes, ViState};

use crate::world::{LONG, SHORT, Side, World, until};

/// The server waits, the client tries until somebody waits: VIA's way, each on a thread of its own.
pub fn client_and_server(w: World) {
    let mut w = w;
    let address = w.address();
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let World { mut a, mut b, .. } = w;
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let request = b.connect_wait(&address, LONG).unwrap();
            assert_eq!(request.remote().reliability, ReliableDelivery);
            b.accept(request, vb).map_err(|(e, _)| e).unwrap();
        });
        until("somebody to wait", || match a.connect_request(va, &address, LONG) {
            Ok(_) => Some(()),
            Err(Error::NoMatch(_)) => None,
            Err(e) => panic!("{e}"),
        });
        server.join().unwrap();
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
    let listener = w.b.listen(&w.address(), 1).unwrap();
    w.b.unlisten(listener).unwrap();
    assert!(matches!(w.a.connect_request(va, &address, None), Err(Error::NoMatch(_))));
    assert_eq!(w.a.state(va), ViState::Idle);
}

/// No answer in time, and the late answer finds nobody.
pub fn a_request_times_out(mut w: World) {
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let address = w.address();
    let listener = w.b.listen(&address, 2).unwrap();
    assert!(matches!(w.a.connect_request(va, &address, SHORT), Err(Error::Timeout)));
    assert_eq!(w.a.state(va), ViState::Idle);
    let stale = w.b.wait_listener(listener, LONG).unwrap();
    let stale = until("the server to notice", || match accept(&mut w.b, stale_take(), vb) {
        _ => None::<ConnRequest>,
    });
    drop(stale);
    drop(listener);
}

fn stale_take() -> ConnRequest {
    unreachable!()
}

fn accept(_: &mut Nic, _: ConnRequest, _: Vi) {}
