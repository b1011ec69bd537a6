//! Models of a sender that sleeps until the ring has room: it says so in `waiting`, and the receiver wakes it when it
//! gives entries back. Ring and bell are the real sources; between them stand the steps of `ShmVi::room`, `set_waiting`
//! and `hear_of_sends` of the sender, `after_taking` of the receiver (`src/shm/vi.rs`, `progress.rs`) and
//! `WaitPolicy::sleep` (`crates/os/src/wait.rs`). Keep them in step.
//!
//! [`RIGHT`] is what the code does; the tests that should panic show what comes of doing otherwise.
#![cfg(loom)]

mod model;

#[path = "../../os/src/bell.rs"]
#[allow(dead_code, unreachable_pub)]
mod bell;
#[path = "../src/shm/ring.rs"]
#[allow(dead_code)]
mod ring;

use std::sync::Arc;

use bell::{BellWord, FUTEX};
use model::{Without, barrier, check, check_without, eventfd, futex, sync, thread, wait};
use ring::{Consumer, Head, Kind, Producer, Slot, fresh};
use sync::{AtomicU32, AtomicU64, Ordering};

struct Shared {
    slots: Arc<[Slot]>,
    /// `CountLine::consumed`, written by the receiver.
    consumed: AtomicU64,
    /// `TxLine::waiting`, written by the sender.
    waiting: AtomicU32,
    /// The sender's.
    bell: BellWord,
}

/// What the two sides do right. All of it is needed.
#[derive(Clone, Copy)]
struct Rules {
    /// A receiver that gave entries back looks whether anybody waits for them,
    look: bool,
    /// after it gave them back, and after a barrier.
    tell_first: bool,
    /// The sender leaves its flag up while it waits for room.
    keep: bool,
    /// A sender that raised its flag after the announcement rings its own bell, so that it announces itself again before
    /// it sleeps.
    again: bool,
}

const RIGHT: Rules = Rules { look: true, tell_first: true, keep: true, again: true };

struct Sender {
    shared: Arc<Shared>,
    rules: Rules,
    tx: Producer<Arc<[Slot]>>,
    left: usize,
    /// Polls in which something else (a fence, an RDMA operation) holds back what is to be sent.
    held: usize,
    waiting: bool,
    starved: bool,
    announced: bool,
}

impl Sender {
    fn put(&mut self) {
        self.tx.put(Head { kind: Kind::Inline, flags: 0, len: 0 }, 0, 0, &[]);
    }

    fn room(&mut self) -> bool {
        let asks = |tx: &mut Producer<_>, shared: &Shared| tx.room(1, &shared.consumed).unwrap();
        let mut room = asks(&mut self.tx, &self.shared);
        if !room {
            if !self.waiting {
                self.waiting = true;
                self.shared.waiting.store(1, Ordering::Relaxed);
                if self.rules.again && self.announced {
                    self.shared.bell.ring(None);
                }
            }
            room = asks(&mut self.tx, &self.shared);
        }
        self.starved = !room;
        room
    }

    /// `ShmVi::progress`, as far as sends go, then `ViCore::pump`. Whether everything was sent.
    fn poll(&mut self) -> bool {
        let lower = !(self.rules.keep && self.starved) || self.tx.room(1, &self.shared.consumed).unwrap();
        if self.waiting && lower {
            (self.waiting, self.starved) = (false, false);
            self.shared.waiting.store(0, Ordering::Relaxed);
        }
        if self.held > 0 {
            self.held -= 1;
            return false;
        }
        while self.left > 0 && self.room() {
            self.put();
            self.left -= 1;
        }
        self.left == 0
    }

    fn wait(&mut self) {
        let shared = self.shared.clone();
        if self.poll() {
            return;
        }
        loop {
            self.announced = true;
            let ticket = shared.bell.announce(FUTEX);
            let sent = self.poll();
            if !sent {
                shared.bell.park(ticket, None);
            }
            self.announced = false;
            shared.bell.disarm(FUTEX);
            if sent || self.poll() {
                return;
            }
        }
    }
}

/// Takes what is in the ring until `messages` have come, as `ShmVi::progress` does, and does nothing ever after.
fn receive(shared: &Shared, messages: usize, rules: Rules) {
    let mut rx = Consumer::new(shared.slots.clone());
    let mut received = 0;
    while received < messages {
        while rx.peek().unwrap().is_some() {
            rx.pop(0);
            received += 1;
        }
        let waits = || rules.look && shared.waiting.load(Ordering::Relaxed) != 0;
        if rules.tell_first {
            rx.tell(&shared.consumed, false);
            barrier::light();
            if waits() {
                rx.tell(&shared.consumed, true);
                shared.bell.ring(None);
            }
        } else {
            let waiting = waits();
            rx.tell(&shared.consumed, waiting);
            if waiting {
                shared.bell.ring(None);
            }
        }
    }
}

/// The ring is full; one more message is sent as soon as it is not, and `held` polls later at the earliest.
fn full_ring(rules: Rules, held: usize) {
    let shared = Shared {
        slots: fresh(2).into(),
        consumed: AtomicU64::new(0),
        waiting: AtomicU32::new(0),
        bell: BellWord::new(),
    };
    // loom gets to know the words here, before there is a second thread.
    assert!(shared.bell.is_awake() && shared.bell.wakes() == 0);
    assert_eq!(shared.waiting.load(Ordering::Relaxed), 0);
    let shared = Arc::new(shared);
    let tx = Producer::new(shared.slots.clone());
    let (waiting, starved, announced) = (false, false, false);
    let mut sender = Sender { shared: shared.clone(), rules, tx, left: 1, held, waiting, starved, announced };
    sender.put();
    sender.put();
    let receiver = thread::spawn(move || receive(&shared, 2, rules));
    sender.wait();
    receiver.join().unwrap();
}

#[test]
fn a_sender_that_waits_for_room_is_woken() {
    check(|| full_ring(RIGHT, 0));
}

#[test]
fn a_sender_that_starts_to_wait_just_before_it_sleeps_is_woken() {
    check(|| full_ring(RIGHT, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn giving_room_back_without_a_look_is_noticed() {
    check(|| full_ring(Rules { look: false, ..RIGHT }, 0));
}

#[test]
#[should_panic(expected = "deadlock")]
fn looking_for_waiters_before_giving_room_back_is_noticed() {
    check(|| full_ring(Rules { tell_first: false, ..RIGHT }, 0));
}

#[test]
#[should_panic(expected = "deadlock")]
fn lowering_the_flag_while_waiting_is_noticed() {
    check(|| full_ring(Rules { keep: false, again: false, ..RIGHT }, 0));
}

#[test]
#[should_panic(expected = "deadlock")]
fn sleeping_on_a_flag_raised_after_the_barrier_is_noticed() {
    check(|| full_ring(Rules { again: false, ..RIGHT }, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn giving_room_back_without_barrier_is_noticed() {
    check_without(Without::Light, || full_ring(RIGHT, 0));
}

#[test]
#[should_panic(expected = "deadlock")]
fn announcing_without_barrier_is_noticed() {
    check_without(Without::Heavy, || full_ring(RIGHT, 0));
}
