//! Every posted descriptor comes back exactly once and in order, whatever ends the connection; then things can go.

use std::thread;
use std::time::Duration;

use viaduct_via::Reliability::{self, ReliableDelivery, ReliableReception};
use viaduct_via::{Completion, Descriptor, Error, MemAttributes, Queue, Status, Vi, ViState};

use crate::pattern::Rng;
use crate::world::{LONG, Node, Side, World, connect, until};

fn contexts(back: &[Completion]) -> Vec<u64> {
    back.iter().map(|c| c.descriptor.work().context).collect()
}

/// Successes first, then the failure if there is one, then everything flushed.
fn assert_ends_flushed(back: &[Completion]) {
    let at = back.iter().position(|c| c.status != Status::Success).unwrap_or(back.len());
    let rest = &back[back.len().min(at + 1)..];
    assert!(rest.iter().all(|c| c.status == Status::Flushed && c.length == 0), "{back:?}");
}

/// Our own disconnect gives back what was posted.
pub fn disconnecting_flushes_our_side(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair(level);
        w.b.post_recvs(vb, 10, 8);
        w.b.disconnect(vb).unwrap();
        let back = w.b.drain(vb, Queue::Receive);
        assert_eq!(contexts(&back), (0..10).collect::<Vec<_>>());
        assert!(back.iter().all(|c| c.status == Status::Flushed && c.length == 0));
        assert!(w.b.poll_recv(vb).unwrap().is_none(), "once");
        w.reaches(Side::A, va, ViState::Error);
    }
}

/// The peer's disconnect gives back what was posted here.
pub fn a_remote_disconnect_flushes_this_side(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair(level);
        w.b.post_recvs(vb, 10, 8);
        w.a.disconnect(va).unwrap();
        w.reaches(Side::B, vb, ViState::Error);
        let back = w.b.drain(vb, Queue::Receive);
        assert_eq!(contexts(&back), (0..10).collect::<Vec<_>>());
        assert!(back.iter().all(|c| c.status == Status::Flushed));
    }
}

/// Sends under way when the connection ends come back as well, done or flushed.
pub fn sends_under_way_come_back(mut w: World) {
    for level in Reliability::ALL {
        for ours in [true, false] {
            let (va, vb) = w.pair(level);
            w.b.post_recvs(vb, 3, 70_000);
            for n in 0..20 {
                let buffer = w.a.buffer(if n % 2 == 0 { 16 } else { 70_000 });
                w.a.post_send(va, Descriptor::send(buffer).context(n)).unwrap();
            }
            if ours {
                w.a.disconnect(va).unwrap();
            } else {
                w.b.disconnect(vb).unwrap();
                w.reaches(Side::A, va, ViState::Error);
            }
            let back = w.a.drain(va, Queue::Send);
            assert_eq!(contexts(&back), (0..20).collect::<Vec<_>>(), "{level:?}");
            assert_ends_flushed(&back);
            assert!(w.a.poll_send(va).unwrap().is_none(), "once");
        }
    }
}

/// The error of one descriptor flushes the others.
pub fn an_error_flushes_the_rest(mut w: World) {
    for level in [ReliableDelivery, ReliableReception] {
        let (va, vb) = w.pair(level);
        w.b.post_recvs(vb, 2, 8);
        w.a.post_recvs(va, 4, 8);
        w.b.send(vb, b"hello");
        let other = w.a.create_ptag().unwrap();
        let foreign = w.a.alloc(8, MemAttributes::local(other)).unwrap();
        w.a.post_send(va, Descriptor::send(foreign).context(7)).unwrap();
        w.reaches(Side::A, va, ViState::Error);
        w.reaches(Side::B, vb, ViState::Error);
        let sends = w.a.drain(va, Queue::Send);
        assert_eq!((sends.len(), sends[0].status), (1, Status::ProtectionError));
        let back = w.a.drain(va, Queue::Receive);
        assert_eq!(contexts(&back), [0, 1, 2, 3]);
        assert_ends_flushed(&back);
        assert!(w.b.drain(vb, Queue::Receive).iter().all(|c| c.status == Status::Flushed));
    }
}

