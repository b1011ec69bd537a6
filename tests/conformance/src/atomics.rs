//! Atomic operations on a peer's words (beyond VIA).

use std::sync::atomic::Ordering;
use std::thread;

use viaduct_via::Reliability::ReliableDelivery;
use viaduct_via::{Buffer, Descriptor, Status};

use crate::rdma::{RELIABLE, finish};
use crate::world::{World, until};

/// Compare-and-swap and fetch-and-add tell the old value and are seen by the owner.
pub fn atomics_change_words(mut w: World) {
    for level in RELIABLE {
        let (va, _vb) = w.pair(level);
        let target = w.b.window(64);
        target.word(8).store(10, Ordering::SeqCst);
        let old = |w: &mut World, d: fn(Buffer, viaduct_via::RemoteAddress) -> Descriptor| {
            let buffer = w.a.buffer(8);
            let done = finish(w, va, d(buffer, target.remote(8)));
            assert_eq!((done.status, done.length), (Status::Success, 8), "{level:?}");
            u64::from_ne_bytes(done.data().try_into().unwrap())
        };
        assert_eq!(old(&mut w, |b, at| Descriptor::fetch_add(b, at, 5)), 10);
        assert_eq!(old(&mut w, |b, at| Descriptor::compare_swap(b, at, 15, 100)), 15, "it was so: swapped");
        assert_eq!(old(&mut w, |b, at| Descriptor::compare_swap(b, at, 15, 200)), 100, "it was not: left");
        assert_eq!(old(&mut w, |b, at| Descriptor::fetch_add(b, at, u64::MAX)), 100, "wraps: one less");
        assert_eq!(target.word(8).load(Ordering::SeqCst), 99);
        assert_eq!((target.word(0).load(Ordering::SeqCst), target.word(16).load(Ordering::SeqCst)), (0, 0));
    }
}

/// Atomics of two NICs and the owner's own do not lose each other's work.
pub fn atomics_are_atomic(mut w: World) {
    let mut third = w.node();
    let (va, vb) = w.pair(ReliableDelivery);
    let (vc, vd) = (third.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let address = w.address();
    crate::world::connect(&mut third, vc, &mut w.b, vd, &address);
    let target = w.b.window(8);
    let rounds = 500;
    let (a, b, place) = (&mut w.a, &mut w.b, target.remote(0));
    let done = std::sync::atomic::AtomicUsize::new(0);
    thread::scope(|scope| {
        for (node, vi) in [(a, va), (&mut third, vc)] {
            let done = &done;
            scope.spawn(move || {
                for _ in 0..rounds {
                    let buffer = node.buffer(8);
                    node.post_send(vi, Descriptor::fetch_add(buffer, place, 1)).unwrap();
                    let status = until("the atomic", || node.poll_send(vi).unwrap()).status;
                    assert_eq!(status, Status::Success);
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        until("both to be done", || {
            target.word(0).fetch_add(1 << 32, Ordering::SeqCst);
            drop((b.query_vi(vb), b.query_vi(vd)));
            (done.load(Ordering::SeqCst) == 2).then_some(())
        });
    });
    assert_eq!(target.word(0).load(Ordering::SeqCst) & 0xffff_ffff, 2 * rounds);
}
