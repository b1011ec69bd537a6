//! Messages of any length by value (beyond VIA): taken before the call returns, in order, once.

use viaduct_via::Reliability::{self, ReliableDelivery};
use viaduct_via::{Counter, Descriptor, Error, Nic, Queue, Reach, Status, Vi, ViState};

use crate::pattern::{assert_same, bytes};
use crate::world::World;

/// Sends by value as soon as there is room, in parts that are cut anywhere.
fn send(w: &mut World, vi: Vi, message: &[u8], immediate: Option<u32>) {
    let (head, rest) = message.split_at(message.len() / 3);
    let (middle, tail) = rest.split_at(rest.len() / 7);
    w.until("room", |w| match w.a.send_value(vi, &[head, b"", middle, tail], immediate) {
        Ok(()) => Some(()),
        Err(Error::Busy) => None,
        Err(e) => panic!("{} bytes: {e}", message.len()),
    });
}

/// From nothing to 384 KiB at every level, into memory that the NIC made and into private memory, before and after a
/// receive is there.
pub fn values_of_any_length(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair(level);
        for (n, len) in
            [0usize, 1, 8, 9, 104, 105, 300, 4096, 16_384, 65_537, 200_000, 384 << 10].into_iter().enumerate()
        {
            for private in [false, true] {
                let buffer = if private { w.b.register_local(vec![0; len + 5]) } else { w.b.buffer(len + 5) };
                w.b.post_recv(vb, Descriptor::recv(buffer)).unwrap();
                let (message, immediate) = (bytes(n as u64, len), (n % 2 == 0).then_some(n as u32));
                send(&mut w, va, &message, immediate);
                let got = w.received(vb);
                assert_eq!((got.status, got.length as usize), (Status::Success, len), "{level:?}");
                assert_eq!(got.immediate, immediate);
                assert_same(&got.data(), &message);
            }
        }
        assert!(w.a.poll_send(va).unwrap().is_none(), "nothing to reap");
    }
}

/// A message goes straight into a receive that can be reached, however long it is.
pub fn a_value_is_written_into_its_receive(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    let direct = w.a.query_vi(va).unwrap().reach == Some(Reach::Direct);
    for len in [105usize, 70_000, 3 << 20] {
        let before = w.a.counters().read(Counter::DirectCopies);
        w.b.post_recvs(vb, 1, len);
        let message = bytes(len as u64, len);
        if !direct && len > 1 << 20 {
            match w.a.send_value(va, &[&message], None) {
                Err(Error::Limit { limit, .. }) => assert!((384 << 10..len as u64).contains(&limit)),
                Ok(()) => assert_same(&w.received(vb).data(), &message),
                Err(e) => panic!("{e}"),
            }
            continue;
        }
        send(&mut w, va, &message, None);
        assert_same(&w.received(vb).data(), &message);
        assert_eq!(w.a.counters().read(Counter::DirectCopies) - before, u64::from(direct), "{len} bytes");
    }
}

/// By value and by descriptor, short and long, all in the order in which they were sent; also while the receiver is slow.
pub fn values_keep_their_order(mut w: World) {
    const LENGTHS: [usize; 6] = [8, 200, 5000, 90_000, 1, 30_000];
    for level in [ReliableDelivery, Reliability::ReliableReception] {
        let (va, vb) = w.pair(level);
        let (mut sent, mut taken) = (0u64, 0u64);
        w.b.post_recvs(vb, 12, 90_000);
        while taken < 120 {
            for _ in 0..12 {
                let message = bytes(sent, LENGTHS[sent as usize % 6]);
                if sent % 4 == 3 {
                    w.a.send(va, &message);
                } else {
                    send(&mut w, va, &message, Some(sent as u32));
                }
                sent += 1;
            }
            for _ in 0..12 {
                let got = w.received(vb);
                assert_same(&got.data(), &bytes(taken, LENGTHS[taken as usize % 6]));
                assert_eq!(got.immediate, (taken % 4 != 3).then_some(taken as u32));
                if taken % 4 == 3 {
                    assert_eq!(w.sent(va).status, Status::Success);
                }
                w.b.post_recv(vb, got.descriptor).unwrap();
                taken += 1;
            }
        }
    }
}

/// What cannot be sent by value is refused by the call, and what the receive cannot hold by the receive.
pub fn values_have_limits(mut w: World) {
    let idle = w.a.vi(ReliableDelivery);
    assert!(matches!(w.a.send_value(idle, &[b"x"], None), Err(Error::InvalidState { .. })));
    let (vc, _) = w.pair_with(ReliableDelivery, |mut attributes| {
        attributes.max_transfer_size = 1000;
        attributes
    });
    assert!(matches!(w.a.send_value(vc, &[&[0; 1001]], None), Err(Error::Limit { limit: 1000, .. })));
    assert!(matches!(w.a.send_value(vc, &[&[0; 999], &[0; 2]], None), Err(Error::Limit { .. })));
    assert_eq!(w.a.state(vc), ViState::Connected, "a refusal breaks nothing");
    for len in [200usize, 100_000] {
        let (va, vb) = w.pair(ReliableDelivery);
        w.b.post_recvs(vb, 1, 150);
        send(&mut w, va, &bytes(1, len), None);
        assert_eq!(w.received(vb).status, Status::LengthError, "{len} bytes");
        w.reaches(crate::world::Side::A, va, ViState::Error);
        let refused = w.a.send_value(va, &[b"x"], None);
        assert!(matches!(refused, Err(Error::InvalidState { .. })));
    }
}

