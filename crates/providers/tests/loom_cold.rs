//! Models of a cold VI: its owner does not look at its ring, so the peer has to ring its doorbell, which it does only if it sees
//! the flag `armed`. Ring, doorbells and bell are the real sources; between them stand the steps of `ShmVi::published`
//! (`src/shm/vi.rs`) and, for one VI, of `progress_cq`, `cool` and `adopt_into_cqs` (`crates/via/src/waiting.rs`,
//! `cq.rs`) and `WaitPolicy::sleep` (`crates/os/src/wait.rs`). Keep them in step.
//!
//! The flag goes up without a barrier, so a message may miss it. What saves it is that the VI is looked at once more
//! *after a barrier that came after the flag*, before anybody sleeps.
//!
//! [`List::Right`] is what the code does; the tests that should panic show what comes of doing otherwise. That what
//! cooled after the barrier stays on the list, the code ensures by numbering barriers (`Signal::announce`).
#![cfg(loom)]

mod model;

#[path = "../../os/src/bell.rs"]
#[allow(dead_code, unreachable_pub)]
mod bell;
#[path = "../src/shm/doorbell.rs"]
#[allow(dead_code)]
mod doorbell;
#[path = "../src/shm/ring.rs"]
#[allow(dead_code)]
mod ring;

use std::sync::Arc;

use bell::{BellWord, FUTEX};
use doorbell::Doorbells;
use model::{Without, barrier, check, check_without, eventfd, futex, sync, thread, wait};
use ring::{Consumer, Head, Kind, Producer, Slot, fresh};
use sync::{AtomicU32, Ordering};

const VI: u32 = 9;

struct Shared {
    slots: Arc<[Slot]>,
    armed: AtomicU32,
    doorbells: Doorbells,
    bell: BellWord,
}

/// When the VI goes cold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cools {
    /// In a poll while the NIC is awake.
    Awake,
    /// In the poll that follows the announcement.
    Announced,
    /// When it connects: it never was hot.
    Connecting,
}

/// How the list of VIs that cooled is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    /// It holds every VI whose flag went up, a poll goes through what was on it when the barrier was passed, and those
    /// that had something are hot again.
    Right,
    /// VIs that are cold from the start are not on it.
    WithoutAdopted,
    /// A poll also goes through those that cooled in it, after the barrier.
    WithFresh,
    /// A VI on it that had something stays cold, although there may be more than one look takes.
    LeavesCold,
    /// No thread goes through it.
    Forgotten,
}

/// The NIC that owns the VI.
struct Nic {
    shared: Arc<Shared>,
    rx: Consumer<Arc<[Slot]>>,
    cools: Cools,
    list: List,
    hot: bool,
    cooling: bool,
    announced: bool,
}

impl Nic {
    fn new(shared: Arc<Shared>, cools: Cools, list: List) -> Nic {
        let rx = Consumer::new(shared.slots.clone());
        Nic { shared, rx, cools, list, hot: cools != Cools::Connecting, cooling: false, announced: false }
    }

    /// Takes what one poll takes: here one message, in truth 32, or as many as there are receives.
    fn progress(&mut self) -> bool {
        let found = self.rx.peek().unwrap().is_some();
        if found {
            self.rx.pop(0);
        }
        found
    }

    fn arm(&mut self, armed: bool) {
        self.shared.armed.store(u32::from(armed), Ordering::Relaxed);
    }

    fn adopt(&mut self) -> bool {
        self.arm(true);
        self.cooling = self.list != List::WithoutAdopted;
        self.look()
    }

    /// Looks at the VI although it is cold.
    fn look(&mut self) -> bool {
        let found = self.progress();
        if found && self.list != List::LeavesCold {
            self.heat();
        }
        found
    }

    fn heat(&mut self) {
        self.hot = true;
        self.arm(false);
    }

