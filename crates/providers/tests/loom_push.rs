//! Models of copies against closing: a sender that pushes into a receive buffer, and a receiver that pulls out of a send
//! buffer, while the owner of the buffer closes the connection and uses the buffer again.
//!
//! `ShmVi` cannot be had without a kernel; what follows are the steps of `enter_copy`, `leave_copy` and `close`
//! (`src/shm/send.rs`), `wait_while_busy` (`src/shm/nic.rs`) and `pull` (`src/shm/progress.rs`), in their order and with
//! their orderings. Keep them in step.
#![cfg(loom)]

mod model;

use std::sync::Arc;

use model::sync::{AtomicU32, AtomicU64, Ordering, fence};
use model::{Plain, Without, barrier, check, check_without, thread};

/// The words of a direction that matter here, and the buffer.
struct Shared {
    /// `TxLine::busy`, written by the sender.
    busy: AtomicU32,
    /// `TxLine::closed`, written by the sender.
    sender_closed: AtomicU32,
    /// `FlagLine::closed`, written by the receiver.
    receiver_closed: AtomicU32,
    /// The receive buffer, which only one side may touch at a time.
    buffer: Plain,
    /// The send buffer, read by the receiver while its owner may write: two words, so that a copy may tear.
    source: [AtomicU64; 2],
}

fn fresh() -> Arc<Shared> {
    let shared = Shared {
        busy: AtomicU32::new(0),
        sender_closed: AtomicU32::new(0),
        receiver_closed: AtomicU32::new(0),
        buffer: Plain::new(0),
        source: [AtomicU64::new(1), AtomicU64::new(1)],
    };
    for word in [&shared.busy, &shared.sender_closed, &shared.receiver_closed] {
        word.load(Ordering::Relaxed);
    }
    Arc::new(shared)
}

/// `ShmVi::push`: says that it copies, looks whether it may, copies, says that it is done.
fn push(shared: &Shared, busy: &mut u32, look: bool) -> bool {
    *busy += 1;
    // Release, because a closer that waits for one copy to end may see the beginning of the next.
    shared.busy.store(*busy, Ordering::Release);
    barrier::light();
    let open = !look || shared.receiver_closed.load(Ordering::Acquire) == 0;
    if open {
        shared.buffer.write(u64::from(*busy));
    }
    *busy += 1;
    shared.busy.store(*busy, Ordering::Release);
    open
}

/// `ShmVi::close` of the receiver, up to where the buffer is its owner's again.
fn close(shared: &Shared, wait: bool) {
    shared.receiver_closed.store(1, Ordering::Release);
    barrier::heavy();
    let seen = shared.busy.load(Ordering::Acquire);
    if seen.is_multiple_of(2) || !wait {
        return;
    }
    while shared.busy.load(Ordering::Acquire) == seen {
        thread::yield_now();
    }
}

/// Two messages are pushed while the receiver closes and uses its buffer again.
fn push_against_close(look: bool, wait: bool) {
    let shared = fresh();
    let theirs = shared.clone();
    let sender = thread::spawn(move || {
        let mut busy = 0;
        let _ = push(&theirs, &mut busy, look) && push(&theirs, &mut busy, look);
    });
    close(&shared, wait);
    shared.buffer.write(99);
    assert_eq!(shared.buffer.read(), 99);
    sender.join().unwrap();
    assert_eq!(shared.buffer.read(), 99, "no peer wrote after the buffer was used again");
}

/// The receiver fetches a message out of the user's buffer (`USERS`) while the sender closes and gives it back.
fn pull_against_close(look: bool) {
    let shared = fresh();
    let theirs = shared.clone();
    let sender = thread::spawn(move || {
        theirs.sender_closed.store(1, Ordering::Release);
        barrier::heavy();
        theirs.source.iter().for_each(|word| word.store(2, Ordering::Relaxed));
    });
    let copied = [0, 1].map(|i| shared.source[i].load(Ordering::Relaxed));
    fence(Ordering::Acquire);
    let discarded = look && shared.sender_closed.load(Ordering::Acquire) != 0;
    assert!(discarded || copied == [1, 1], "delivered what the sender wrote after it had closed: {copied:?}");
    sender.join().unwrap();
}

#[test]
fn nothing_is_pushed_into_a_buffer_that_is_in_use_again() {
    check(|| push_against_close(true, true));
}

#[test]
fn pulled_bytes_are_those_that_were_sent_or_are_discarded() {
    check(|| pull_against_close(true));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn pushing_without_a_look_is_noticed() {
    check(|| push_against_close(false, true));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn closing_without_waiting_is_noticed() {
    check(|| push_against_close(true, false));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn pushing_without_barrier_is_noticed() {
    check_without(Without::Light, || push_against_close(true, true));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn closing_without_barrier_is_noticed() {
    check_without(Without::Heavy, || push_against_close(true, true));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn leaving_a_copy_without_release_is_noticed() {
    check_without(Without::Release, || push_against_close(true, true));
}

#[test]
#[should_panic(expected = "delivered what the sender wrote")]
fn pulling_without_a_second_look_is_noticed() {
    check(|| pull_against_close(false));
}

#[test]
#[should_panic(expected = "delivered what the sender wrote")]
fn pulling_without_fence_is_noticed() {
    check_without(Without::Fences, || pull_against_close(true));
}

#[test]
#[should_panic(expected = "delivered what the sender wrote")]
fn giving_a_buffer_back_without_barrier_is_noticed() {
    check_without(Without::Heavy, || pull_against_close(true));
}
