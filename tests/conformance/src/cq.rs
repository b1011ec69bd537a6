//! Completion queues: many VIs and both queues in one, reservation, resizing, waiting.

use std::thread;

use viaduct_via::Reliability::{self, ReliableDelivery, ReliableReception};
use viaduct_via::{Completion, Cq, Descriptor, Error, Queue, Spin, Status, Vi, WaitConfig};

use crate::pattern::{Rng, bytes};
use crate::world::{LONG, SHORT, World, until};

/// `count` connected pairs; those of `b` report to one completion queue.
fn star(w: &mut World, level: Reliability, count: usize, entries: usize) -> (Cq, Vec<(Vi, Vi)>) {
    let cq = w.b.create_cq(entries).unwrap();
    let pairs = (0..count).map(|_| {
        let attributes = w.b.vi_attributes(level).depth(8).cq(cq);
        let (va, vb) = (w.a.vi(level), w.b.vi_with(attributes));
        w.connect(va, vb);
        (va, vb)
    });
    let pairs = pairs.collect();
    (cq, pairs)
}

fn next(w: &mut World, cq: Cq) -> Completion {
    w.until("an entry", |w| w.b.poll_cq(cq).unwrap())
}

/// Both queues of several VIs report to one place, which says whose they are.
pub fn one_queue_for_many(mut w: World) {
    let (cq, pairs) = star(&mut w, ReliableReception, 3, 64);
    for (n, (va, vb)) in pairs.iter().enumerate() {
        w.b.post_recvs(*vb, 1, 8);
        w.a.post_recvs(*va, 1, 8);
        w.a.send(*va, &[n as u8]);
        w.b.send(*vb, &[n as u8]);
    }
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        let done = next(&mut w, cq);
        assert_eq!(done.status, Status::Success);
        match done.queue {
            Queue::Send => sends.push(done.vi),
            Queue::Receive => {
                let n = pairs.iter().position(|(_, vb)| *vb == done.vi).expect("one of ours");
                assert_eq!(done.data(), [n as u8]);
                receives.push(done.vi);
            }
        }
    }
    let wanted: Vec<Vi> = pairs.iter().map(|(_, vb)| *vb).collect();
    sends.sort();
    receives.sort();
    assert_eq!((sends, receives), (wanted.clone(), wanted));
    assert!(w.b.poll_cq(cq).unwrap().is_none());
}

/// The two queues of a VI may report to different places, or one of them to none.
pub fn the_two_queues_may_part(mut w: World) {
    let (sends, receives) = (w.b.create_cq(4).unwrap(), w.b.create_cq(4).unwrap());
    for (send_cq, recv_cq) in [(Some(sends), Some(receives)), (Some(sends), None), (None, Some(receives))] {
        let mut attributes = w.b.vi_attributes(ReliableDelivery);
        (attributes.send_cq, attributes.recv_cq) = (send_cq, recv_cq);
        let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi_with(attributes));
        w.connect(va, vb);
        w.a.post_recvs(va, 1, 8);
        w.b.post_recvs(vb, 1, 8);
        w.a.send(va, b"in");
        w.b.send(vb, b"out");
        let sent = w.until("the send", |w| match send_cq {
            Some(cq) => w.b.poll_cq(cq).unwrap(),
            None => w.b.poll_send(vb).unwrap(),
        });
        let got = w.until("the receive", |w| match recv_cq {
            Some(cq) => w.b.poll_cq(cq).unwrap(),
            None => w.b.poll_recv(vb).unwrap(),
        });
        assert_eq!((sent.queue, got.queue, got.data()), (Queue::Send, Queue::Receive, b"in".to_vec()));
    }
}

