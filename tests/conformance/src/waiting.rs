//! Waiting for completions: time limits, sleepers that are woken, the pollable descriptor.

use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use viaduct_via::Reliability::{self, ReliableDelivery};
use viaduct_via::{Buffer, Descriptor, Error, Status};

use crate::pattern::{assert_same, bytes};
use crate::world::{LONG, SHORT, World, until};

/// Waiting tells of the time limit and can be repeated; what was posted stays posted.
pub fn waiting_times_out(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    w.b.post_recvs(vb, 1, 8);
    assert!(matches!(w.b.wait_recv(vb, SHORT), Err(Error::Timeout)));
    assert!(matches!(w.b.wait_recv(vb, Some(std::time::Duration::ZERO)), Err(Error::Timeout)));
    assert_eq!(w.b.query_vi(vb).unwrap().receives, 1);
    w.a.send(va, b"late");
    assert_eq!(w.received(vb).data(), b"late");
}

/// A thread that sleeps is woken by a message, also when it never spins.
pub fn a_sleeper_is_woken(mut w: World) {
    w.sleepy();
    for level in Reliability::ALL {
        let (va, vb) = w.pair(level);
        w.b.post_recvs(vb, 50, 8);
        w.a.post_recvs(va, 50, 8);
        let (a, b) = (&mut w.a, &mut w.b);
        thread::scope(|scope| {
            scope.spawn(move || {
                for n in 0..50u8 {
                    assert_eq!(b.wait_recv_outcome(vb, LONG).unwrap().0.data(), [n]);
                    b.send(vb, &[n]);
                    assert_eq!(b.wait_send_outcome(vb, LONG).unwrap().status(), Status::Success);
                }
            });
            for n in 0..50u8 {
                a.send(va, &[n]);
                assert_eq!(a.wait_send_outcome(va, LONG).unwrap().status(), Status::Success);
                assert_eq!(a.wait_recv(va, LONG).unwrap().data(), [n]);
            }
        });
    }
}

/// A sleeper is woken by the peer's leaving, too.
pub fn a_sleeper_is_woken_by_a_disconnect(mut w: World) {
    w.sleepy();
    let (va, vb) = w.pair(ReliableDelivery);
    w.b.post_recvs(vb, 2, 8);
    let (a, b) = (&mut w.a, &mut w.b);
    thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..2 {
                assert_eq!(b.wait_recv_outcome(vb, LONG).unwrap().status(), Status::Flushed);
            }
            assert!(matches!(b.wait_recv(vb, LONG), Err(Error::QueueEmpty)));
        });
        thread::sleep(std::time::Duration::from_millis(20));
        a.disconnect(va).unwrap();
    });
}

/// A caller that waits for a send learns of the peer's leaving although messages came before it: they are taken on the way, and
/// after the last one no peer rings any more.
pub fn the_end_behind_messages_is_seen(mut w: World) {
    w.sleepy();
    // A disconnect that waits for sends would look, and take the message that is to be left.
    w.b.set_drain(std::time::Duration::ZERO);
    let level = Reliability::ReliableReception;
    let cq = w.a.create_cq(64).unwrap();
    for (messages, bound) in (1..=20).flat_map(|n| [(n, false), (n, true)]) {
        let mut attributes = w.a.vi_attributes(level);
        attributes.send_cq = bound.then_some(cq);
        let (va, vb) = (w.a.vi_with(attributes), w.b.vi(level));
        w.connect(va, vb);
        w.a.post_recvs(va, messages, 8);
        w.b.post_recvs(vb, 1, 8);
        // Not received: the peer never looks.
        w.a.send(va, b"unheard");
        (0..messages).for_each(|_| w.b.send(vb, b"a word"));
        w.b.disconnect(vb).unwrap();
        // The thread that tells of the end has done so, while no thread slept.
        thread::sleep(std::time::Duration::from_millis(2));
        // Without a time limit, after which a last look would find it.
        let end = if bound { w.a.wait_cq(cq, None) } else { w.a.wait_send_outcome(va, None) };
        assert_eq!(end.unwrap().status(), Status::Flushed, "after {messages} messages");
    }
}

/// Longer than what any provider keeps for a sender that waits for something else.
const LONG_MESSAGE: usize = 2 << 20;

/// A call that waits for one VI moves a send that was posted on another. Ends that wait for a message each would wait for each other
/// otherwise, while the one that both need stays with its sender.
pub fn a_wait_moves_sends_of_other_vis(mut w: World) {
    for spins in [true, false] {
        if !spins {
            w.sleepy();
        }
        let (first, second) = (w.pair(ReliableDelivery), w.pair(ReliableDelivery));
        w.b.post_recvs(first.1, 1, LONG_MESSAGE);
        w.a.post_recvs(second.0, 1, 16);
        let message = bytes(7, LONG_MESSAGE);
        let buffer = w.a.register_local(message.clone());
        w.a.post_send(first.0, Descriptor::send(buffer)).unwrap();
        let (a, b) = (&mut w.a, &mut w.b);
        thread::scope(|scope| {
            scope.spawn(move || {
                assert_same(&b.wait_recv(first.1, LONG).unwrap().data(), &message);
                b.send(second.1, b"I have it");
                b.wait_send(second.1, LONG).unwrap();
            });
            assert_eq!(a.wait_recv(second.0, LONG).unwrap().data(), b"I have it");
            a.wait_send(first.0, LONG).unwrap();
        });
    }
}

