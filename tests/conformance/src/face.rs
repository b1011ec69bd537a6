//! What programs meet first: outcomes that cannot be overlooked, views, one wait for a server, slices, ends, futures.

use std::time::Duration;

use viaduct_via::Reliability::{ReliableDelivery, ReliableReception};
use viaduct_via::{
    Arrival, Buffer, Descriptor, Error, MemAttributes, Nic, SharedNic, Status, ViAttributes, ViState,
};

use crate::pattern::{block_on, bytes};
use crate::world::{LONG, SHORT, Side, World};

/// A receive that brings no message is an error with its descriptor, never an empty message.
pub fn a_flushed_receive_is_no_message(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    w.b.post_recvs(vb, 3, 8);
    w.a.send(va, b"letter");
    w.received(vb).ok().expect("the letter");
    w.sent(va).ok().expect("the letter");
    w.a.disconnect(va).unwrap();
    w.reaches(Side::B, vb, ViState::Error);
    let Err(Error::Unsuccessful(end)) = w.b.wait_recv(vb, LONG) else { panic!("a message from nowhere") };
    assert_eq!((end.status, end.context(), end.data()), (Status::Flushed, 1, vec![]));
    assert_eq!(w.b.wait_recv_outcome(vb, LONG).unwrap().status(), Status::Flushed);
    w.a.post_send(va, Descriptor::send_empty()).unwrap();
    assert!(
        matches!(w.a.wait_send(va, LONG), Err(Error::Unsuccessful(end)) if end.status == Status::Flushed)
    );
}

/// A client whose VI does not go with the server's hears why.
pub fn a_client_hears_why_it_was_refused(mut w: World) {
    let address = w.address();
    let listener = w.b.listen(&address, 1).unwrap();
    let short = ViAttributes { max_transfer_size: 1000, ..w.a.vi_attributes(ReliableDelivery) };
    let (va, vb) = (w.a.vi_with(short), w.b.vi(ReliableDelivery));
    w.a.connect(va, &address).timeout(LONG.unwrap()).start().unwrap();
    let request = w.b.wait_listener(listener, LONG).unwrap();
    let refused: Error = w.b.accept(request, vb).unwrap_err().into();
    assert!(matches!(refused, Error::TransferSizeMismatch { theirs: 1000, .. }));
    let heard = w.until("the refusal", |w| {
        let _ = w.b.poll_listener(listener);
        w.a.connect_poll(va).err()
    });
    assert!(heard.to_string().contains("maximum transfer sizes differ"), "{heard}");
}

/// A message that was scattered into several buffers is read as a whole.
pub fn scattered_bytes_are_all_given(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    for len in [1, 6, 9, 400] {
        let (one, two) = (w.b.buffer(5), w.b.buffer(400));
        let scattered = Descriptor::recv(one).segment_range(two, 3..400);
        w.b.post_recv(vb, scattered).unwrap();
        let text = bytes(len as u64, len);
        w.a.send(va, &text);
        let got = w.received(vb);
        assert_eq!((got.data(), got.length as usize), (text, len));
        let _ = w.sent(va);
    }
}

/// One call waits for clients and for their messages.
pub fn a_server_waits_for_clients_and_messages(mut w: World) {
    let (address, cq) = (w.address(), w.b.create_cq(64).unwrap());
    let listener = w.b.listen(&address, 4).unwrap();
    assert!(matches!(w.b.wait_any(cq, listener, SHORT), Err(Error::Timeout)));
    let mut clients = Vec::new();
    for number in 0..3u64 {
        let va = w.a.vi(ReliableDelivery);
        w.a.connect(va, &address).timeout(LONG.unwrap()).private_data(&[7]).start().unwrap();
        let Arrival::Request(request) = w.b.wait_any(cq, listener, LONG).unwrap() else {
            panic!("a completion without a client")
        };
        assert_eq!(request.remote().private_data, [7]);
        let attributes = w.b.vi_attributes(ReliableDelivery).cq(cq);
        let vb = w.b.vi_with(attributes);
        let mut view = Nic::vi(&mut w.b, vb).unwrap();
        view.post_receives(2, 64).unwrap();
        view.set_context(number);
        w.b.accept(request, vb).unwrap();
        w.a.connect_finish(va).unwrap();
        clients.push(va);
    }
    for (number, va) in clients.into_iter().enumerate() {
        w.a.send(va, b"hello");
        let arrival = w.until("the message", |w| w.b.poll_any(cq, listener).unwrap());
        let Arrival::Completion(done) = arrival else { panic!("a client from nowhere") };
        assert_eq!(Nic::vi(&mut w.b, done.vi()).unwrap().context(), number as u64);
        assert_eq!(done.ok().unwrap().data(), b"hello");
    }
}