/// Flushed descriptors report to completion queues like all others, and free their reservations.
pub fn flushing_reports_to_completion_queues(mut w: World) {
    let cq = w.b.create_cq(8).unwrap();
    let (a, b) = (w.a.vi_attributes(ReliableDelivery), w.b.vi_attributes(ReliableDelivery).cq(cq));
    let (va, vb) = (w.a.vi_with(a), w.b.vi_with(b));
    for _ in 0..3 {
        w.connect(va, vb);
        w.b.post_recvs(vb, 8, 8);
        w.a.disconnect(va).unwrap();
        w.reaches(Side::B, vb, ViState::Error);
        for n in 0..8 {
            let back = w.b.poll_cq(cq).unwrap().expect("all at once");
            assert_eq!((back.vi, back.status, back.descriptor.work().context), (vb, Status::Flushed, n));
        }
        assert!(w.b.poll_cq(cq).unwrap().is_none());
        w.b.disconnect(vb).unwrap();
    }
}

/// An unsignalled send that fails is told of after all.
pub fn failures_of_unsignalled_sends_are_told(mut w: World) {
    let vi = w.a.vi(ReliableDelivery);
    let buffer = w.a.buffer(8);
    w.a.post_send(vi, Descriptor::send(buffer).unsignalled().context(5)).unwrap();
    let back = w.a.poll_send(vi).unwrap().expect("not silently");
    assert_eq!((back.status, back.descriptor.work().context), (Status::Flushed, 5));
    assert!(w.a.reclaim(vi).is_none());
}

/// Recalled: A VI goes only when it is idle and both its queues were emptied; refusing does no harm.
pub fn a_vi_goes_when_idle_and_drained(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    w.b.post_recvs(vb, 2, 8);
    w.a.send(va, b"x");
    drop(w.received(vb));
    assert!(matches!(w.b.destroy_vi(vb), Err(Error::InvalidState { found: ViState::Connected, .. })));
    w.b.disconnect(vb).unwrap();
    assert!(matches!(w.b.destroy_vi(vb), Err(Error::InUse(_))), "a flushed receive was not taken yet");
    assert_eq!(w.b.drain(vb, Queue::Receive).len(), 1);
    w.b.destroy_vi(vb).unwrap();
    assert!(matches!(w.b.query_vi(vb), Err(Error::InvalidHandle(_))));
    w.reaches(Side::A, va, ViState::Error);
    w.a.disconnect(va).unwrap();
    assert!(matches!(w.a.destroy_vi(va), Err(Error::InUse(_))), "a completed send was not taken yet");
    assert_eq!(w.a.drain(va, Queue::Send).len(), 1);
    w.a.destroy_vi(va).unwrap();
}

/// Receives posted for a connection that never came can be had back, so that the VI can go.
pub fn receives_of_an_idle_vi_are_given_back(mut w: World) {
    let vi = w.a.vi(ReliableDelivery);
    w.a.post_recvs(vi, 3, 8);
    assert!(matches!(w.a.destroy_vi(vi), Err(Error::InUse(_))));
    w.a.disconnect(vi).unwrap();
    let back = w.a.drain(vi, Queue::Receive);
    assert_eq!(contexts(&back), [0, 1, 2]);
    assert!(back.iter().all(|c| c.status == Status::Flushed));
    assert!(matches!(w.a.disconnect(vi), Err(Error::InvalidState { found: ViState::Idle, .. })));
    w.a.destroy_vi(vi).unwrap();
}

