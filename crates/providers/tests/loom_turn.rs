//! Models of the lock that one thread owns (`crates/os/src/turn.rs`, the real source): whatever the owner and any thread that takes
//! the ownership do at the same time, one of them is inside at a time, and sees what the other did.
#![cfg(loom)]

mod model;

#[path = "../../os/src/turn.rs"]
#[allow(dead_code, unreachable_pub)]
mod turn;

use std::sync::Arc;

use model::{Plain, Without, barrier, check, check_without, sync, thread};
use turn::Turn;

/// Two more by one thread. loom sees if another thread is inside.
fn count(turn: &Turn<Plain>, by_guard: bool) {
    let more = |value: &mut Plain| value.write(value.read() + 1);
    if by_guard {
        more(&mut turn.enter());
    } else {
        turn.with(more);
    }
    turn.with(more);
}

/// The owner comes again while another thread takes the ownership.
fn taken_from_an_owner(by_guard: bool) {
    let turn = Arc::new(Turn::new(Plain::new(0)));
    turn.with(|value| value.write(1));
    let theirs = turn.clone();
    let other = thread::spawn(move || count(&theirs, by_guard));
    count(&turn, by_guard);
    other.join().unwrap();
    turn.with(|value| assert_eq!(value.read(), 5));
}

/// Two threads want to have what a third one owns.
fn taken_twice() {
    let turn = Arc::new(Turn::new(Plain::new(0)));
    turn.with(|value| value.write(1));
    let others = [0, 1].map(|_| {
        let turn = turn.clone();
        thread::spawn(move || turn.with(|value| value.write(value.read() + 1)))
    });
    turn.with(|value| value.write(value.read() + 1));
    others.into_iter().for_each(|other| other.join().unwrap());
    turn.with(|value| assert_eq!(value.read(), 4));
}

#[test]
fn an_owner_and_a_thread_that_takes_over_are_never_inside_together() {
    check(|| taken_from_an_owner(false));
}

#[test]
fn guards_do_the_same() {
    check(|| taken_from_an_owner(true));
}

#[test]
fn two_threads_that_take_over_do_so_one_after_the_other() {
    check(taken_twice);
}

#[test]
#[should_panic]
fn without_the_barrier_of_the_thread_that_takes_over_both_are_inside() {
    check_without(Without::Heavy, || taken_from_an_owner(false));
}

#[test]
#[should_panic]
fn without_the_barrier_of_the_owner_both_are_inside() {
    check_without(Without::Light, || taken_from_an_owner(false));
}

#[test]
#[should_panic]
fn without_release_what_the_owner_did_is_not_seen() {
    check_without(Without::Release, || taken_from_an_owner(false));
}

#[test]
#[should_panic]
fn without_acquire_what_the_owner_did_is_not_seen() {
    check_without(Without::Acquire, || taken_from_an_owner(false));
}
