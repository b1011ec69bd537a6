//! Small sends by value, sends without completion, and several posts at once (beyond VIA).

use viaduct_via::Reliability::{self, ReliableDelivery, ReliableReception};
use viaduct_via::{BatchError, Buffer, Descriptor, Error, MemAttributes, Op, Queue, Reach, Status, ViState};

use crate::pattern::bytes;
use crate::world::{Side, World, until};

/// Bytes by value, from none to the limit, with and without immediate data, between other sends.
pub fn bytes_by_value(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair(level);
        let most = w.a.attributes().max_inline;
        assert!(most >= 32, "worth having");
        w.b.post_recvs(vb, 8, 256);
        for (n, len) in [0, 1, 8, most / 2, most - 1, most].into_iter().enumerate() {
            let (message, immediate) = (bytes(n as u64, len), (n % 2 == 0).then_some(n as u32));
            until("room", || match w.a.send_inline(va, &message, immediate) {
                Ok(()) => Some(()),
                Err(Error::Busy) => None,
                Err(e) => panic!("{e}"),
            });
            let got = w.received(vb);
            assert_eq!((got.data(), got.immediate), (message, immediate), "{level:?}");
            w.a.send(va, b"between");
            let got = w.received(vb);
            assert_eq!(got.data(), b"between");
            w.b.post_recvs(vb, 2, 256);
            assert_eq!(w.sent(va).status, Status::Success);
        }
        assert!(w.a.poll_send(va).unwrap().is_none(), "nothing to reap");
    }
}

/// Bytes written to remote memory by value, from none to many, told of by immediate data; or the call is busy, always or for
/// now, and has done nothing.
pub fn writes_by_value(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    let (local, open) = (MemAttributes::local(w.a.tag), MemAttributes::remote(w.b.tag));
    let memory = w.b.alloc(100_000, open).unwrap();
    let mut taken = 0;
    for (n, len) in [8, 1, 104, 105, 4096, 60_000].into_iter().cycle().take(60).enumerate() {
        w.b.post_recvs(vb, 1, 16);
        let message = bytes(n as u64, len);
        match w.a.write_inline(va, &message, memory.remote(64), Some(n as u32)) {
            Ok(()) => taken += 1,
            Err(Error::Busy) => {
                // The same by a descriptor, which has its effect in its turn.
                let mut buffer = w.a.alloc(len, local).unwrap();
                buffer.write(0, &message);
                let write = Descriptor::rdma_write(buffer, memory.remote(64)).immediate(n as u32);
                w.a.post_send(va, write).unwrap();
                assert_eq!(w.sent(va).status, Status::Success);
            }
            Err(e) => panic!("{e}"),
        }
        let got = w.received(vb);
        assert_eq!((got.op, got.length, got.immediate), (Op::RemoteRdmaWrite, len as u32, Some(n as u32)));
        let mut there = vec![0; len];
        memory.read(64, &mut there);
        assert!(there == message, "{len} bytes");
    }
    assert!(w.a.poll_send(va).unwrap().is_none(), "nothing to reap");
    assert!(
        taken == 0 || w.a.query_vi(va).unwrap().reach == Some(Reach::Direct),
        "only into memory that can be reached"
    );
}

/// What is too long, or has no connection, is refused by the call.
pub fn bytes_by_value_have_limits(mut w: World) {
    let most = w.a.attributes().max_inline;
    let idle = w.a.vi(ReliableDelivery);
    assert!(matches!(w.a.send_inline(idle, b"x", None), Err(Error::InvalidState { .. })));
    let (va, vb) = w.pair(ReliableDelivery);
    assert!(matches!(w.a.send_inline(va, &vec![0; most + 1], None), Err(Error::Limit { .. })));
    assert_eq!(w.a.state(va), ViState::Connected, "a refusal breaks nothing");
    let (vc, _) = w.pair_with(ReliableDelivery, |mut attributes| {
        attributes.max_transfer_size = 4;
        attributes
    });
    assert!(matches!(w.a.send_inline(vc, b"12345", None), Err(Error::Limit { .. })));
    w.b.disconnect(vb).unwrap();
    w.reaches(Side::A, va, ViState::Error);
    assert!(matches!(
        w.a.send_inline(va, b"x", None),
        Err(Error::InvalidState { found: ViState::Error, .. })
    ));
}

