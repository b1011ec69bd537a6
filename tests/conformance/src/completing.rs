//! Completions: order, lengths, immediate data, contexts.

use viaduct_via::Reliability::{self, ReliableDelivery, ReliableReception};
use viaduct_via::{Buffer, Descriptor, Error, Op, Queue, Status, ViState};

use crate::pattern::bytes;
use crate::world::{Side, World};

/// Only the head of a queue is looked at, and queues complete in the order of posting.
pub fn queues_complete_in_posting_order(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair(level);
        w.b.post_recvs(vb, 20, 8);
        for n in 0..20u64 {
            let buffer = w.a.message(&n.to_le_bytes());
            w.a.post_send(va, Descriptor::send(buffer).context(n)).unwrap();
        }
        for n in 0..20u64 {
            let (got, sent) = (w.received(vb), w.sent(va));
            assert_eq!(got.descriptor.work().context, n, "{level:?}");
            assert_eq!(got.data(), n.to_le_bytes(), "{level:?}");
            assert_eq!(sent.descriptor.work().context, n, "{level:?}");
        }
    }
}

/// One message completes one receive; the next stays where it is.
pub fn a_message_completes_one_receive(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    w.b.post_recvs(vb, 2, 8);
    w.a.send(va, b"one");
    assert_eq!(w.received(vb).descriptor.work().context, 0);
    w.idle();
    assert!(w.b.poll_recv(vb).unwrap().is_none());
    assert_eq!(w.b.query_vi(vb).unwrap().receives, 1);
}

/// An empty queue gives nothing, at once; waiting on one is refused, because no thread could ever post to it.
pub fn an_empty_queue_has_nothing(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    let idle = w.a.vi(ReliableDelivery);
    for vi in [va, idle] {
        assert!(w.a.poll_send(vi).unwrap().is_none() && w.a.poll_recv(vi).unwrap().is_none());
        assert!(matches!(w.a.wait_send(vi, None), Err(Error::QueueEmpty)));
        assert!(matches!(w.a.wait_recv(vi, None), Err(Error::QueueEmpty)));
    }
    // The same after the peer has gone and everything was taken.
    w.a.disconnect(va).unwrap();
    w.reaches(Side::B, vb, ViState::Error);
    assert!(matches!(w.b.wait_recv(vb, None), Err(Error::QueueEmpty)));
}

/// The length is what arrived; the rest of the buffer is left alone.
pub fn lengths_are_those_of_the_message(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair(level);
        for len in [1, 47, 64, 100] {
            let mut inbox = w.b.buffer(100);
            inbox.write(0, &[0xee; 100]);
            w.b.post_recv(vb, Descriptor::recv(inbox)).unwrap();
            let message = bytes(len as u64, len);
            w.a.send(va, &message);
            let (got, sent) = (w.received(vb), w.sent(va));
            assert_eq!((got.length as usize, sent.length as usize), (len, len));
            assert_eq!(got.data(), message);
            let rest = got.descriptor.into_buffer().to_vec(100).split_off(len);
            assert!(rest.iter().all(|b| *b == 0xee), "bytes behind the message were touched");
        }
    }
}

/// Immediate data alone, without any segment, and with a segment of no bytes.
pub fn immediate_data_needs_no_segment(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair(level);
        for value in [0, 1, u32::MAX, -7i32 as u32] {
            w.b.post_recv(vb, Descriptor::recv_empty()).unwrap();
            w.a.post_send(va, Descriptor::send_empty().immediate(value)).unwrap();
            let got = w.received(vb);
            assert_eq!((got.immediate, got.length, got.status), (Some(value), 0, Status::Success));
            let (inbox, empty) = (w.b.buffer(8), w.a.buffer(8));
            w.b.post_recv(vb, Descriptor::recv(inbox)).unwrap();
            w.a.post_send(va, Descriptor::new(Op::Send).segment_range(empty, 3..3).immediate(value)).unwrap();
            let got = w.received(vb);
            assert_eq!((got.immediate, got.length, got.status), (Some(value), 0, Status::Success));
        }
        // Nothing at all is a message, too, and an empty receive takes one without immediate data.
        w.b.post_recv(vb, Descriptor::recv_empty()).unwrap();
        w.a.post_send(va, Descriptor::send_empty()).unwrap();
        let got = w.received(vb);
        assert_eq!((got.immediate, got.length, got.status), (None, 0, Status::Success));
    }
}

