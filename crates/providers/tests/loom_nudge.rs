//! Models of a nudge: one end writes into the other's memory (RDMA: the bytes, then the last word with release) and then looks
//! whether the bell (`crates/os/src/bell.rs`, the real source) has a sleeper; the other end waits for its memory to change.
//! A wake-up that is lost is a deadlock, which loom reports.
#![cfg(loom)]

mod model;

#[path = "../../os/src/bell.rs"]
#[allow(dead_code, unreachable_pub)]
mod bell;

use std::sync::Arc;

use bell::{BellWord, FUTEX};
use model::{Plain, Without, barrier, check, check_without, eventfd, futex, sync, thread, wait};

/// The memory of one end that the other end writes into, and the bell of its NIC.
struct End {
    bell: BellWord,
    bytes: Plain,
    last: sync::AtomicU64,
}

impl End {
    fn fresh() -> End {
        let end = End { bell: BellWord::new(), bytes: Plain::new(0), last: sync::AtomicU64::new(0) };
        // loom gets to know the words here, before there is a second thread.
        assert!(end.bell.is_awake() && end.bell.wakes() == 0 && end.last.load(sync::Ordering::Relaxed) == 0);
        end
    }

    /// An RDMA write by the peer.
    fn write(&self, value: u64) {
        self.bytes.write(value);
        self.last.store(value, sync::Ordering::Release);
    }

    /// `Endpoint::nudge` of the peer: a light barrier, then the look.
    fn nudge(&self) {
        self.bell.ring(None);
    }

    /// `Nic::wait_for`: announce, look again, park.
    fn wait_for(&self, value: u64) {
        let there = || self.last.load(sync::Ordering::Acquire) >= value;
        while !there() {
            let ticket = self.bell.announce(FUTEX);
            if !there() {
                self.bell.park(ticket, None);
            }
            self.bell.disarm(FUTEX);
        }
    }
}

/// A write and a nudge, in this order or the other.
fn one_write(nudged_after: bool) {
    let end = Arc::new(End::fresh());
    let theirs = end.clone();
    let writer = thread::spawn(move || {
        if nudged_after {
            theirs.write(1);
            theirs.nudge();
        } else {
            theirs.nudge();
            theirs.write(1);
        }
    });
    end.wait_for(1);
    assert_eq!(end.bytes.read(), 1, "all bytes are there when the last word is");
    writer.join().unwrap();
}

/// Both ends wait for each other in turn, as a barrier of two does.
fn back_and_forth() {
    let ends = Arc::new([End::fresh(), End::fresh()]);
    let theirs = ends.clone();
    let other = thread::spawn(move || {
        theirs[1].wait_for(1);
        theirs[0].write(1);
        theirs[0].nudge();
    });
    ends[1].write(1);
    ends[1].nudge();
    ends[0].wait_for(1);
    assert_eq!(ends[0].bytes.read(), 1);
    other.join().unwrap();
}

/// Two peers write, each its own word, and nudge; the owner waits for both.
fn two_writers() {
    let shared = Arc::new((End::fresh(), [sync::AtomicU64::new(0), sync::AtomicU64::new(0)]));
    let writers = [0, 1].map(|peer| {
        let shared = shared.clone();
        thread::spawn(move || {
            shared.1[peer].store(1, sync::Ordering::Release);
            shared.0.nudge();
        })
    });
    let there = || shared.1.iter().all(|word| word.load(sync::Ordering::Acquire) == 1);
    while !there() {
        let ticket = shared.0.bell.announce(FUTEX);
        if !there() {
            shared.0.bell.park(ticket, None);
        }
        shared.0.bell.disarm(FUTEX);
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}

#[test]
fn a_write_followed_by_a_nudge_is_not_slept_over() {
    check(|| one_write(true));
}

#[test]
fn two_ends_that_nudge_each_other_both_wake() {
    check(back_and_forth);
}

#[test]
fn nudges_of_two_peers_are_both_seen() {
    check(two_writers);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_nudge_before_the_write_is_noticed() {
    check(|| one_write(false));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_nudge_without_barrier_is_noticed() {
    check_without(Without::Light, || one_write(true));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_sleeper_without_barrier_is_noticed() {
    check_without(Without::Heavy, || one_write(true));
}

#[test]
#[should_panic]
fn a_last_word_without_release_is_noticed() {
    check_without(Without::Release, || one_write(true));
}