/// A sender that is too fast is told so; in the end everything arrives, in order.
pub fn busy_is_told_and_passes(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair_with(level, |attributes| attributes.depth(4096));
        w.b.post_recvs(vb, 2000, 16);
        let mut busy = 0;
        for n in 0..2000u64 {
            until("room", || match w.a.send_inline(va, &n.to_le_bytes(), None) {
                Ok(()) => Some(()),
                Err(Error::Busy) => {
                    busy += 1;
                    w.pump();
                    None
                }
                Err(e) => panic!("{e}"),
            });
        }
        for n in 0..2000u64 {
            assert_eq!(w.received(vb).data(), n.to_le_bytes(), "{level:?}");
        }
        assert!(busy > 0, "2000 messages at once are too many for any transport");
    }
}

/// Sends without completion: only the last of each batch is told of; the others can be had back.
pub fn unsignalled_sends_are_reclaimed(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair_with(level, |attributes| attributes.depth(32));
        w.b.post_recvs(vb, 32, 16);
        let mut store: Vec<Descriptor> = (0..8).map(|n| Descriptor::send(w.a.buffer(8)).context(n)).collect();
        for round in 0..20u64 {
            for n in 0..8 {
                let mut descriptor = store.pop().expect("all came back");
                descriptor.write(0, 0, &(round * 8 + n).to_le_bytes());
                w.a.post_send(va, if n < 7 { descriptor.unsignalled() } else { descriptor }).unwrap();
            }
            for n in 0..8 {
                let got = w.received(vb);
                assert_eq!(got.data(), (round * 8 + n).to_le_bytes());
                w.b.post_recv(vb, got.descriptor).unwrap();
            }
            let done = w.sent(va);
            assert_eq!(done.status, Status::Success);
            assert!(w.a.poll_send(va).unwrap().is_none(), "one completion for eight");
            let context = done.descriptor.work().context;
            store.push(fresh(done.descriptor, context));
            while let Some(descriptor) = w.a.reclaim(va) {
                let context = descriptor.work().context;
                store.push(fresh(descriptor, context));
            }
            let mut contexts: Vec<u64> = store.iter().map(|d| d.work().context).collect();
            contexts.sort_unstable();
            assert_eq!(contexts, (0..8).collect::<Vec<_>>(), "each exactly once");
        }
    }
}

/// The flag cannot be taken back, so a descriptor is made anew around its buffer.
fn fresh(descriptor: Descriptor, context: u64) -> Descriptor {
    Descriptor::send(descriptor.into_buffer()).context(context)
}

/// Unsignalled sends leave no entries in a completion queue and give their reservations back.
pub fn unsignalled_sends_and_completion_queues(mut w: World) {
    let cq = w.a.create_cq(8).unwrap();
    let (a, b) = (w.a.vi_attributes(ReliableReception).cq(cq), w.b.vi_attributes(ReliableReception));
    let (va, vb) = (w.a.vi_with(a), w.b.vi_with(b));
    w.connect(va, vb);
    w.b.post_recvs(vb, 64, 8);
    for _ in 0..8 {
        for n in 0..8 {
            let descriptor = Descriptor::send_empty().context(n);
            w.a.post_send(va, if n < 7 { descriptor.unsignalled() } else { descriptor }).unwrap();
        }
        let done = w.until("the signalled one", |w| w.a.poll_cq(cq).unwrap());
        assert_eq!(done.descriptor.work().context, 7);
        assert!(w.a.poll_cq(cq).unwrap().is_none());
        assert_eq!(std::iter::from_fn(|| w.a.reclaim(va)).count(), 7);
    }
}