/// A client is let in also while completions never end.
pub fn completions_without_end_keep_no_client_waiting(mut w: World) {
    let (address, cq) = (w.address(), w.b.create_cq(64).unwrap());
    let listener = w.b.listen(&address, 4).unwrap();
    let attributes = w.b.vi_attributes(ReliableDelivery).cq(cq);
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi_with(attributes));
    w.connect(va, vb);
    w.a.disconnect(va).unwrap();
    w.reaches(Side::B, vb, ViState::Error);
    let client = w.a.vi(ReliableDelivery);
    w.a.connect(client, &address).timeout(LONG.unwrap()).start().unwrap();
    // What is posted to a broken VI comes back at once, so that there is a completion in each call.
    let request = w.until("the client", |w| {
        w.b.post_send(vb, Descriptor::send_empty()).unwrap();
        match w.b.poll_any(cq, listener).unwrap() {
            Some(Arrival::Request(request)) => Some(request),
            Some(Arrival::Completion(_)) => None,
            None => panic!("the completion has not come back"),
        }
    });
    drop(request);
}

/// A VI and a completion queue are worked with through their views.
pub fn views_do_what_the_nic_does(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    let mut b = Nic::vi(&mut w.b, vb).unwrap();
    assert_eq!((b.handle(), b.context()), (vb, 0));
    b.post_receives(2, 16).unwrap();
    assert_eq!(b.info().unwrap().receives, 2);
    Nic::vi(&mut w.a, va).unwrap().send_inline(b"one", Some(1)).unwrap();
    let one = w.until("the message", |w| Nic::vi(&mut w.b, vb).unwrap().poll_recv().unwrap()).ok().unwrap();
    assert_eq!((one.data(), one.immediate), (b"one".to_vec(), Some(1)));
    let message = w.a.message(b"two");
    Nic::vi(&mut w.a, va).unwrap().post_send(Descriptor::send(message)).unwrap();
    assert_eq!(w.received(vb).data(), b"two");
    w.until("the send", |w| Nic::vi(&mut w.a, va).unwrap().poll_send().unwrap()).ok().unwrap();
    let cq = w.a.create_cq(4).unwrap();
    let mut queue = w.a.cq(cq).unwrap();
    assert!(queue.poll().unwrap().is_none() && queue.handle() == cq);
    assert!(matches!(queue.wait(SHORT), Err(Error::Timeout)));
    queue.resize(8).unwrap();
    assert_eq!(queue.poll_batch(&mut Vec::new(), 4).unwrap(), 0);
    Nic::vi(&mut w.a, va).unwrap().disconnect().unwrap();
    Nic::vi(&mut w.a, va).unwrap().retire().unwrap();
    assert!(matches!(Nic::vi(&mut w.a, va), Err(Error::InvalidHandle(_))));
}