/// A send comes back with the immediate data the sender wrote; only the receiver's field says that some arrived.
pub fn the_senders_immediate_data_stays(mut w: World) {
    let (va, vb) = w.pair(ReliableReception);
    w.b.post_recvs(vb, 2, 8);
    let buffer = w.a.message(b"x");
    w.a.post_send(va, Descriptor::send(buffer).immediate(0xfeed)).unwrap();
    let got = w.received(vb);
    assert_eq!(got.immediate, Some(0xfeed));
    let sent = w.sent(va);
    assert_eq!((sent.immediate, sent.descriptor.work().immediate), (None, Some(0xfeed)));
    // Without any, the receive says so, also when its descriptor was used before.
    w.b.post_recv(vb, got.descriptor).unwrap();
    w.a.send(va, b"y");
    assert_eq!(w.received(vb).immediate, None);
}

/// The completion names VI, queue and operation and brings descriptor, context and buffers back.
pub fn a_completion_tells_everything(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    let (inbox, outbox) = (w.b.buffer(32), w.a.message(b"hello"));
    let (in_handle, out_handle) = (inbox.handle(), outbox.handle());
    w.b.post_recv(vb, Descriptor::recv(inbox).context(u64::MAX)).unwrap();
    w.a.post_send(va, Descriptor::send(outbox).context(42)).unwrap();
    let got = w.received(vb);
    assert_eq!((got.vi, got.queue, got.op, got.status), (vb, Queue::Receive, Op::Receive, Status::Success));
    assert_eq!(got.descriptor.work().context, u64::MAX);
    assert_eq!(got.descriptor.into_buffer().handle(), in_handle);
    let sent = w.sent(va);
    assert_eq!((sent.vi, sent.queue, sent.op, sent.status), (va, Queue::Send, Op::Send, Status::Success));
    assert_eq!(sent.descriptor.work().context, 42);
    let back = sent.descriptor.into_buffer();
    assert_eq!((back.handle(), back.to_vec(5)), (out_handle, b"hello".to_vec()));
}

/// An entry of a completion queue means that the completion itself can be taken at once.
pub fn an_entry_means_done(mut w: World) {
    let (ca, cb) = (w.a.create_cq(64).unwrap(), w.b.create_cq(64).unwrap());
    let (a, b) = (w.a.vi_attributes(ReliableReception).cq(ca), w.b.vi_attributes(ReliableReception).cq(cb));
    let (va, vb) = (w.a.vi_with(a), w.b.vi_with(b));
    w.connect(va, vb);
    w.b.post_recvs(vb, 10, 8);
    (0..10u8).for_each(|n| w.a.send(va, &[n]));
    let mut seen = 0;
    w.until("ten entries on each side", |w| {
        if let Some((vi, queue)) = w.b.poll_cq_entry(cb).unwrap() {
            assert_eq!((vi, queue), (vb, Queue::Receive));
            assert_eq!(w.b.poll_recv(vi).unwrap().expect("done at once").data(), [seen]);
            seen += 1;
        }
        (seen == 10).then_some(())
    });
    let mut seen = 0;
    w.until("ten entries on the other side", |w| {
        if let Some((vi, queue)) = w.a.poll_cq_entry(ca).unwrap() {
            assert_eq!((vi, queue), (va, Queue::Send));
            assert!(w.a.poll_send(vi).unwrap().expect("done at once").status.is_success());
            seen += 1;
        }
        (seen == 10).then_some(())
    });
    assert!(w.a.poll_cq_entry(ca).unwrap().is_none() && w.b.poll_cq_entry(cb).unwrap().is_none());
}