/// Only unsignalled sends: polling makes room although it gives nothing; waiting does not hang.
pub fn only_unsignalled_sends(mut w: World) {
    let (va, vb) = w.pair_with(ReliableDelivery, |attributes| attributes.depth(4));
    w.b.post_recvs(vb, 4, 8);
    for n in 0..40u64 {
        let buffer = w.a.message(&n.to_le_bytes());
        let mut next = Some(Descriptor::send(buffer).unsignalled());
        w.until("room", |w| match w.a.post_send(va, next.take().expect("given back")) {
            Ok(()) => Some(()),
            Err(refused) => {
                assert!(w.a.poll_send(va).unwrap().is_none());
                next = Some(refused.descriptor);
                None
            }
        });
        let got = w.received(vb);
        assert_eq!(got.data(), n.to_le_bytes());
        w.b.post_recv(vb, got.descriptor).unwrap();
    }
    assert!(matches!(w.a.wait_send(va, None), Err(Error::QueueEmpty)), "all were silent");
    assert_eq!(w.a.query_vi(va).unwrap().sends, 0);
}

/// Several posts in one call; at the first refusal the rest stays with the caller.
pub fn posting_a_batch(mut w: World) {
    let (va, vb) = w.pair_with(ReliableDelivery, |attributes| attributes.depth(4));
    w.b.post_recvs(vb, 4, 8);
    let buffers: Vec<Buffer> = (0..6u8).map(|n| w.a.message(&[n])).collect();
    let mut batch = buffers.into_iter().enumerate().map(|(n, b)| Descriptor::send(b).context(n as u64));
    assert_eq!(w.a.post_send_batch(va, batch.by_ref().take(3)).unwrap(), 3);
    let BatchError { posted, refused } = w.a.post_send_batch(va, batch.by_ref()).unwrap_err();
    assert_eq!(posted, 1);
    assert!(matches!(refused.error, Error::QueueFull { depth: 4 }));
    assert_eq!(refused.descriptor.work().context, 4);
    assert_eq!(batch.count(), 1, "the rest was not touched");
    for n in 0..4 {
        assert_eq!(w.received(vb).data(), [n]);
        assert_eq!(w.sent(va).status, Status::Success);
    }
    assert_eq!(w.a.post_send_batch(va, []).unwrap(), 0);
    assert!(w.a.drain(va, Queue::Send).is_empty());
}

/// Receives posted and taken several at a time, of all lengths and used again and again: the order is that of the
/// messages, and what is refused stays with the caller.
pub fn receiving_in_batches(mut w: World) {
    const LENGTHS: [usize; 8] = [8, 8, 8, 1, 3, 100, 5000, 8];
    for level in Reliability::ALL {
        let (va, vb) = w.pair_with(level, |attributes| attributes.depth(8));
        let mut fresh: Vec<_> = (0..10).map(|_| Descriptor::recv(w.b.buffer(5000))).collect();
        let BatchError { posted, refused } = w.b.post_recv_batch(vb, fresh.drain(..)).unwrap_err();
        assert!(posted == 8 && matches!(refused.error, Error::QueueFull { depth: 8 }), "{}", refused.error);
        let mut taken = Vec::new();
        assert_eq!(w.b.poll_recv_batch(vb, &mut taken, 4).unwrap(), 0);
        for round in 0..20 {
            for n in 0..8 {
                w.a.send(va, &bytes(round * 8 + n, LENGTHS[(round + n) as usize % 8]));
            }
            w.until("all messages", |w| {
                let most = 1 + (round as usize + taken.len()) % 5;
                let before = taken.len();
                let got = w.b.poll_recv_batch(vb, &mut taken, most).unwrap();
                assert!(got <= most && taken.len() == before + got);
                (taken.len() == 8).then_some(())
            });
            assert_eq!(w.b.poll_recv_batch(vb, &mut taken, 0).unwrap(), 0);
            for (n, got) in taken.iter().enumerate() {
                let n = n as u64;
                assert_eq!((got.vi, got.queue, got.status), (vb, Queue::Receive, Status::Success));
                assert_eq!(got.data(), bytes(round * 8 + n, LENGTHS[(round + n) as usize % 8]), "{level:?}");
                drop(w.sent(va));
            }
            assert_eq!(w.b.post_recv_batch(vb, taken.drain(..).map(|got| got.descriptor)).unwrap(), 8);
        }
        w.a.disconnect(va).unwrap();
        w.until("the flush", |w| (w.b.poll_recv_batch(vb, &mut taken, 3).unwrap() > 0).then_some(()));
        assert!(taken.iter().all(|got| got.status == Status::Flushed));
    }
}