/// Recalled: Completion queues, shared receive queues and tags go only when nothing uses them.
pub fn an_object_in_use_is_not_destroyed(mut w: World) {
    let (cq, srq) = (w.a.create_cq(4).unwrap(), w.a.create_srq(4).unwrap());
    let tag = w.a.create_ptag().unwrap();
    let mut attributes = viaduct_via::ViAttributes::new(tag).cq(cq);
    attributes.srq = Some(srq);
    let vi = w.a.vi_with(attributes);
    assert!(matches!(w.a.destroy_cq(cq), Err(Error::InUse(_))));
    assert!(matches!(w.a.destroy_srq(srq), Err(Error::InUse(_))));
    assert!(matches!(w.a.destroy_ptag(tag), Err(Error::InUse(_))));
    w.a.destroy_vi(vi).unwrap();
    w.a.destroy_cq(cq).unwrap();
    w.a.destroy_srq(srq).unwrap();
    let buffer = w.a.alloc(8, MemAttributes::local(tag)).unwrap();
    assert!(matches!(w.a.destroy_ptag(tag), Err(Error::InUse(_))), "a region has it");
    drop(buffer);
    w.a.destroy_ptag(tag).unwrap();
    assert!(matches!(w.a.destroy_ptag(tag), Err(Error::InvalidPtag)));
}

/// A completion queue can go right after its VI, whatever entries are left in it.
pub fn a_completion_queue_goes_after_its_vi(mut w: World) {
    let cq = w.a.create_cq(16).unwrap();
    let attributes = w.a.vi_attributes(ReliableDelivery).cq(cq);
    let vi = w.a.vi_with(attributes);
    w.a.send(vi, b"flushed");
    w.a.send(vi, b"flushed");
    // Taken from the queue itself, not through its completion queue.
    assert_eq!(w.a.drain(vi, Queue::Send).len(), 2);
    w.a.destroy_vi(vi).unwrap();
    assert!(w.a.poll_cq(cq).unwrap().is_none());
    w.a.destroy_cq(cq).unwrap();
}

/// A NIC goes with whatever is posted and connected.
pub fn a_nic_goes_with_work_in_hand(mut w: World) {
    for level in Reliability::ALL {
        let mut third = w.node();
        let (vc, vb) = (third.vi(level), w.b.vi(level));
        let address = w.address();
        crate::world::connect(&mut third, vc, &mut w.b, vb, &address);
        w.b.post_recvs(vb, 4, 70_000);
        third.post_recvs(vc, 4, 8);
        for _ in 0..6 {
            let buffer = third.buffer(70_000);
            third.post_send(vc, Descriptor::send(buffer)).unwrap();
        }
        drop(third);
        w.reaches(Side::B, vb, ViState::Error);
        w.b.retire(vb);
    }
}

/// Any mix of posting, breaking and connecting again: the books balance on both sides.
pub fn the_books_balance(mut w: World) {
    for seed in 0..viaduct_kit::effort::rounds(6, 60) {
        let mut rng = Rng::new(seed);
        let level = Reliability::ALL[rng.below(3)];
        let (va, vb) = w.pair_with(level, |attributes| attributes.depth(16));
        let mut books = [Book::new(Side::A, va), Book::new(Side::B, vb)];
        for _ in 0..300 {
            match rng.below(20) {
                0 => drop(w.side([Side::A, Side::B][rng.below(2)]).disconnect(books[rng.below(2)].vi)),
                1 | 2 if books.iter().all(|book| w.side(book.side).state(book.vi) == ViState::Idle) => {
                    w.connect(va, vb);
                }
                3 => {
                    for book in &books {
                        let node = w.side(book.side);
                        if node.state(book.vi) == ViState::Error {
                            node.disconnect(book.vi).unwrap();
                        }
                    }
                }
                4..12 => books[rng.below(2)].post(&mut w, Queue::Receive, 4096),
                12..17 => {
                    let len = [0, 8, 100, 4096, 5000][rng.below(5)];
                    books[rng.below(2)].post(&mut w, Queue::Send, len);
                }
                _ => books[rng.below(2)].take(&mut w),
            }
        }
        for book in &mut books {
            let _ = w.side(book.side).disconnect(book.vi);
            book.take(&mut w);
            assert_eq!(book.posted, book.back, "seed {seed}: some never came back");
            w.side(book.side).retire(book.vi);
        }
    }
}