/// Every post reserves its entry: a full queue refuses, and no entry is ever lost.
pub fn entries_are_reserved(mut w: World) {
    let (cq, pairs) = star(&mut w, ReliableDelivery, 2, 4);
    w.b.post_recvs(pairs[0].1, 2, 8);
    w.b.post_recvs(pairs[1].1, 2, 8);
    for (_, vb) in &pairs {
        let refused = w.b.post_recv(*vb, Descriptor::recv_empty().context(9)).unwrap_err();
        assert!(matches!(refused.error, Error::CqFull { capacity: 4 }), "{}", refused.error);
        assert_eq!(refused.descriptor.work().context, 9);
        assert!(matches!(
            w.b.post_send(*vb, Descriptor::send_empty()).unwrap_err().error,
            Error::CqFull { .. }
        ));
    }
    w.a.send(pairs[0].0, b"x");
    let done = next(&mut w, cq);
    w.b.post_recv(pairs[1].1, done.descriptor).unwrap();
    assert!(w.b.post_send(pairs[1].1, Descriptor::send_empty()).is_err(), "spoken for again");
    // Refused posts reserve nothing: full queues and wrong descriptors do not eat entries.
    for _ in 0..10 {
        assert!(w.b.post_recv(pairs[0].1, Descriptor::send_empty()).is_err());
    }
    for (va, _) in &pairs {
        drop(w.a.drain(*va, Queue::Send));
    }
}

/// Size changes while in use, though not below what is reserved.
pub fn resizing_while_in_use(mut w: World) {
    let (cq, pairs) = star(&mut w, ReliableDelivery, 1, 2);
    let (va, vb) = pairs[0];
    w.b.post_recvs(vb, 2, 8);
    assert!(matches!(w.b.resize_cq(cq, 1), Err(Error::CqFull { .. })));
    assert!(matches!(w.b.resize_cq(cq, 0), Err(Error::InvalidParameter(_))));
    let most = w.b.attributes().max_cq_entries;
    assert!(matches!(w.b.resize_cq(cq, most + 1), Err(Error::Limit { .. })));
    w.b.resize_cq(cq, 4).unwrap();
    w.b.post_recvs(vb, 2, 8);
    w.a.send(va, b"one");
    w.a.send(va, b"two");
    w.idle();
    assert!(matches!(w.b.resize_cq(cq, 3), Err(Error::CqFull { .. })), "entries in it count, too");
    assert_eq!(next(&mut w, cq).data(), b"one");
    assert_eq!(next(&mut w, cq).data(), b"two");
    w.b.resize_cq(cq, 2).unwrap();
    assert!(w.b.post_recv(vb, Descriptor::recv_empty()).is_err());
    w.a.send(va, b"three");
    assert_eq!(next(&mut w, cq).data(), b"three");
}

/// Entries of a VI that is gone are gone, those of others stay.
pub fn entries_go_with_their_vi(mut w: World) {
    let cq = w.a.create_cq(16).unwrap();
    let attributes = w.a.vi_attributes(ReliableDelivery).cq(cq);
    let (one, two) = (w.a.vi_with(attributes.clone()), w.a.vi_with(attributes));
    for vi in [one, two, one] {
        w.a.send(vi, b"flushed");
    }
    assert_eq!(w.a.drain(one, Queue::Send).len(), 2);
    w.a.destroy_vi(one).unwrap();
    assert_eq!(w.a.poll_cq(cq).unwrap().expect("the other's").vi, two);
    assert!(w.a.poll_cq(cq).unwrap().is_none());
}

/// Taking a completion directly takes its entry along, whatever was fetched before.
pub fn direct_takers_and_the_queue_agree(mut w: World) {
    let cq = w.a.create_cq(16).unwrap();
    let attributes = w.a.vi_attributes(ReliableDelivery).cq(cq);
    let vi = w.a.vi_with(attributes);
    for n in 0..6 {
        w.a.post_send(vi, Descriptor::send_empty().context(n)).unwrap();
    }
    let context = |c: Option<Completion>| c.map(|c| c.descriptor.work().context);
    assert_eq!(context(w.a.poll_send(vi).unwrap()), Some(0));
    assert_eq!(w.a.poll_cq_entry(cq).unwrap(), Some((vi, Queue::Send)));
    assert_eq!(context(w.a.poll_cq(cq).unwrap()), Some(1));
    assert_eq!(context(w.a.poll_send(vi).unwrap()), Some(2), "owed by the entry fetched before");
    assert_eq!(context(w.a.poll_cq(cq).unwrap()), Some(3));
    assert_eq!(context(w.a.poll_send(vi).unwrap()), Some(4));
    assert_eq!(context(w.a.poll_cq(cq).unwrap()), Some(5));
    assert_eq!(w.a.poll_cq_entry(cq).unwrap(), None);
}

