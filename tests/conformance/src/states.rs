//! The four states of a VI: how each is entered and left, and what posting does in each.

use viaduct_via::Reliability::{self, ReliableDelivery};
use viaduct_via::{Descriptor, Error, Queue, Status, ViState};

use crate::world::{LONG, SHORT, Side, World};

/// Fresh from `create_vi`.
pub fn a_new_vi_is_idle(mut w: World) {
    for level in Reliability::ALL {
        let vi = w.a.vi(level);
        let info = w.a.query_vi(vi).unwrap();
        assert_eq!(info.state, ViState::Idle);
        assert_eq!((info.sends, info.receives), (0, 0));
        assert_eq!((info.remote, info.provider), (None, None));
        assert_eq!(info.attributes.reliability, level);
        assert_eq!(
            info.attributes.max_transfer_size,
            w.a.attributes().max_transfer_size,
            "u32::MAX is the limit"
        );
    }
}

/// Idle, Connect Pending, Connected, Idle: the good way round, seen from both sides.
pub fn the_good_way_round(mut w: World) {
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let address = w.address();
    let listener = w.b.listen(&address, 1).unwrap();
    w.a.connect_start(va, None, &address, &[], LONG).unwrap();
    assert_eq!(w.a.state(va), ViState::ConnectPending);
    let request = w.b.wait_listener(listener, LONG).unwrap();
    assert_eq!(w.b.state(vb), ViState::Idle, "a request alone changes nothing");
    w.b.accept(request, vb).unwrap();
    assert_eq!(w.b.state(vb), ViState::Connected);
    let theirs = w.a.connect_finish(va).unwrap();
    let info = w.a.query_vi(va).unwrap();
    assert_eq!(info.state, ViState::Connected);
    assert_eq!(info.remote, Some(theirs));
    assert_eq!(info.provider, w.carrier.or(Some(w.a.attributes().name.as_str())));
    w.a.disconnect(va).unwrap();
    let info = w.a.query_vi(va).unwrap();
    assert_eq!(info.state, ViState::Idle);
    assert_eq!((info.remote, info.provider), (None, None), "told only while connected");
}

/// What a peer is told: level, size, quality of service, rights.
pub fn each_side_learns_what_the_other_is(mut w: World) {
    let mut attributes = w.a.vi_attributes(ReliableDelivery);
    (attributes.max_transfer_size, attributes.qos) = (5000, 7);
    (attributes.rdma_write, attributes.rdma_read) = (true, false);
    let mut other = w.b.vi_attributes(ReliableDelivery);
    (other.max_transfer_size, other.qos, other.rdma_write, other.rdma_read) = (5000, 7, false, true);
    let (va, vb) = (w.a.vi_with(attributes), w.b.vi_with(other));
    w.connect(va, vb);
    let (at_a, at_b) = (w.a.query_vi(va).unwrap().remote.unwrap(), w.b.query_vi(vb).unwrap().remote.unwrap());
    assert_eq!((at_a.max_transfer_size, at_a.qos, at_a.reliability), (5000, 7, ReliableDelivery));
    assert_eq!((at_a.rdma_write, at_a.rdma_read, at_a.ptag), (false, true, w.b.tag));
    assert_eq!((at_b.rdma_write, at_b.rdma_read, at_b.ptag), (true, false, w.a.tag));
}

/// Connected to Error, because the peer left; only `disconnect` leads out again.
pub fn a_remote_disconnect_means_error(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair(level);
        w.a.disconnect(va).unwrap();
        w.reaches(Side::B, vb, ViState::Error);
        let address = w.address();
        let refused = w.b.connect_start(vb, None, &address, &[], LONG).unwrap_err();
        assert!(matches!(refused, Error::InvalidState { found: ViState::Error, .. }), "{refused}");
        assert!(matches!(w.b.destroy_vi(vb), Err(Error::InvalidState { .. })));
        w.b.disconnect(vb).unwrap();
        assert_eq!(w.b.state(vb), ViState::Idle);
        assert_eq!(w.b.query_vi(vb).unwrap().remote, None);
    }
}

/// Connected to Error, because the peer's whole NIC was closed.
pub fn a_closed_nic_means_error_for_its_peers(mut w: World) {
    let mut third = w.node();
    let (va, vc) = (w.a.vi(ReliableDelivery), third.vi(ReliableDelivery));
    let address = w.address();
    crate::world::connect(&mut w.a, va, &mut third, vc, &address);
    w.a.post_recvs(va, 2, 16);
    drop(third);
    w.reaches(Side::A, va, ViState::Error);
    assert!(w.a.drain(va, Queue::Receive).iter().all(|c| c.status == Status::Flushed));
}

/// Receives posted before anybody knows the peer are used in their order.
pub fn receives_are_posted_ahead(mut w: World) {
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    w.b.post_recvs(vb, 2, 16);
    w.a.post_recvs(va, 1, 16);
    let address = w.address();
    let listener = w.b.listen(&address, 1).unwrap();
    w.a.connect_start(va, None, &address, &[], LONG).unwrap();
    let buffer = w.a.buffer(16);
    w.a.post_recv(va, Descriptor::recv(buffer).context(1)).unwrap();
    let request = w.b.wait_listener(listener, LONG).unwrap();
    w.b.accept(request, vb).unwrap();
    w.a.connect_finish(va).unwrap();
    for (n, text) in [b"first.", b"second"].into_iter().enumerate() {
        w.a.send(va, text);
        w.b.send(vb, text);
        let (at_b, at_a) = (w.received(vb), w.next(Side::A, va, Queue::Receive));
        assert_eq!((at_b.data(), at_b.descriptor.work().context), (text.to_vec(), n as u64));
        assert_eq!(
            (at_a.data(), at_a.descriptor.work().context),
            (text.to_vec(), n as u64),
            "posted while pending"
        );
    }
}

