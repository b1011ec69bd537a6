//! Models of several threads that sleep on one NIC: the steps of `Sleepers` (`crates/via/src/driver/sleepers.rs`), and of a turn and
//! `end_turn` of `Driver::wait_waking` (`mod.rs` beside it), over the real bell. Keep them in step.
//!
//! A bell's word says only that some thread sleeps. A sleeper that was rung for before it parked has to notice, although
//! another one may have announced itself since: therefore the ticket, which a sleeper draws when it announces itself.
//! [`NoTicket`] is a bell without; the test that should panic shows what comes of it.
#![cfg(loom)]

mod model;

#[path = "../../os/src/bell.rs"]
#[allow(dead_code, unreachable_pub)]
mod bell;

use std::sync::Arc;

use bell::{AWAKE, BellWord, FUTEX};
use loom::sync::Mutex;
use model::{Without, barrier, check, check_without, eventfd, futex, sync, thread, wait};
use sync::{AtomicU32, AtomicU64, Ordering};

/// A bell as the models of this file use it.
trait Bell: Send + Sync + 'static {
    fn fresh() -> Self;
    fn announce(&self) -> u32;
    fn park(&self, ticket: u32);
    fn disarm(&self);
    fn ring(&self);
}

/// The bell as it is: a thread that parks compares the number of rings with that of its ticket.
impl Bell for BellWord {
    fn fresh() -> BellWord {
        let bell = BellWord::new();
        assert!(bell.is_awake() && bell.wakes() == 0);
        bell
    }

    fn announce(&self) -> u32 {
        self.announce(FUTEX)
    }

    fn park(&self, ticket: u32) {
        self.park(ticket, None);
    }

    fn disarm(&self) {
        self.disarm(FUTEX);
    }

    fn ring(&self) {
        self.ring(None);
    }
}

/// A bell good for one sleeper: a thread that parks compares the state.
struct NoTicket {
    state: AtomicU32,
}

impl Bell for NoTicket {
    fn fresh() -> NoTicket {
        let bell = NoTicket { state: AtomicU32::new(AWAKE) };
        assert_eq!(bell.state.load(Ordering::Relaxed), AWAKE);
        bell
    }

    fn announce(&self) -> u32 {
        self.state.fetch_or(FUTEX, Ordering::SeqCst);
        barrier::heavy();
        0
    }

    fn park(&self, _: u32) {
        futex::wait(&self.state, FUTEX, None);
    }

    fn disarm(&self) {
        self.state.fetch_and(!FUTEX, Ordering::Relaxed);
    }

    fn ring(&self) {
        barrier::light();
        if self.state.load(Ordering::Relaxed) != AWAKE && self.state.swap(AWAKE, Ordering::AcqRel) != AWAKE {
            futex::wake(&self.state, u32::MAX);
        }
    }
}

struct Shared<B> {
    bell: B,
    /// `Counted` of the sleepers.
    asleep: Mutex<()>,
    count: loom::sync::atomic::AtomicU64,
    /// Stands for the turn on the layer.
    turn: Mutex<()>,
    /// What the two threads wait for.
    data: [AtomicU64; 2],
    wakes_others: bool,
}

impl<B: Bell> Shared<B> {
    fn new(wakes_others: bool) -> Arc<Shared<B>> {
        let data = [AtomicU64::new(0), AtomicU64::new(0)];
        Arc::new(Shared {
            bell: B::fresh(),
            asleep: Mutex::new(()),
            count: loom::sync::atomic::AtomicU64::new(0),
            turn: Mutex::new(()),
            data,
            wakes_others,
        })
    }

    fn announce(&self) -> u32 {
        let _held = self.asleep.lock().unwrap();
        self.count.fetch_add(1, Ordering::SeqCst);
        self.bell.announce()
    }

    fn cancel(&self) {
        let _held = self.asleep.lock().unwrap();
        if self.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.bell.disarm();
        }
    }

    fn any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    fn ring(&self) {
        let _held = self.asleep.lock().unwrap();
        self.bell.ring();
    }

    /// A turn that looks. Others look again after one that found something.
    fn look(&self, mine: usize) -> bool {
        let turn = self.turn.lock().unwrap();
        let found = self.data[mine].load(Ordering::Acquire) != 0;
        let rings = found && self.wakes_others && self.any();
        drop(turn);
        if rings {
            self.ring();
        }
        found
    }

    /// A wait without a deadline.
    fn wait(&self, mine: usize) {
        loop {
            let ticket = self.announce();
            let found = self.look(mine);
            if !found {
                self.bell.park(ticket);
            }
            self.cancel();
            if found || self.look(mine) {
                return;
            }
        }
    }

    /// A wait with a deadline that has passed by the time of the second look.
    fn wait_shortly(&self, mine: usize) {
        self.announce();
        let _ = self.look(mine);
        self.cancel();
    }

    /// A peer.
    fn publish(&self, to: usize) {
        self.data[to].store(1, Ordering::Release);
        self.bell.ring();
    }
}

/// Two threads wait, each for its own message; a peer sends both.
fn two_wait<B: Bell>(wakes_others: bool) {
    let shared = Shared::<B>::new(wakes_others);
    let (a, b) = (shared.clone(), shared.clone());
    let peer = thread::spawn(move || {
        a.publish(0);
        a.publish(1);
    });
    let other = thread::spawn(move || b.wait(0));
    shared.wait(1);
    other.join().unwrap();
    peer.join().unwrap();
}

/// One thread waits for its message, the other one for something that does not come, and gives up.
fn one_gives_up<B: Bell>() {
    let shared = Shared::<B>::new(true);
    let (a, b) = (shared.clone(), shared.clone());
    let peer = thread::spawn(move || a.publish(0));
    let other = thread::spawn(move || b.wait_shortly(1));
    shared.wait(0);
    other.join().unwrap();
    peer.join().unwrap();
}

#[test]
fn two_waiters_are_both_woken() {
    check(|| two_wait::<BellWord>(true));
}

#[test]
fn a_waiter_that_gives_up_takes_no_wake_up_along() {
    check(one_gives_up::<BellWord>);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_tickets_a_waiter_that_gives_up_takes_a_wake_up_along() {
    check(one_gives_up::<NoTicket>);
}

#[test]
fn a_ring_wakes_all_waiters() {
    check(|| two_wait::<BellWord>(false));
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_tickets_not_waking_others_is_noticed() {
    check(|| two_wait::<NoTicket>(false));
}

#[test]
#[should_panic(expected = "deadlock")]
fn announcing_without_barrier_is_noticed() {
    check_without(Without::Heavy, || two_wait::<BellWord>(true));
}
