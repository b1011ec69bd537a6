//! Waking a peer whose memory has changed (beyond VIA): a nudge wakes every kind of wait, and carries nothing.

use std::sync::atomic::Ordering;
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use viaduct_via::Reliability::ReliableDelivery;
use viaduct_via::{Descriptor, Error, Queue, RemoteAddress, Status, Vi, ViState};

use crate::world::{LONG, Node, SHORT, World, until};

/// Writes a word into the peer's memory, waits until it is there, and nudges.
fn write(node: &mut Node, vi: Vi, to: RemoteAddress, value: u64) {
    let word = node.message(&value.to_ne_bytes());
    node.post_send(vi, Descriptor::rdma_write(word, to)).unwrap();
    assert_eq!(node.wait_send_outcome(vi, LONG).unwrap().status(), Status::Success);
    node.nudge(vi).unwrap();
}

/// Two processes take turns by writing into each other's memory. Both sleep while they wait, so that a nudge that is lost is
/// a hang.
pub fn nudges_lose_no_wake_up(mut w: World) {
    w.sleepy();
    let (va, vb) = w.pair(ReliableDelivery);
    let (at_a, at_b) = (w.a.window(8), w.b.window(8));
    let (a, b) = (&mut w.a, &mut w.b);
    let rounds = 100;
    let wait = |node: &mut Node, word: &viaduct_via::Buffer, value: u64| {
        node.wait_for(LONG, |_| (word.word(0).load(Ordering::Acquire) == value).then_some(())).unwrap();
    };
    thread::scope(|scope| {
        let (to_a, at_b, to_b) = (at_a.remote(0), &at_b, at_b.remote(0));
        scope.spawn(move || {
            for round in 1..=rounds {
                wait(b, at_b, round);
                write(b, vb, to_a, round);
            }
        });
        for round in 1..=rounds {
            write(a, va, to_b, round);
            wait(a, &at_a, round);
        }
    });
}

/// A pollable descriptor that is armed becomes readable.
pub fn a_nudge_makes_the_descriptor_readable(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    let readable = |w: &World| {
        let fd = w.b.fd().unwrap();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&now)).unwrap() == 1
    };
    for _ in 0..5 {
        w.b.arm().unwrap();
        assert!(w.b.poll_recv(vb).unwrap().is_none() && !readable(&w));
        w.a.nudge(va).unwrap();
        until("the descriptor", || readable(&w).then_some(()));
        w.b.disarm();
    }
}

/// Any number of nudges uses up no receive, brings no completion and stops no message.
pub fn a_nudge_carries_nothing(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    w.b.post_recvs(vb, 2, 8);
    for round in 0..2u8 {
        (0..3000).for_each(|_| w.a.nudge(va).unwrap());
        assert!(w.a.drain(va, Queue::Send).is_empty() && w.b.drain(vb, Queue::Receive).is_empty());
        w.a.send(va, &[round]);
        assert_eq!(w.received(vb).data(), [round]);
        assert_eq!(w.sent(va).status, Status::Success);
    }
    assert_eq!((w.a.state(va), w.b.state(vb)), (ViState::Connected, ViState::Connected));
}

/// A wait for memory that does not change ends with its time; one whose connection ends looks again.
pub fn waiting_for_memory_ends(mut w: World) {
    w.sleepy();
    let (va, vb) = w.pair(ReliableDelivery);
    let nothing = w.b.wait_for(SHORT, |_| None::<()>);
    assert!(matches!(nothing, Err(Error::Timeout)));
    assert_eq!(w.b.wait_for(None, |_| Some(7)).unwrap(), 7);
    let (a, b) = (&mut w.a, &mut w.b);
    thread::scope(|scope| {
        scope.spawn(move || {
            let ended =
                b.wait_for(LONG, |nic| (nic.query_vi(vb).unwrap().state == ViState::Error).then_some(()));
            ended.unwrap();
        });
        thread::sleep(std::time::Duration::from_millis(20));
        a.disconnect(va).unwrap();
    });
    assert!(matches!(w.b.nudge(vb), Err(Error::InvalidState { .. })));
}