/// Several completions at a time, no more than asked for.
pub fn a_batch_is_no_larger_than_asked_for(mut w: World) {
    let (cq, pairs) = star(&mut w, ReliableDelivery, 2, 64);
    for (va, vb) in &pairs {
        w.b.post_recvs(*vb, 5, 8);
        (0..5).for_each(|n| w.a.send(*va, &[n]));
    }
    let mut all = Vec::new();
    assert_eq!(w.b.poll_cq_batch(cq, &mut all, 0).unwrap(), 0);
    while all.len() < 10 {
        let before = all.len();
        let got = w.b.poll_cq_batch(cq, &mut all, 4).unwrap();
        assert!(got <= 4 && all.len() == before + got);
        w.pump();
    }
    for (_, vb) in pairs {
        let of_it: Vec<u8> = all.iter().filter(|c| c.vi == vb).map(|c| c.data()[0]).collect();
        assert_eq!(of_it, [0, 1, 2, 3, 4]);
    }
}

/// Waiting: time limit, wake-up by any of the VIs, wake-up by a disconnect.
pub fn waiting_on_many(mut w: World) {
    w.sleepy();
    let (cq, pairs) = star(&mut w, ReliableDelivery, 7, 64);
    for (_, vb) in &pairs {
        w.b.post_recvs(*vb, 4, 8);
    }
    assert!(matches!(w.b.wait_cq(cq, SHORT), Err(Error::Timeout)));
    let (a, b) = (&mut w.a, &mut w.b);
    thread::scope(|scope| {
        scope.spawn(|| {
            let done: Vec<Completion> = (0..10).map(|_| b.wait_cq(cq, LONG).unwrap().0).collect();
            for (n, (_, vb)) in pairs.iter().enumerate() {
                let of_it: Vec<_> = done.iter().filter(|c| c.vi == *vb).collect();
                assert_eq!(of_it[0].data(), [n as u8]);
                assert_eq!(of_it.len(), if n == 3 { 4 } else { 1 });
                assert!(of_it[1..].iter().all(|c| c.status == Status::Flushed));
            }
        });
        for (n, (va, _)) in pairs.iter().enumerate() {
            thread::sleep(std::time::Duration::from_millis(2));
            a.send(*va, &[n as u8]);
            drop(a.wait_send(*va, LONG).unwrap());
        }
        a.disconnect(pairs[3].0).unwrap();
    });
}

/// A VI whose sends keep one completion queue awake is not forgotten by the other.
pub fn two_queues_over_many_do_not_lose_each_other(mut w: World) {
    w.sleepy();
    let (receives, pairs) = star(&mut w, ReliableReception, 8, 64);
    let sends = w.b.create_cq(8).unwrap();
    let mut attributes = w.b.vi_attributes(ReliableReception);
    (attributes.send_cq, attributes.recv_cq) = (Some(sends), Some(receives));
    let (va, vb) = (w.a.vi(ReliableReception), w.b.vi_with(attributes));
    w.connect(va, vb);
    let (a, b) = (&mut w.a, &mut w.b);
    for round in 0..20u8 {
        a.post_recvs(va, 1, 8);
        b.post_recvs(vb, 1, 8);
        b.send(vb, &[round]); // outstanding until the peer has it
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(a.wait_recv_outcome(va, LONG).unwrap().0.data(), [round]);
                a.send(va, &[round]);
                assert!(a.wait_send_outcome(va, LONG).unwrap().status().is_success());
            });
            let got = b.wait_cq(receives, LONG).unwrap().0;
            assert_eq!((got.vi, got.data()), (vb, vec![round]));
        });
        assert!(b.wait_cq(sends, LONG).unwrap().status().is_success());
    }
    drop(pairs);
}