struct Book {
    side: Side,
    vi: Vi,
    posted: [u64; 2],
    back: [u64; 2],
}

impl Book {
    fn new(side: Side, vi: Vi) -> Book {
        Book { side, vi, posted: [0; 2], back: [0; 2] }
    }

    fn post(&mut self, w: &mut World, queue: Queue, len: usize) {
        let node = w.side(self.side);
        let buffer = node.buffer(len.max(1));
        let context = self.posted[queue as usize];
        let posted = match queue {
            Queue::Send => {
                let descriptor = Descriptor::new(viaduct_via::Op::Send).segment_range(buffer, 0..len);
                node.post_send(self.vi, descriptor.context(context))
            }
            Queue::Receive => node.post_recv(self.vi, Descriptor::recv(buffer).context(context)),
        };
        match posted {
            Ok(()) => self.posted[queue as usize] += 1,
            Err(refused) => assert!(matches!(refused.error, Error::QueueFull { .. }), "{}", refused.error),
        }
    }

    fn take(&mut self, w: &mut World) {
        for queue in [Queue::Send, Queue::Receive] {
            for done in w.side(self.side).drain(self.vi, queue) {
                let next = &mut self.back[queue as usize];
                assert_eq!(done.descriptor.work().context, *next, "out of order or twice");
                *next += 1;
            }
        }
    }
}

/// More sends than a ring holds, and a receiver on another thread that takes them while `end` runs.
fn leave_before(mut w: World, end: fn(Node, Vi)) {
    const COUNT: usize = 100;
    for level in Reliability::ALL {
        for len in [8, 500, 9000] {
            let mut a = w.node();
            a.set_drain(LONG.unwrap());
            let (va, vb) = (a.vi(level), w.b.vi(level));
            let address = w.address();
            connect(&mut a, va, &mut w.b, vb, &address);
            w.b.post_recvs(vb, COUNT as u64, len);
            for n in 0..COUNT {
                let buffer = a.register_local(vec![n as u8; len]);
                a.post_send(va, Descriptor::send(buffer)).unwrap();
            }
            thread::scope(|scope| {
                scope.spawn(|| end(a, va));
                for n in 0..COUNT {
                    let what = format!("message {n} of {len} bytes, {level:?}");
                    let got = until(&what, || w.b.poll_recv(vb).unwrap());
                    assert_eq!((got.status, got.data()), (Status::Success, vec![n as u8; len]), "{what}");
                }
            });
            w.b.retire(vb);
        }
    }
}

/// An orderly disconnect waits until what was posted before it has left.
pub fn sends_leave_before_a_disconnect(w: World) {
    leave_before(w, |mut a, va| {
        a.disconnect(va).unwrap();
        assert!(a.drain(va, Queue::Send).iter().all(|sent| sent.status == Status::Success));
    });
}

/// So does a NIC that is dropped.
pub fn sends_leave_before_a_nic_goes(w: World) {
    leave_before(w, |a, _| drop(a));
}

/// Where the peer takes nothing, an end waits for the time that was set, and everything comes back.
pub fn an_end_waits_no_longer_than_it_may(mut w: World) {
    for limit in [Duration::ZERO, Duration::from_millis(20)] {
        let (va, _vb) = w.pair(Reliability::ReliableReception);
        w.a.set_drain(limit);
        for n in 0..50 {
            w.a.send(va, &vec![n; 9000]);
        }
        w.a.disconnect(va).unwrap();
        let back = w.a.drain(va, Queue::Send);
        assert_eq!(back.len(), 50);
        assert!(back.iter().all(|sent| sent.status == Status::Flushed));
    }
}
