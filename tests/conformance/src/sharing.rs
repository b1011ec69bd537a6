//! A NIC shared by threads: waits of several threads, and futures.

use std::thread;
use std::time::Duration;

use viaduct_via::Reliability::{self, ReliableDelivery};
use viaduct_via::{Descriptor, Error, MemAttributes, Queue, SharedNic, Status, Vi};

use crate::notify::share;
use crate::pattern::block_on;
use crate::world::{LONG, World, until};

/// Threads wait side by side without holding each other up.
pub fn threads_wait_side_by_side(mut w: World) {
    let pairs: Vec<_> = (0..4).map(|_| w.pair(ReliableDelivery)).collect();
    pairs.iter().for_each(|(_, vb)| w.b.post_recvs(*vb, 20, 16));
    let World { mut a, b, folder: _folder, .. } = w;
    let b = SharedNic::new(b.into_nic());
    thread::scope(|scope| {
        for (_, vb) in &pairs {
            let b = b.clone();
            scope.spawn(move || {
                for n in 0..20u8 {
                    assert_eq!(b.wait(*vb, Queue::Receive, LONG).unwrap().0.data(), [n]);
                }
            });
        }
        for n in 0..20u8 {
            for (va, _) in pairs.iter().rev() {
                a.send(*va, &[n]);
                drop(until("the send", || a.poll_send(*va).unwrap()));
            }
        }
    });
}

/// A thread that waits is woken by what another one does to its VI.
pub fn a_waiter_is_woken_by_another_thread(w: World) {
    let (a, _, b, vb, _folder) = share(w, ReliableDelivery);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| b.wait(vb, Queue::Receive, LONG).unwrap());
        thread::sleep(Duration::from_millis(20));
        b.lock().disconnect(vb).unwrap();
        assert_eq!(waiter.join().unwrap().status(), Status::Flushed, "disconnected by us");
        let waiter = scope.spawn(|| b.wait(vb, Queue::Send, LONG).unwrap());
        thread::sleep(Duration::from_millis(20));
        b.lock().post_send(vb, Descriptor::send_empty()).unwrap();
        assert_eq!(waiter.join().unwrap().status(), Status::Flushed, "posted by us, flushed at once");
        while b.lock().poll_recv(vb).unwrap().is_some() {}
        let waiter = scope.spawn(|| b.wait(vb, Queue::Receive, LONG));
        thread::sleep(Duration::from_millis(20));
        b.lock().destroy_vi(vb).unwrap();
        assert!(matches!(waiter.join().unwrap(), Err(Error::InvalidHandle(_))), "destroyed by us");
    });
    drop(a);
}

/// Threads that share a NIC wait for one VI each, and messages of both go on, whatever their ends wait for: as for a NIC with
/// one owner.
pub fn a_wait_on_a_shared_nic_moves_other_vis(mut w: World) {
    const LEN: usize = 2 << 20;
    let (first, second) = (w.pair(ReliableDelivery), w.pair(ReliableDelivery));
    let message = vec![5; LEN];
    for (node, out, into) in [(&mut w.a, first.0, second.0), (&mut w.b, second.1, first.1)] {
        let [buffer, place] = [(); 2].map(|()| node.register_local(message.clone()));
        node.post_recv(into, Descriptor::recv(place)).unwrap();
        node.post_send(out, Descriptor::send(buffer)).unwrap();
    }
    let World { a, b, folder: _folder, .. } = w;
    let (a, b) = (SharedNic::new(a.into_nic()), SharedNic::new(b.into_nic()));
    thread::scope(|scope| {
        for (nic, out, into) in [(a, first.0, second.0), (b, second.1, first.1)] {
            scope.spawn(move || {
                assert_eq!(nic.wait(out, Queue::Send, LONG).unwrap().status(), Status::Success);
                assert_eq!(nic.wait(into, Queue::Receive, LONG).unwrap().ok().unwrap().data().len(), LEN);
            });
        }
    });
}

/// Looking never waits, not even behind a thread that waits on the same queue.
pub fn looking_does_not_wait_behind_a_waiter(w: World) {
    let (mut a, va, b, vb, _folder) = share(w, ReliableDelivery);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| b.wait(vb, Queue::Receive, LONG).unwrap());
        thread::sleep(Duration::from_millis(20));
        for _ in 0..100 {
            assert!(b.lock().poll_recv(vb).unwrap().is_none());
        }
        a.send(va, b"for the waiter");
        drop(until("the send", || a.poll_send(va).unwrap()));
        assert_eq!(waiter.join().unwrap().0.data(), b"for the waiter");
    });
}