/// From one VI to many, with few or all of them active: nothing is missed, polled or waited for.
pub fn from_one_to_many(mut w: World) {
    for count in [1usize, 2, 4, 5, 16, 64] {
        for hot in [1, 3, count.min(12)] {
            let (cq, pairs) = star(&mut w, ReliableDelivery, count, 1024);
            for (_, vb) in &pairs {
                w.b.post_recvs(*vb, 4, 16);
            }
            let mut rng = Rng::new((count * 100 + hot) as u64);
            let mut active: Vec<usize> = (0..hot).map(|_| rng.below(count)).collect();
            for n in 0..60u64 {
                if n % 20 == 19 {
                    active = (0..hot).map(|_| rng.below(count)).collect();
                }
                let (va, vb) = pairs[active[rng.below(hot)]];
                w.a.send(va, &bytes(n, 16));
                // Only through the completion queue: polling the VI itself would find it anyway.
                let done = if n % 2 == 0 {
                    until("the message", || {
                        drop(w.a.query_vi(va));
                        w.b.poll_cq(cq).unwrap()
                    })
                } else {
                    drop(until("the send", || w.a.poll_send(va).unwrap()));
                    w.b.wait_cq(cq, LONG).unwrap().0
                };
                drop(w.a.drain(va, Queue::Send));
                assert_eq!((done.vi, done.data()), (vb, bytes(n, 16)), "{count} VIs, {hot} hot, message {n}");
                w.b.post_recv(vb, done.descriptor).unwrap();
            }
            for (va, vb) in pairs {
                w.a.retire(va);
                w.b.retire(vb);
            }
            w.b.destroy_cq(cq).unwrap();
        }
    }
}

/// A completion queue that is waited on never misses a message, however the two sides are timed.
pub fn no_message_is_slept_over(mut w: World) {
    w.b.set_wait(WaitConfig { spin: Spin::Never });
    let (cq, pairs) = star(&mut w, ReliableDelivery, 12, 256);
    let rounds = viaduct_kit::effort::rounds(1500, 50_000);
    for (_, vb) in &pairs {
        w.b.post_recvs(*vb, 8, 8);
    }
    let (a, b) = (&mut w.a, &mut w.b);
    thread::scope(|scope| {
        let pairs = &pairs;
        scope.spawn(move || {
            for _ in 0..rounds {
                let done = b.wait_cq(cq, LONG).expect("a message slept over").0;
                let vi = done.vi;
                b.post_recv(vi, done.descriptor).unwrap();
                // One at a time, answered by a byte of no bytes.
                b.send_inline(vi, &[], Some(1)).unwrap();
            }
        });
        let mut rng = Rng::new(5);
        for (va, _) in pairs {
            a.post_recvs(*va, 4, 8);
        }
        for n in 0..rounds {
            let (va, _) = pairs[rng.below(pairs.len())];
            a.send(va, &n.to_le_bytes());
            let answer = a.wait_recv(va, LONG).unwrap();
            a.post_recv(va, answer.descriptor).unwrap();
            drop(a.drain(va, Queue::Send));
        }
    });
}

/// A VI that always has a message waiting does not keep the others from being heard, be they many or few.
pub fn no_vi_is_drowned_out(mut w: World) {
    for count in [2, 9] {
        let (cq, pairs) = star(&mut w, ReliableDelivery, count, 256);
        for (_, vb) in &pairs {
            w.b.post_recvs(*vb, 4, 8);
        }
        let (loud, quiet) = pairs.split_first().expect("more than one");
        let mut taken = 0;
        let mut talk_on = |w: &mut World| {
            let done = next(w, cq);
            w.b.post_recv(done.vi, done.descriptor).unwrap();
            if done.vi == loud.1 {
                w.a.send(loud.0, b"more");
                drop(w.a.drain(loud.0, Queue::Send));
            }
            taken += 1;
            assert!(taken < 20_000, "{count} VIs: one was never heard");
            done.vi
        };
        (0..3).for_each(|_| w.a.send(loud.0, b"more"));
        (0..200).for_each(|_| {
            talk_on(&mut w);
        });
        for (va, vb) in quiet {
            w.a.send(*va, b"one");
            while talk_on(&mut w) != *vb {}
        }
        for (va, vb) in pairs {
            w.a.retire(va);
            w.b.retire(vb);
        }
        w.b.destroy_cq(cq).unwrap();
    }
}