/// The bytes are the caller's as soon as the call returns: what it does to them then is not sent.
pub fn values_are_taken_at_once(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    w.b.post_recvs(vb, 20, 100_000);
    for round in 0..20u64 {
        let mut message = bytes(round, 100_000);
        send(&mut w, va, &message, None);
        message.fill(0xEE);
        assert_same(&w.received(vb).data(), &bytes(round, 100_000));
    }
}

/// One call for messages of all lengths: copies of those that the transport does not take at once go away by themselves, also
/// where the sender polls nothing; in order, and with a completion queue as without.
pub fn messages_are_sent_whatever_their_length_and_nothing_comes_back(mut w: World) {
    const LENGTHS: [usize; 6] = [0, 200, 500_000, 90_000, 1, 30_000];
    const DEPTH: usize = 16;
    for bound in [false, true] {
        let cq = w.a.create_cq(2 * DEPTH).unwrap();
        let attributes = w.a.vi_attributes(ReliableDelivery).depth(DEPTH);
        let va = w.a.vi_with(if bound { attributes.cq(cq) } else { attributes });
        let vb = w.b.vi(ReliableDelivery);
        w.connect(va, vb);
        // Private memory, which a sender may have to wait for.
        let receive = |w: &mut World| Descriptor::recv(w.b.register_local(vec![0; 500_000]));
        for _ in 0..DEPTH {
            let receive = receive(&mut w);
            w.b.post_recv(vb, receive).unwrap();
        }
        for round in 0..6 {
            let message = |n: usize| bytes((round * DEPTH + n) as u64, LENGTHS[(round + n) % 6]);
            for n in 0..DEPTH {
                let text = message(n);
                let (head, tail) = text.split_at(text.len() / 3);
                w.until("a place", |w| match Nic::send(&mut w.a, va, &[head, b"", tail], Some(n as u32)) {
                    Ok(()) => Some(()),
                    Err(Error::QueueFull { .. }) => None,
                    Err(e) => panic!("{} bytes: {e}", text.len()),
                });
            }
            for n in 0..DEPTH {
                let got = w.received(vb);
                assert_eq!((got.status, got.immediate), (Status::Success, Some(n as u32)));
                assert_same(&got.data(), &message(n));
                w.b.post_recv(vb, got.descriptor).unwrap();
            }
        }
        w.until("the last copy", |w| {
            assert!(w.a.poll_send(va).unwrap().is_none(), "nothing to reap");
            (w.a.query_vi(va).unwrap().sends == 0).then_some(())
        });
        assert!(w.a.reclaim(va).is_none(), "copies are not the program's");
    }
}

/// A message whose receive cannot hold it, and one behind the end of its connection.
pub fn a_message_that_was_not_sent_is_told(mut w: World) {
    let idle = w.a.vi(ReliableDelivery);
    assert!(matches!(Nic::send(&mut w.a, idle, &[b"x"], None), Err(Error::InvalidState { .. })));
    let (va, vb) = w.pair_with(Reliability::ReliableReception, |mut attributes| {
        attributes.max_transfer_size = 700_000;
        attributes
    });
    let refused = Nic::vi(&mut w.a, va).unwrap().send(&[&[0; 700_000], b"x"], None);
    assert!(matches!(refused, Err(Error::Limit { limit: 700_000, .. })));
    assert_eq!(w.a.state(va), ViState::Connected, "a refusal breaks nothing");
    // What waits for a receive is a copy, and is flushed when the connection ends.
    w.a.set_drain(std::time::Duration::ZERO);
    let receive = Descriptor::recv(w.b.register_local(vec![0; 10]));
    w.b.post_recv(vb, receive).unwrap();
    let mut copies = 0;
    for _ in 0..2 {
        match Nic::vi(&mut w.a, va).unwrap().send(&[&[7; 600_000]], None) {
            Ok(()) => copies = w.a.query_vi(va).unwrap().sends,
            Err(Error::InvalidState { .. }) => {}
            Err(e) => panic!("{e}"),
        }
    }
    w.reaches(crate::world::Side::A, va, ViState::Error);
    let ends = w.a.drain(va, Queue::Send);
    assert!(ends.len() >= copies && ends.iter().all(|end| !end.status.is_success()), "{copies}: {ends:?}");
    assert!(matches!(Nic::send(&mut w.a, va, &[b"x"], None), Err(Error::InvalidState { .. })));
}