/// Queues hold what they were made for, and take more as soon as something was taken out.
pub fn a_full_queue_refuses_and_recovers(mut w: World) {
    let (va, vb) = w.pair_with(ReliableDelivery, |attributes| attributes.depth(3));
    w.b.post_recvs(vb, 3, 8);
    let extra = w.b.buffer(8);
    let refused = w.b.post_recv(vb, Descriptor::recv(extra).context(9)).unwrap_err();
    assert!(matches!(refused.error, Error::QueueFull { depth: 3 }), "{}", refused.error);
    assert_eq!(refused.descriptor.work().context, 9, "given back as it was");
    for n in 0..3 {
        w.a.send(va, &[n]);
    }
    let refused = w.a.post_send(va, Descriptor::send_empty()).unwrap_err();
    assert!(matches!(refused.error, Error::QueueFull { depth: 3 }));
    assert_eq!(w.received(vb).data(), [0]);
    let again = w.b.buffer(8);
    w.b.post_recv(vb, Descriptor::recv(again)).unwrap();
    assert_eq!(w.sent(va).status, Status::Success);
    w.a.send(va, &[3]);
    for n in 1..4 {
        assert_eq!(w.received(vb).data(), [n]);
    }
}

/// Thousands of laps around a short queue, with the same few descriptors.
pub fn descriptors_are_used_again_and_again(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair_with(level, |attributes| attributes.depth(4));
        w.b.post_recvs(vb, 4, 16);
        let mut spare: Vec<Descriptor> = (0..4).map(|_| Descriptor::send(w.a.buffer(16))).collect();
        for n in 0..2000u64 {
            let mut descriptor = match spare.pop() {
                Some(descriptor) => descriptor,
                None => w.sent(va).descriptor,
            };
            let len = 8 + (n % 9) as usize;
            descriptor.write(0, 0, &bytes(n, len));
            descriptor.set_len(len);
            descriptor.set_immediate((n % 3 == 0).then_some(n as u32));
            w.a.post_send(va, descriptor).unwrap();
            let got = w.received(vb);
            assert_eq!(
                (got.data(), got.immediate),
                (bytes(n, len), (n % 3 == 0).then_some(n as u32)),
                "{level:?}"
            );
            w.b.post_recv(vb, got.descriptor).unwrap();
        }
    }
}

/// Gather at one end, scatter at the other, with pieces of all sizes including none.
pub fn pieces_are_gathered_and_scattered(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    let message = bytes(7, 1000);
    let cuts = [(0, 1), (1, 1), (1, 500), (500, 507), (507, 1000)];
    let out = cuts.iter().fold(Descriptor::new(Op::Send), |d, (from, to)| {
        let mut piece = w.a.buffer(to - from + 3);
        piece.write(3, &message[*from..*to]);
        d.segment_range(piece, 3..to - from + 3)
    });
    let lens = [3, 250, 0, 1, 900];
    let into = lens.iter().fold(Descriptor::new(Op::Receive), |d, len| {
        let piece = w.b.buffer(len + 1);
        d.segment_range(piece, 1..len + 1)
    });
    w.b.post_recv(vb, into).unwrap();
    w.a.post_send(va, out).unwrap();
    let got = w.received(vb);
    assert_eq!((got.status, got.length), (Status::Success, 1000));
    let pieces: Vec<Vec<u8>> =
        got.descriptor.into_buffers().iter().map(|b: &Buffer| b.to_vec(b.len())).collect();
    let whole: Vec<u8> = pieces.iter().flat_map(|p| p[1..].to_vec()).take(1000).collect();
    assert_eq!(whole, message);
}
