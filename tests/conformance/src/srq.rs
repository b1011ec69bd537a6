//! Shared receive queues: several VIs draw from one store of receives (beyond VIA).

use viaduct_via::Reliability::{self, ReliableDelivery, ReliableReception, Unreliable};
use viaduct_via::{Descriptor, Error, ErrorCode, MemAttributes, Queue, Srq, Status, Vi, ViState};

use crate::pattern::bytes;
use crate::world::{LONG, Side, World};

/// `count` connected pairs; those of `b` draw from one store.
fn star(w: &mut World, level: Reliability, count: usize, depth: usize) -> (Srq, Vec<(Vi, Vi)>) {
    let srq = w.b.create_srq(depth).unwrap();
    let pairs = (0..count).map(|_| {
        let mut attributes = w.b.vi_attributes(level).depth(4);
        attributes.srq = Some(srq);
        let (va, vb) = (w.a.vi(level), w.b.vi_with(attributes));
        w.connect(va, vb);
        (va, vb)
    });
    let pairs = pairs.collect();
    (srq, pairs)
}

fn stock(w: &mut World, srq: Srq, count: u64, len: usize) {
    for n in 0..count {
        let buffer = w.b.buffer(len);
        w.b.post_srq(srq, Descriptor::recv(buffer).context(n)).unwrap();
    }
}

/// The VI that gets a message first takes the next receive; the completion says which VI it was.
pub fn vis_draw_from_one_store(mut w: World) {
    for level in Reliability::ALL {
        let (srq, pairs) = star(&mut w, level, 3, 16);
        stock(&mut w, srq, 9, 5000);
        for n in 0..9u64 {
            let (va, vb) = pairs[[0, 0, 2, 1, 2, 0, 1, 1, 0][n as usize]];
            let message = bytes(n, [10, 300, 5000][n as usize % 3]);
            w.a.send(va, &message);
            let got = w.received(vb);
            assert_eq!((got.vi, got.descriptor.work().context), (vb, n), "{level:?}");
            assert_eq!(got.data(), message);
        }
        drop(pairs);
    }
}

/// With a completion queue over all of them, in any order of arrival.
pub fn a_store_with_a_completion_queue(mut w: World) {
    let (srq, cq) = (w.b.create_srq(64).unwrap(), w.b.create_cq(2).unwrap());
    let mut attributes = w.b.vi_attributes(ReliableDelivery);
    (attributes.srq, attributes.recv_cq) = (Some(srq), Some(cq));
    let pairs: Vec<_> = (0..6)
        .map(|_| {
            let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi_with(attributes.clone()));
            w.connect(va, vb);
            (va, vb)
        })
        .collect();
    stock(&mut w, srq, 48, 16);
    for n in 0..48u8 {
        w.a.send(pairs[usize::from(n) % 6].0, &[n]);
    }
    // More than the completion queue was made for: what the store brings is not lost.
    let mut seen = [0u8; 6];
    for _ in 0..48 {
        let got = w.until("a message", |w| w.b.poll_cq(cq).unwrap());
        let at = pairs.iter().position(|(_, vb)| *vb == got.vi).unwrap();
        assert_eq!(got.data(), [seen[at] * 6 + at as u8]);
        seen[at] += 1;
    }
    assert_eq!(seen, [8; 6]);
}

/// An empty store is an empty receive queue.
pub fn an_empty_store_is_an_empty_queue(mut w: World) {
    let (srq, pairs) = star(&mut w, Unreliable, 1, 4);
    let (va, vb) = pairs[0];
    w.a.send(va, b"lost");
    let lost = w.until("the error", |w| w.b.take_error());
    assert_eq!((lost.vi, lost.code), (vb, ErrorCode::ReceiveQueueEmpty));
    stock(&mut w, srq, 1, 8);
    w.a.send(va, b"taken");
    assert_eq!(w.received(vb).data(), b"taken");
    let (_, pairs) = star(&mut w, ReliableDelivery, 2, 4);
    w.a.send(pairs[0].0, b"too many");
    w.reaches(Side::B, pairs[0].1, ViState::Error);
    assert_eq!(w.b.state(pairs[1].1), ViState::Connected, "the others go on");
}

/// Messages wait when the VI's own ledger is full of completions that were not taken; nothing is lost or broken.
pub fn a_full_ledger_holds_messages_back(mut w: World) {
    let (srq, pairs) = star(&mut w, ReliableDelivery, 1, 32);
    let (va, vb) = pairs[0];
    stock(&mut w, srq, 20, 8);
    for n in 0..20 {
        w.a.send(va, &[n]);
    }
    w.idle();
    assert_eq!(w.b.state(vb), ViState::Connected);
    for n in 0..20 {
        assert_eq!(w.received(vb).data(), [n]);
    }
}

/// A thread that waits for a send learns that the peer has gone, although messages of the peer's are still held back.
pub fn a_message_held_back_does_not_hide_the_end(mut w: World) {
    w.sleepy();
    let vb = end_with_messages_held_back(&mut w, ReliableReception, |w, va| {
        (0..6).for_each(|_| w.a.send(va, b"a word"));
    });
    assert_eq!(w.b.wait_send_outcome(vb, None).unwrap().status(), Status::Flushed);
    // One posted when the end is known does not wait either.
    w.b.send(vb, b"late");
    assert_eq!(w.b.wait_send_outcome(vb, None).unwrap().status(), Status::Flushed);
    // Those that came are still there, and then the end; their sender was told of none that it is done.
    w.until("the end", |w| {
        let came = w.b.drain(vb, Queue::Receive);
        assert!(came.iter().all(|c| c.status == Status::Success && c.data() == b"a word"));
        (w.b.state(vb) == ViState::Error).then_some(())
    });
}