/// Retiring a VI takes everything with it: connection, descriptors, entries of completion queues.
pub fn a_retired_vi_is_gone(mut w: World) {
    let cq = w.b.create_cq(16).unwrap();
    let tag = w.b.create_ptag().unwrap();
    let attributes = ViAttributes::new(tag).cq(cq);
    let (va, vb) = (w.a.vi(ReliableDelivery), w.b.create_vi(attributes.clone()).unwrap());
    Nic::vi(&mut w.b, vb).unwrap().post_receives(4, 64).unwrap();
    w.connect(va, vb);
    // One that came and was not taken, three that are posted.
    w.a.send(va, b"unread");
    w.until("the message", |w| (w.b.query_vi(vb).unwrap().receives == 4).then_some(()));
    let _ = w.sent(va);
    Nic::retire(&mut w.b, vb).unwrap();
    assert!(w.b.poll_cq(cq).unwrap().is_none());
    assert!(matches!(Nic::retire(&mut w.b, vb), Err(Error::InvalidHandle(_))));
    w.reaches(Side::A, va, ViState::Error);
    Nic::retire(&mut w.a, va).unwrap();
    // Idle VIs with and without receives.
    for receives in [0, 2] {
        let idle = w.b.create_vi(attributes.clone()).unwrap();
        Nic::vi(&mut w.b, idle).unwrap().post_receives(receives, 8).unwrap();
        Nic::retire(&mut w.b, idle).unwrap();
    }
    w.b.destroy_cq(cq).expect("no VI uses it");
    w.b.destroy_ptag(tag).expect("no VI and no region uses it");
}

/// What a retired VI has posted arrives, while its NIC does other things; the program knows nothing of it any more.
pub fn a_retired_vi_sends_what_was_posted(mut w: World) {
    const COUNT: usize = 50;
    for bound in [false, true] {
        let cq = w.a.create_cq(2 * COUNT).unwrap();
        let tag = w.a.create_ptag().unwrap();
        let attributes = ViAttributes { ptag: tag, ..w.a.vi_attributes(ReliableReception) };
        let attributes = if bound { attributes.cq(cq) } else { attributes };
        let (va, vb) = (w.a.create_vi(attributes).unwrap(), w.b.vi(ReliableReception));
        w.connect(va, vb);
        // A receive that stays posted, and sends that nothing takes as long as the peer makes no call.
        w.a.set_drain(LONG.unwrap());
        Nic::vi(&mut w.a, va).unwrap().post_receives(1, 64).unwrap();
        w.b.post_recvs(vb, COUNT as u64, 9000);
        for n in 0..COUNT {
            let letter = Nic::register(&mut w.a, vec![n as u8; 9000], MemAttributes::local(tag)).unwrap();
            w.a.post_send(va, Descriptor::send(letter)).unwrap();
        }
        Nic::retire(&mut w.a, va).unwrap();
        assert!(matches!(w.a.query_vi(va), Err(Error::InvalidHandle(_))));
        assert!(matches!(w.a.poll_send(va), Err(Error::InvalidHandle(_))));
        w.a.destroy_cq(cq).expect("no VI is bound to it");
        let other = w.a.vi(ReliableReception);
        for n in 0..COUNT {
            let got = w.until("what was posted", |w| {
                assert!(w.a.poll_recv(other).unwrap().is_none());
                w.b.poll_recv(vb).unwrap()
            });
            assert_eq!((got.status, got.data()), (Status::Success, vec![n as u8; 9000]));
        }
        w.until("the end", |w| {
            assert!(w.a.poll_recv(other).unwrap().is_none());
            (w.b.state(vb) == ViState::Error).then_some(())
        });
        assert!(w.a.take_error().is_none(), "a program does not hear of a VI that it has retired");
        w.a.destroy_ptag(tag).expect("no VI has it");
    }
}

/// A retired VI whose peer takes nothing goes when its time is over, also while its NIC sleeps.
pub fn a_retired_vi_has_its_time(mut w: World) {
    let other = w.a.vi(ReliableReception);
    w.a.post_recvs(other, 1, 8);
    w.a.set_drain(Duration::from_millis(20));
    for sleeps in [true, false] {
        let (va, vb) = w.pair(ReliableReception);
        for n in 0..50 {
            w.a.send(va, &vec![n; 9000]);
        }
        Nic::retire(&mut w.a, va).unwrap();
        if sleeps {
            assert!(matches!(w.a.wait_recv(other, Some(Duration::from_millis(300))), Err(Error::Timeout)));
        }
        // No call of the sender's from here on, where it has slept over the end.
        w.until("the end", |w| {
            if !sleeps {
                assert!(w.a.poll_recv(other).unwrap().is_none());
            }
            (w.b.state(vb) == ViState::Error).then_some(())
        });
    }
}