    fn poll(&mut self) -> bool {
        let mut due = self.announced && std::mem::take(&mut self.cooling);
        let mut found = false;
        if self.hot {
            found = self.progress();
            if !found && self.cools == (if self.announced { Cools::Announced } else { Cools::Awake }) {
                self.hot = false;
                self.arm(true);
                self.cooling = true;
            }
        }
        if self.list == List::WithFresh {
            due |= self.announced && std::mem::take(&mut self.cooling);
        }
        if due && self.list != List::Forgotten {
            found |= self.look();
        }
        let shared = self.shared.clone();
        let mut rang = false;
        shared.doorbells.take(|bit| rang = bit == VI);
        if rang {
            self.heat();
            // Nothing, if it was found otherwise.
            found |= !found && self.progress();
        }
        found
    }

    fn wait(&mut self) {
        let shared = self.shared.clone();
        if self.poll() {
            return;
        }
        loop {
            let ticket = shared.bell.announce(FUTEX);
            self.announced = true;
            let found = self.poll();
            if !found {
                shared.bell.park(ticket, None);
            }
            self.announced = false;
            shared.bell.disarm(FUTEX);
            if found || self.poll() {
                return;
            }
        }
    }
}

/// `ShmVi::published`, after the message was put. A bit is news like a message: between it and the look at the bell
/// there is a barrier as well.
fn send(shared: &Shared, tx: &mut Producer<Arc<[Slot]>>, second_barrier: bool) {
    tx.put(Head { kind: Kind::Inline, flags: 0, len: 0 }, 0, 0, &[]);
    barrier::light();
    if shared.armed.load(Ordering::Relaxed) != 0 {
        shared.doorbells.ring(VI);
        if second_barrier {
            barrier::light();
        }
    }
    if !shared.bell.is_awake() {
        shared.bell.ring(None);
    }
}

/// A peer sends, and the NIC sleeps until each message is there.
fn cold(cools: Cools, list: List, messages: usize) {
    cold_with(cools, list, messages, true);
}

fn cold_with(cools: Cools, list: List, messages: usize, second_barrier: bool) {
    let shared = Shared {
        slots: fresh(4).into(),
        armed: AtomicU32::new(0),
        doorbells: Doorbells::fresh(),
        bell: BellWord::new(),
    };
    // loom gets to know the words here, before there is a second thread.
    assert!(shared.bell.is_awake() && shared.bell.wakes() == 0);
    assert_eq!(shared.armed.load(Ordering::Relaxed), 0);
    let shared = Arc::new(shared);
    let theirs = shared.clone();
    let peer = thread::spawn(move || {
        let mut tx = Producer::new(theirs.slots.clone());
        (0..messages).for_each(|_| send(&theirs, &mut tx, second_barrier));
    });
    let mut nic = Nic::new(shared, cools, list);
    let first = usize::from(cools == Cools::Connecting && nic.adopt());
    (first..messages).for_each(|_| nic.wait());
    peer.join().unwrap();
}

#[test]
fn messages_to_a_vi_that_cools_are_found() {
    check(|| cold(Cools::Awake, List::Right, 2));
}

#[test]
fn messages_to_a_vi_that_cools_before_a_sleep_are_found() {
    check(|| cold(Cools::Announced, List::Right, 2));
}

#[test]
fn messages_to_a_vi_that_never_was_hot_are_found() {
    check(|| cold(Cools::Connecting, List::Right, 2));
}

#[test]
#[should_panic(expected = "deadlock")]
fn sleeping_without_going_through_the_list_is_noticed() {
    check(|| cold(Cools::Awake, List::Forgotten, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn leaving_out_those_that_never_were_hot_is_noticed() {
    check(|| cold(Cools::Connecting, List::WithoutAdopted, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn going_through_those_that_cooled_after_the_barrier_is_noticed() {
    check(|| cold(Cools::Announced, List::WithFresh, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn leaving_those_cold_that_had_something_is_noticed() {
    check(|| cold(Cools::Awake, List::LeavesCold, 2));
}

#[test]
#[should_panic(expected = "deadlock")]
fn no_barrier_between_doorbell_and_bell_is_noticed() {
    check(|| cold_with(Cools::Awake, List::Right, 2, false));
}

#[test]
#[should_panic(expected = "deadlock")]
fn announcing_without_barrier_is_noticed() {
    check_without(Without::Heavy, || cold(Cools::Awake, List::Right, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn publishing_without_barrier_is_noticed() {
    check_without(Without::Light, || cold(Cools::Awake, List::Right, 1));
}