/// Messages whose sends are done are not lost when their sender goes while they are held back, whatever else the receiver
/// waits for.
pub fn messages_held_back_outlive_their_sender(mut w: World) {
    w.sleepy();
    for size in [6, 100, 3000] {
        if size > 100 && w.name() == "ofi_cramped" {
            // It leaves in many frames there, the rest of which a disconnect that does not drain drops.
            continue;
        }
        w.trying(format!("{size} bytes"));
        let mut done = 0;
        let vb = end_with_messages_held_back(&mut w, ReliableDelivery, |w, va| {
            while done < 6 {
                let message = bytes(done, size);
                if size > 100 {
                    // What is sent by value needs no reader to be done.
                    w.a.send_value(va, &[&message], None).unwrap();
                } else {
                    w.a.send(va, &message);
                    assert_eq!(w.sent(va).status, Status::Success);
                }
                done += 1;
            }
        });
        // A wait for sends that are done, or that the end flushes.
        let outcome = w.b.wait_send_outcome(vb, None).unwrap().status();
        assert!(matches!(outcome, Status::Success | Status::Flushed), "{outcome:?}");
        for n in 0..done {
            let got = w.received(vb);
            assert_eq!((got.status, got.data() == bytes(n, size)), (Status::Success, true), "message {n}");
        }
        w.reaches(Side::B, vb, ViState::Error);
    }
}

/// A VI of `b` whose ledger is full and whose peer has sent more and gone, with a send of its own under way.
fn end_with_messages_held_back(w: &mut World, level: Reliability, send: impl FnOnce(&mut World, Vi)) -> Vi {
    let (srq, pairs) = star(w, level, 1, 16);
    let (va, vb) = pairs[0];
    stock(w, srq, 16, 3000);
    // A disconnect that waits for sends would look, and take a message that is to be left.
    w.a.set_drain(std::time::Duration::ZERO);
    w.a.post_recvs(va, 1, 8);
    // Four messages fill the ledger of b, which reaps none.
    send(w, va);
    // Too much to be done without a reader.
    w.b.send(vb, &bytes(1, 1 << 20));
    w.a.disconnect(va).unwrap();
    vb
}

/// Waiting on a VI with a store waits for the store to be used; not once the peer has gone.
pub fn waiting_on_a_store(mut w: World) {
    let (srq, pairs) = star(&mut w, ReliableDelivery, 1, 4);
    let (va, vb) = pairs[0];
    stock(&mut w, srq, 1, 8);
    w.a.send(va, b"hello");
    drop(w.sent(va));
    assert_eq!(w.b.wait_recv(vb, LONG).unwrap().data(), b"hello");
    w.a.disconnect(va).unwrap();
    assert!(matches!(w.b.wait_recv(vb, LONG), Err(Error::QueueEmpty)));
}

/// What was drawn comes back with its VI, what was not with the store.
pub fn nothing_in_a_store_is_lost(mut w: World) {
    let (srq, pairs) = star(&mut w, ReliableDelivery, 2, 16);
    stock(&mut w, srq, 10, 8);
    w.a.send(pairs[0].0, b"one");
    w.a.send(pairs[1].0, b"two");
    let mut back: Vec<u64> = Vec::new();
    for (va, vb) in pairs {
        w.until("the message", |w| (w.b.query_vi(vb).unwrap().receives == 1).then_some(()));
        w.a.retire(va);
        let _ = w.b.disconnect(vb);
        back.extend(w.b.drain(vb, Queue::Receive).iter().map(|c| c.descriptor.work().context));
        w.b.destroy_vi(vb).unwrap();
    }
    back.extend(w.b.destroy_srq(srq).unwrap().iter().map(|d| d.work().context));
    back.sort_unstable();
    assert_eq!(back, (0..10).collect::<Vec<_>>());
    assert!(matches!(w.b.destroy_srq(srq), Err(Error::InvalidHandle(_))));
}

/// Rules of posting: receives only, not to the VI itself, up to the depth.
pub fn posting_to_a_store(mut w: World) {
    let (srq, pairs) = star(&mut w, ReliableDelivery, 1, 2);
    let vb = pairs[0].1;
    assert!(matches!(w.b.create_srq(0), Err(Error::InvalidParameter(_))));
    let refused = w.b.post_recv(vb, Descriptor::recv_empty().context(3)).unwrap_err();
    assert!(matches!(refused.error, Error::InvalidParameter(_)));
    assert_eq!(refused.descriptor.work().context, 3);
    assert!(matches!(
        w.b.post_srq(srq, Descriptor::send_empty()).unwrap_err().error,
        Error::InvalidParameter(_)
    ));
    stock(&mut w, srq, 2, 8);
    let refused = w.b.post_srq(srq, Descriptor::recv_empty()).unwrap_err();
    assert!(matches!(refused.error, Error::QueueFull { depth: 2 }), "{}", refused.error);
}

/// Tags hold for a store, too: a receive of another tag fails when a VI draws it.
pub fn a_store_does_not_bypass_tags(mut w: World) {
    let (srq, pairs) = star(&mut w, Unreliable, 1, 4);
    let (va, vb) = pairs[0];
    let other = w.b.create_ptag().unwrap();
    let foreign = w.b.alloc(8, MemAttributes::local(other)).unwrap();
    w.b.post_srq(srq, Descriptor::recv(foreign)).unwrap();
    let (own, foreign) = (w.b.buffer(8), w.b.alloc(8, MemAttributes::local(other)).unwrap());
    w.b.post_srq(srq, Descriptor::recv(own).segment(foreign)).unwrap();
    stock(&mut w, srq, 1, 8);
    for wanted in [Status::ProtectionError, Status::ProtectionError, Status::Success] {
        w.a.send(va, b"whose");
        assert_eq!(w.received(vb).status, wanted);
    }
}
