//! Models of the bell (`crates/os/src/bell.rs`, the real source, over a model of the futex): the hand-off between an owner
//! that is about to sleep and a peer that has just published loses no wake-up. A lost one is a deadlock, which loom reports.
#![cfg(loom)]

mod model;

#[path = "../../os/src/bell.rs"]
#[allow(dead_code, unreachable_pub)]
mod bell;

use std::os::fd::AsFd;
use std::sync::Arc;

use bell::{BellWord, FD, FUTEX};
use model::eventfd::Event;
use model::{Without, barrier, check, check_without, eventfd, futex, sync, thread, wait};

struct Shared {
    bell: BellWord,
    data: sync::AtomicU64,
}

fn fresh() -> Arc<Shared> {
    let shared = Shared { bell: BellWord::new(), data: sync::AtomicU64::new(0) };
    // loom gets to know the words here, before there is a second thread.
    assert!(shared.bell.is_awake() && shared.bell.wakes() == 0);
    Arc::new(shared)
}

fn publish(shared: &Shared, value: u64, fd: bool) {
    shared.data.store(value, sync::Ordering::Release);
    let stdin = std::io::stdin();
    shared.bell.ring(fd.then_some(stdin.as_fd()));
}

/// Waits as `os::wait` does: announce, look again, park.
fn sleep_until(shared: &Shared, value: u64, look_again: bool) {
    let there = || shared.data.load(sync::Ordering::Acquire) >= value;
    while !there() {
        let ticket = shared.bell.announce(FUTEX);
        if look_again && there() {
            shared.bell.disarm(FUTEX);
            return;
        }
        shared.bell.park(ticket, None);
        shared.bell.disarm(FUTEX);
    }
}

/// The sleeper waits for two messages, one after the other, so that it also announces itself anew after a wake-up.
fn two_messages(look_again: bool) {
    let shared = fresh();
    let theirs = shared.clone();
    let ringer = thread::spawn(move || {
        publish(&theirs, 1, false);
        publish(&theirs, 2, false);
    });
    sleep_until(&shared, 1, look_again);
    sleep_until(&shared, 2, look_again);
    ringer.join().unwrap();
}

/// Two peers ring one bell.
fn two_ringers() {
    let shared = Arc::new((fresh(), [sync::AtomicU64::new(0), sync::AtomicU64::new(0)]));
    let ringers = [0, 1].map(|peer| {
        let shared = shared.clone();
        thread::spawn(move || {
            shared.1[peer].store(1, sync::Ordering::Release);
            shared.0.bell.ring(None);
        })
    });
    let there = || shared.1.iter().all(|data| data.load(sync::Ordering::Acquire) == 1);
    while !there() {
        let ticket = shared.0.bell.announce(FUTEX);
        if !there() {
            shared.0.bell.park(ticket, None);
        }
        shared.0.bell.disarm(FUTEX);
    }
    ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
}

/// One thread parks on the word, another one sleeps in epoll on the descriptor; one message wakes both.
fn both_ways() {
    let (shared, event) = (fresh(), Event::install());
    let theirs = shared.clone();
    let ringer = thread::spawn(move || publish(&theirs, 1, true));
    let theirs = shared.clone();
    let parked = thread::spawn(move || sleep_until(&theirs, 1, true));
    let there = || shared.data.load(sync::Ordering::Acquire) == 1;
    if !there() {
        shared.bell.announce(FD);
        if !there() {
            event.wait();
            assert!(there(), "the descriptor is readable only after the message");
        }
        shared.bell.disarm(FD);
    }
    ringer.join().unwrap();
    parked.join().unwrap();
}

#[test]
fn no_wake_up_is_lost() {
    check(|| two_messages(true));
}

#[test]
fn no_wake_up_is_lost_with_two_ringers() {
    check(two_ringers);
}

#[test]
fn no_wake_up_is_lost_with_a_sleeper_on_the_word_and_one_on_the_descriptor() {
    check(both_ways);
}

#[test]
#[should_panic(expected = "deadlock")]
fn sleeping_without_a_second_look_is_noticed() {
    check(|| two_messages(false));
}

#[test]
#[should_panic(expected = "deadlock")]
fn announcing_without_barrier_is_noticed() {
    check_without(Without::Heavy, || two_messages(true));
}

#[test]
#[should_panic(expected = "deadlock")]
fn ringing_without_barrier_is_noticed() {
    check_without(Without::Light, || two_messages(true));
}