/// A call that waits for one VI fetches a message that came to another, if a receive is posted for it: its sender may do
/// nothing else before it is through.
pub fn a_wait_takes_in_messages_of_other_vis(mut w: World) {
    for spins in [true, false] {
        if !spins {
            w.sleepy();
        }
        let (first, second) = (w.pair(ReliableDelivery), w.pair(ReliableDelivery));
        let message = bytes(9, LONG_MESSAGE);
        let [buffer, place] = [&mut w.a, &mut w.b].map(|node| node.register_local(message.clone()));
        w.b.post_recv(first.1, Descriptor::recv(place)).unwrap();
        w.b.post_recvs(second.1, 1, 16);
        w.a.post_send(first.0, Descriptor::send(buffer)).unwrap();
        let (a, b) = (&mut w.a, &mut w.b);
        thread::scope(|scope| {
            scope.spawn(move || {
                assert_eq!(b.wait_recv(second.1, LONG).unwrap().data(), b"it is out");
                assert_same(&b.wait_recv(first.1, LONG).unwrap().data(), &message);
            });
            a.wait_send(first.0, LONG).unwrap();
            a.send(second.0, b"it is out");
            a.wait_send(second.0, LONG).unwrap();
        });
    }
}

/// Of messages to another VI those stay where they are for which no receive is posted yet: the program may post one before it
/// looks.
pub fn a_wait_leaves_early_messages_of_other_vis(mut w: World) {
    w.sleepy();
    let (first, second) = (w.pair(ReliableDelivery), w.pair(ReliableDelivery));
    w.b.post_recvs(first.1, 1, 8);
    w.b.post_recvs(second.1, 1, 8);
    for text in [b"one", b"two"] {
        w.a.send(first.0, text);
        drop(until("the send", || w.a.poll_send(first.0).unwrap()));
    }
    assert!(matches!(w.b.wait_recv(second.1, SHORT), Err(Error::Timeout)));
    assert_eq!(w.b.wait_recv(first.1, LONG).unwrap().data(), b"one");
    assert!(matches!(w.b.wait_recv(second.1, SHORT), Err(Error::Timeout)));
    w.b.post_recvs(first.1, 1, 8);
    assert_eq!(w.b.wait_recv(first.1, LONG).unwrap().data(), b"two");
}

/// The pollable descriptor is quiet while nothing happens, tells when something does, and is quiet again.
pub fn the_descriptor_tells(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    let readable = |w: &World| {
        let fd = w.b.fd().unwrap();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&now)).unwrap() == 1
    };
    for n in 0..5 {
        w.b.post_recvs(vb, 1, 8);
        w.b.arm().unwrap();
        assert!(w.b.poll_recv(vb).unwrap().is_none() && !readable(&w));
        w.a.send(va, &[n]);
        drop(until("the send", || w.a.poll_send(va).unwrap()));
        until("the descriptor", || readable(&w).then_some(()));
        w.b.disarm();
        assert!(!readable(&w));
        assert_eq!(w.received(vb).data(), [n]);
    }
    // Without having been armed it says nothing; a look finds the message anyway.
    w.b.post_recvs(vb, 1, 8);
    w.a.send(va, b"unarmed");
    assert_eq!(w.received(vb).data(), b"unarmed");
    assert!(!readable(&w));
}

/// One look after arming is enough: if it finds nothing, sleeping is safe, also when a message in many pieces was all
/// there before and no thread has a reason to ring.
pub fn one_look_after_arming_is_enough(mut w: World) {
    for level in [Reliability::Unreliable, ReliableDelivery] {
        let (va, vb) = w.pair(level);
        for len in [1usize, 100, 5000, 200_000, 1 << 20] {
            w.b.post_recv(vb, Descriptor::recv(Buffer::from(vec![0; len]))).unwrap();
            w.a.post_send(va, Descriptor::send(Buffer::from(bytes(len as u64, len)))).unwrap();
            // Without the receiver, as far as that goes.
            let done = (0..10_000).any(|_| w.a.poll_send(va).unwrap().is_some());
            if !done {
                drop((w.received(vb), w.sent(va)));
                continue;
            }
            let got = loop {
                w.b.arm().unwrap();
                if let Some(got) = w.b.poll_recv(vb).unwrap() {
                    break got;
                }
                let mut fds = [PollFd::from_borrowed_fd(w.b.fd().unwrap(), PollFlags::IN)];
                let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
                assert_ne!(poll(&mut fds, Some(&limit)), Ok(0), "slept over {len} bytes at {level:?}");
                w.b.disarm();
            };
            w.b.disarm();
            assert_same(&got.data(), &bytes(len as u64, len));
        }
    }
}

/// Recalled: Waiting on a queue that reports to a completion queue is refused.
pub fn a_bound_queue_is_not_waited_on(mut w: World) {
    let cq = w.a.create_cq(8).unwrap();
    let mut attributes = w.a.vi_attributes(ReliableDelivery);
    attributes.recv_cq = Some(cq);
    let vi = w.a.vi_with(attributes);
    w.a.post_recvs(vi, 1, 8);
    assert!(matches!(w.a.wait_recv_outcome(vi, LONG), Err(Error::BoundToCq)));
    w.a.send(vi, b"flushed");
    assert_eq!(
        w.a.wait_send_outcome(vi, LONG).unwrap().status(),
        Status::Flushed,
        "the other queue is not bound"
    );
}
