//! Models of the doorbells (`src/shm/doorbell.rs`, the real source): no bit is lost when VIs ring while the NIC takes,
//! and the thread that takes a bit sees the message it tells of.
#![cfg(loom)]

mod model;

#[path = "../src/shm/doorbell.rs"]
mod doorbell;

use std::sync::Arc;

use doorbell::{BITS, Doorbells};
use model::{Plain, Without, check, check_without, sync, thread};

struct Shared {
    bells: Doorbells,
    messages: [Plain; 2],
}

/// Two peers, each with a message of its own, ring for `vis`; the NIC takes meanwhile and once more at the end.
fn two_ring(vis: [u32; 2]) {
    let shared = Arc::new(Shared { bells: Doorbells::fresh(), messages: [Plain::new(0), Plain::new(0)] });
    let ringers = [0, 1].map(|peer| {
        let shared = shared.clone();
        thread::spawn(move || {
            shared.messages[peer].write(7 + peer as u64);
            shared.bells.ring(vis[peer]);
        })
    });
    let mut taken = [0; 2];
    let mut take = || {
        shared.bells.take(|bit| {
            for peer in (0..2).filter(|peer| vis[*peer] % BITS == bit) {
                taken[peer] += 1;
                // Where two VIs share a bit, it may be the other one's.
                if vis[0] % BITS != vis[1] % BITS {
                    assert_eq!(shared.messages[peer].read(), 7 + peer as u64);
                }
            }
        });
    };
    take();
    take();
    ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
    take();
    let shares = vis[0] % BITS == vis[1] % BITS;
    assert!(taken.iter().all(|n| *n == 1 || (shares && *n == 2)), "lost or doubled: {taken:?}");
}

/// One peer rings again and again; after each time the bit is there to be taken, with what was written before.
fn one_rings_often(vi: u32) {
    let shared = Arc::new((Doorbells::fresh(), sync::AtomicU64::new(0)));
    let ringer = {
        let shared = shared.clone();
        thread::spawn(move || {
            for n in 1..=3 {
                shared.1.store(n, sync::Ordering::Relaxed);
                shared.0.ring(vi);
            }
        })
    };
    let mut seen = 0;
    while seen < 3 {
        let mut rang = false;
        shared.0.take(|bit| {
            assert_eq!(bit, vi % BITS);
            rang = true;
        });
        if rang {
            seen = shared.1.load(sync::Ordering::Relaxed);
        } else {
            thread::yield_now();
        }
    }
    ringer.join().unwrap();
}

#[test]
fn bits_of_one_word_are_not_lost() {
    check(|| two_ring([3, 4]));
}

#[test]
fn bits_of_two_words_are_not_lost() {
    check(|| two_ring([63, 64]));
}

#[test]
fn a_shared_bit_is_not_lost() {
    check(|| two_ring([5, BITS + 5]));
}

#[test]
fn ringing_again_is_heard_again() {
    check(|| one_rings_often(70));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn ringing_without_order_is_noticed() {
    check_without(Without::RmwOrder, || two_ring([3, 4]));
}

#[test]
#[should_panic(expected = "lost or doubled")]
fn taking_in_two_steps_is_noticed() {
    check_without(Without::Swap, || two_ring([3, 4]));
}