/// A wait that nothing can end is refused: the peer is gone and everything was taken.
pub fn waiting_on_a_broken_vi_ends(w: World) {
    let (mut a, va, b, vb, _folder) = share(w, ReliableDelivery);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            for _ in 0..8 {
                assert_eq!(b.wait(vb, Queue::Receive, LONG).unwrap().status(), Status::Flushed);
            }
            b.wait(vb, Queue::Receive, None)
        });
        thread::sleep(Duration::from_millis(20));
        a.disconnect(va).unwrap();
        assert!(matches!(waiter.join().unwrap(), Err(Error::QueueEmpty)));
    });
}

/// Completions as futures, on any executor.
pub fn completions_are_futures(mut w: World) {
    let cq = w.b.create_cq(16).unwrap();
    let attributes = w.b.vi_attributes(ReliableDelivery).cq(cq);
    let (va, vb) = w.pair(ReliableDelivery);
    let (vc, vd) = (w.a.vi(ReliableDelivery), w.b.vi_with(attributes));
    w.connect(vc, vd);
    w.b.post_recvs(vb, 20, 16);
    w.b.post_recvs(vd, 10, 16);
    let World { a, b, folder: _folder, .. } = w;
    let (a, b) = (SharedNic::new(a.into_nic()), SharedNic::new(b.into_nic()));
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..10u8 {
                thread::sleep(Duration::from_millis(1));
                for vi in [va, vc] {
                    // A window may be full while the other thread is not scheduled.
                    while let Err(e) = a.lock().send_inline(vi, &[n], None) {
                        assert!(matches!(e, Error::Busy), "{e}");
                        thread::yield_now();
                    }
                }
            }
        });
        block_on(async {
            for n in 0..10u8 {
                assert_eq!(b.next(vb, Queue::Receive).await.unwrap().0.data(), [n]);
                assert_eq!(b.next_cq(cq).await.unwrap().0.data(), [n]);
            }
        });
    });
    // A future of something that is not there says so, and one that was dropped takes nothing with it.
    b.lock().disconnect(vd).unwrap();
    drop(b.next(vb, Queue::Receive));
    let gone = Vi::from_raw(viaduct_via::handle::RawHandle { index: 1 << 20, generation: 1 });
    assert!(matches!(block_on(b.next(gone, Queue::Send)), Err(Error::InvalidHandle(_))));
    drop(a);
    assert_eq!(block_on(b.next(vb, Queue::Receive)).unwrap().status(), Status::Flushed);
}

/// What was posted leaves, though no call is made any more: the NIC's own thread moves it.
pub fn sends_move_while_their_owner_makes_no_calls(mut w: World) {
    const COUNT: usize = 100;
    let pairs: Vec<_> = Reliability::ALL.iter().map(|level| (*level, w.pair(*level))).collect();
    let World { a, mut b, folder: _folder, .. } = w;
    let tag = a.tag;
    let a = SharedNic::new(a.into_nic());
    for len in [8, 500, 9000] {
        for (level, (va, vb)) in &pairs {
            b.post_recvs(*vb, COUNT as u64, len);
            let mut posted = 0;
            let mut nic = a.lock();
            while posted < COUNT {
                let bytes = vec![posted as u8; len];
                let buffer = nic.register(bytes, MemAttributes::local(tag)).unwrap();
                nic.post_send(*va, Descriptor::send(buffer)).unwrap();
                posted += 1;
            }
            drop(nic);
            for n in 0..COUNT {
                let got =
                    until(&format!("message {n} of {len} bytes, {level:?}"), || b.poll_recv(*vb).unwrap());
                assert_eq!((got.status, got.data()), (Status::Success, vec![n as u8; len]), "{level:?}");
            }
            for _ in 0..COUNT {
                assert_eq!(a.wait(*va, Queue::Send, LONG).unwrap().status(), Status::Success);
            }
        }
    }
}

/// A thread that ends a connection and waits for its sends leaves the NIC to the other threads meanwhile.
pub fn a_disconnect_holds_no_other_connection_up(mut w: World) {
    const COUNT: usize = 100;
    let (va, vb) = w.pair(ReliableDelivery);
    let (other, _) = w.pair(ReliableDelivery);
    w.b.post_recvs(vb, COUNT as u64, 9000);
    let World { mut a, mut b, folder: _folder, .. } = w;
    a.set_drain(LONG.unwrap());
    for n in 0..COUNT {
        a.send(va, &vec![n as u8; 9000]);
    }
    let a = SharedNic::new(a.into_nic());
    thread::scope(|scope| {
        let ending = scope.spawn(|| a.disconnect(va));
        // The receiver is us, and it begins when other calls were made.
        for _ in 0..100 {
            assert!(a.lock().poll_recv(other).unwrap().is_none());
        }
        for n in 0..COUNT {
            let got = until("a message before the end", || b.poll_recv(vb).unwrap());
            assert_eq!((got.status, got.data()), (Status::Success, vec![n as u8; 9000]));
        }
        ending.join().unwrap().unwrap();
    });
    assert!(matches!(a.disconnect(va), Err(Error::InvalidState { .. })), "it is idle");
}