/// Recalled: A send on a VI that is not connected comes back flushed at once; a receive waits.
pub fn sends_without_connection_are_flushed(mut w: World) {
    let va = w.a.vi(ReliableDelivery);
    let address = w.address();
    let _listener = w.b.listen(&address, 1).unwrap();
    for state in [ViState::Idle, ViState::ConnectPending] {
        if state == ViState::ConnectPending {
            w.a.connect_start(va, None, &address, &[], LONG).unwrap();
        }
        assert_eq!(w.a.state(va), state);
        w.a.send(va, b"it is not heard");
        w.a.post_recvs(va, 1, 8);
        let back = w.a.poll_send(va).unwrap().expect("at once");
        assert_eq!((back.status, back.length), (Status::Flushed, 0));
        assert!(w.a.poll_recv(va).unwrap().is_none(), "a receive waits for the connection");
    }
    assert_eq!(w.a.query_vi(va).unwrap().receives, 2);
}

/// Recalled: In the error state everything posted comes back flushed at once.
pub fn posts_in_error_are_flushed(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    w.a.disconnect(va).unwrap();
    w.reaches(Side::B, vb, ViState::Error);
    w.b.send(vb, b"too late");
    w.b.post_recvs(vb, 1, 8);
    assert_eq!(w.b.poll_send(vb).unwrap().expect("at once").status, Status::Flushed);
    assert_eq!(w.b.poll_recv(vb).unwrap().expect("at once").status, Status::Flushed);
    assert_eq!(w.b.state(vb), ViState::Error, "posting does not leave the state");
}

/// Recalled: A refused or expired request leaves the VI idle and its receives posted.
pub fn a_failed_request_leaves_the_vi_idle(mut w: World) {
    let va = w.a.vi(ReliableDelivery);
    w.a.post_recvs(va, 3, 8);
    let address = w.address();
    assert!(matches!(w.a.connect_request(va, &address, LONG), Err(Error::NoMatch(_))));
    assert_eq!(w.a.state(va), ViState::Idle);
    let listener = w.b.listen(&address, 1).unwrap();
    assert!(matches!(w.a.connect_request(va, &address, SHORT), Err(Error::Timeout)));
    assert_eq!(w.a.state(va), ViState::Idle);
    w.b.unlisten(listener).unwrap();
    let elsewhere = w.address();
    let listener = w.b.listen(&elsewhere, 1).unwrap();
    w.a.connect_start(va, None, &elsewhere, &[], LONG).unwrap();
    let request = w.b.wait_listener(listener, LONG).unwrap();
    w.b.reject(request).unwrap();
    assert!(matches!(w.a.connect_finish(va), Err(Error::Rejected(_))));
    let info = w.a.query_vi(va).unwrap();
    assert_eq!((info.state, info.receives), (ViState::Idle, 3));
}

/// Attributes change only while idle; queues and completion queues stay as they were made.
pub fn attributes_change_only_while_idle(mut w: World) {
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let mut wanted = w.a.vi_attributes(Reliability::ReliableReception);
    (wanted.qos, wanted.max_transfer_size, wanted.send_depth) = (3, 4096, 1);
    w.a.set_vi_attributes(va, wanted.clone()).unwrap();
    let now = w.a.query_vi(va).unwrap().attributes;
    assert_eq!((now.reliability, now.qos, now.max_transfer_size), (wanted.reliability, 3, 4096));
    assert_eq!(now.send_depth, 256, "a queue is not made anew");
    let plain = w.a.vi_attributes(ReliableDelivery);
    w.a.set_vi_attributes(va, plain).unwrap();
    w.connect(va, vb);
    assert!(matches!(w.a.set_vi_attributes(va, wanted), Err(Error::InvalidState { .. })));
    assert_eq!(w.a.query_vi(va).unwrap().attributes.qos, 0, "nothing changed");
}

/// The lengths that `query_vi` tells count what was posted and not yet given back.
pub fn query_tells_the_lengths_of_queues(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    w.b.post_recvs(vb, 4, 8);
    assert_eq!(w.b.query_vi(vb).unwrap().receives, 4);
    w.a.send(va, b"x");
    w.until("the send to be done", |w| (w.a.query_vi(va).unwrap().sends == 1).then_some(()));
    drop(w.received(vb));
    drop(w.sent(va));
    assert_eq!(w.b.query_vi(vb).unwrap().receives, 3);
    assert_eq!(w.a.query_vi(va).unwrap().sends, 0, "done and taken");
}

/// What was sent before a disconnect still arrives; only then is the peer told.
pub fn messages_sent_before_a_disconnect_arrive(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair(level);
        w.b.post_recvs(vb, 5, 16);
        for n in 0..3 {
            w.a.send(va, &[n; 4]);
        }
        for _ in 0..3 {
            assert_eq!(w.sent(va).status, Status::Success);
        }
        w.a.disconnect(va).unwrap();
        w.reaches(Side::B, vb, ViState::Error);
        let back = w.b.drain(vb, Queue::Receive);
        let statuses: Vec<Status> = back.iter().map(|c| c.status).collect();
        use Status::{Flushed, Success};
        assert_eq!(statuses, [Success, Success, Success, Flushed, Flushed], "{level:?}");
        assert!(back[..3].iter().enumerate().all(|(n, c)| c.data() == [n as u8; 4]));
    }
}