/// Memory is looked at as a slice or reached by peers, one of the two for good.
pub fn slices_end_where_rights_begin(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    let (local, remote) = (MemAttributes::local(w.b.tag), MemAttributes::remote(w.b.tag));
    let mut own = w.b.buffer(16);
    own.slice_mut().unwrap().copy_from_slice(&[5; 16]);
    assert_eq!(own.slice(), Some(&[5; 16][..]));
    assert!(matches!(w.b.set_mem_attributes(own.handle(), remote), Err(Error::InUse(_))));
    w.b.set_mem_attributes(own.handle(), local).unwrap();
    let mut window = w.b.window(16);
    assert!(window.slice().is_none() && window.slice_mut().is_none());
    w.b.set_mem_attributes(window.handle(), local).unwrap();
    assert!(window.slice().is_none(), "a peer may be in the middle of a write");
    let opened = w.b.buffer(16);
    w.b.set_mem_attributes(opened.handle(), remote).unwrap();
    assert!(opened.slice().is_none());
    // A message is read where it lies; after a receive that failed a peer may still write.
    let plain = Nic::buffer(&mut w.b, 500).unwrap();
    for buffer in [own, plain, Buffer::from(vec![0; 500])] {
        w.b.post_recv(vb, Descriptor::recv(buffer)).unwrap();
        w.a.send(va, &[9; 12]);
        let got = w.received(vb);
        assert_eq!(got.bytes(), Some(&[9; 12][..]));
        w.b.post_recv(vb, got.descriptor).unwrap();
        w.a.send(va, &[8; 12]);
        assert_eq!(w.received(vb).bytes(), Some(&[8; 12][..]));
    }
    w.b.post_recvs(vb, 1, 16);
    w.a.disconnect(va).unwrap();
    let flushed = w.received(vb);
    assert_eq!((flushed.status, flushed.bytes()), (Status::Flushed, None));
    assert!(flushed.descriptor.into_buffer().slice().is_none());
}

/// Bytes behind an `Arc` are sent any number of times without a copy for each.
pub fn shared_bytes_are_sent(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    for len in [10, 3000, 100_000] {
        let text = bytes(len as u64, len);
        let shared: std::sync::Arc<[u8]> = text.clone().into();
        for _ in 0..3 {
            w.b.post_recvs(vb, 1, len);
            w.a.post_send(va, Descriptor::send(Buffer::from(shared.clone()))).unwrap();
            assert!(w.received(vb).ok().unwrap().data() == text, "{len} bytes");
            let _ = w.sent(va).ok().unwrap();
        }
        assert_eq!(std::sync::Arc::strong_count(&shared), 1);
    }
}

/// Requests and their outcomes are futures, which may be dropped and made again.
pub fn connecting_is_asynchronous(mut w: World) {
    let (address, nowhere) = (w.address(), w.address());
    let (va, vb, vc) = (w.a.vi(ReliableDelivery), w.b.vi(ReliableDelivery), w.a.vi(ReliableDelivery));
    let World { a, b, folder: _folder, .. } = w;
    let (a, b) = (SharedNic::new(a.into_nic()), SharedNic::new(b.into_nic()));
    let listener = b.lock().listen(&address, 1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(b.next_request(listener));
            let request = block_on(b.next_request(listener)).unwrap();
            b.lock().accept(request, vb).unwrap();
        });
        a.lock().connect(va, &address).timeout(LONG.unwrap()).start().unwrap();
        drop(a.connected(va));
        block_on(a.connected(va)).unwrap();
    });
    assert!(matches!(block_on(a.connected(va)), Err(Error::InvalidState { .. })));
    // What is not answered in its time: no call is made, so the NIC's own thread has to see to it.
    a.lock().connect(vc, &address).timeout(Duration::from_millis(30)).start().unwrap();
    assert!(matches!(block_on(a.connected(vc)), Err(Error::Timeout)));
    let missing = a.lock().connect(vc, &nowhere).timeout(LONG.unwrap()).start();
    assert!(matches!(missing.and_then(|()| block_on(a.connected(vc)).map(drop)), Err(Error::NoMatch(_))));
}
