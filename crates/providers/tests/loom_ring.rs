//! Models of the ring (`src/shm/ring.rs`, the real source): whatever the interleaving, every message arrives once, in
//! order and whole, and room is used again only after the consumer is done with it.
//!
//! Beside each entry lies a word of plain memory that its producer writes before it puts the entry and its consumer
//! reads before it says that the entry is used up. It stands for what travels with a message outside of the ring (a
//! pushed payload), and lets loom see a missing order that the relaxed words of the ring would hide.
#![cfg(loom)]

mod model;

#[path = "../src/shm/ring.rs"]
#[allow(dead_code)]
mod ring;

use std::sync::Arc;

use model::{Plain, Without, check, check_without, sync, thread};
use ring::{Consumer, FIRST_WORDS, HAS_IMMEDIATE, Head, Kind, Producer, Slot, entries_for, fresh};

/// What a side does wrong, if anything.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The producer does not ask for room.
    Careless,
    /// The consumer gives room back before it has read the entry.
    Early,
}

struct Shared {
    slots: Arc<[Slot]>,
    consumed: sync::AtomicU64,
    plain: Vec<Plain>,
}

/// Words of a message that has its own path, of one that fills an entry in part, and of one that needs two entries.
const ONE: usize = 1;
const FEW: usize = 2;
const TWO: usize = FIRST_WORDS + 1;

/// Every other message has immediate data, and so cannot go the shortest way.
fn flags(n: usize) -> u8 {
    if n.is_multiple_of(2) { HAS_IMMEDIATE } else { 0 }
}

fn payload(n: usize, words: usize) -> Vec<u64> {
    (0..words).map(|i| (n as u64 + 1) << 8 | i as u64).collect()
}

fn produce(shared: &Shared, sizes: &[usize], fault: Fault) {
    let mut tx = Producer::new(shared.slots.clone());
    let mut at = 0;
    for (n, &words) in sizes.iter().enumerate() {
        let entries = entries_for(words);
        while fault != Fault::Careless && !tx.room(entries, &shared.consumed).unwrap() {
            thread::yield_now();
        }
        for entry in 0..entries as usize {
            shared.plain[(at + entry) % shared.slots.len()].write(n as u64);
        }
        at += entries as usize;
        let (len, payload) = (words as u32 * 8, payload(n, words));
        match payload[..] {
            [only] => tx.put_word(flags(n), len, n as u32, only),
            _ => tx.put(Head { kind: Kind::Inline, flags: HAS_IMMEDIATE, len }, n as u32, 0, &payload),
        }
    }
}

fn consume(shared: &Shared, sizes: &[usize], fault: Fault) {
    let mut rx = Consumer::new(shared.slots.clone());
    let mut at = 0;
    for (n, &words) in sizes.iter().enumerate() {
        let shortest = words == ONE && flags(n) == 0;
        while if shortest { rx.full_word().is_none() } else { rx.ready(1) == 0 } {
            thread::yield_now();
        }
        let head = rx.peek().unwrap().expect("said to be there");
        assert_eq!(head.len as usize, words * 8, "message {n} has its length");
        if fault == Fault::Early {
            shared.consumed.store((at + entries_for(words) as usize) as u64, sync::Ordering::Release);
        }
        for entry in 0..entries_for(words) as usize {
            assert_eq!(shared.plain[(at + entry) % shared.slots.len()].read(), n as u64);
        }
        at += entries_for(words) as usize;
        let mut got = vec![0; words];
        match &mut got[..] {
            [only] => *only = rx.word(),
            _ => rx.words(&mut got),
        }
        assert_eq!(got, payload(n, words), "message {n} is whole");
        if !shortest {
            assert_eq!(rx.numbers(), (n as u32, 0));
        }
        rx.pop(words);
        if fault != Fault::Early {
            rx.tell(&shared.consumed, true);
        }
    }
    assert!(rx.peek().unwrap().is_none(), "nothing arrives twice");
}

fn exchange(slots: usize, sizes: &'static [usize], fault: Fault) {
    let shared = Arc::new(Shared {
        slots: fresh(slots).into(),
        consumed: sync::AtomicU64::credit(),
        plain: (0..slots).map(|_| Plain::new(u64::MAX)).collect(),
    });
    let theirs = shared.clone();
    let producer = thread::spawn(move || produce(&theirs, sizes, fault));
    consume(&shared, sizes, fault);
    producer.join().unwrap();
}

const AROUND: &[usize] = &[ONE, ONE, ONE, ONE, ONE];

#[test]
fn small_messages_arrive_around_a_ring_of_two() {
    check(|| exchange(2, AROUND, Fault::None));
}

#[test]
fn messages_of_two_entries_arrive_around_a_ring_of_two() {
    check(|| exchange(2, &[TWO, TWO, TWO], Fault::None));
}

#[test]
fn mixed_messages_arrive_around_a_ring_of_four() {
    check(|| exchange(4, &[ONE, TWO, TWO, FEW, TWO], Fault::None));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_head_stored_without_release_is_noticed() {
    check_without(Without::Release, || exchange(2, AROUND, Fault::None));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_head_loaded_without_acquire_is_noticed() {
    check_without(Without::Acquire, || exchange(2, AROUND, Fault::None));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn credits_stored_without_release_are_noticed() {
    check_without(Without::CreditRelease, || exchange(2, AROUND, Fault::None));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn credits_loaded_without_acquire_are_noticed() {
    check_without(Without::CreditAcquire, || exchange(2, AROUND, Fault::None));
}

#[test]
#[should_panic]
fn a_producer_that_does_not_ask_for_room_is_noticed() {
    check(|| exchange(2, AROUND, Fault::Careless));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn room_given_back_before_the_entry_was_read_is_noticed() {
    check(|| exchange(2, AROUND, Fault::Early));
}
