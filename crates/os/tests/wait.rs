//! The waiting policy, with a sleep that is only recorded.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use viaduct_os::clock::now_ns;
use viaduct_os::wait::{Sleep, Spin, WaitConfig, WaitPolicy};

/// Writes down what was asked of it, and lets something happen while it "sleeps".
#[derive(Default)]
struct Recorder {
    calls: RefCell<Vec<&'static str>>,
    parked: Cell<u32>,
    timeout: Cell<Option<Duration>>,
    real: bool,
}

impl Sleep for Recorder {
    fn announce(&self) -> u32 {
        self.calls.borrow_mut().push("announce");
        0
    }

    fn cancel(&self) {
        self.calls.borrow_mut().push("cancel");
    }

    fn park(&self, _: u32, timeout: Option<Duration>) {
        self.calls.borrow_mut().push("park");
        self.parked.set(self.parked.get() + 1);
        self.timeout.set(timeout);
        if let (true, Some(timeout)) = (self.real, timeout) {
            std::thread::sleep(timeout);
        }
    }
}

fn policy(spin: Spin) -> WaitPolicy {
    WaitPolicy::new(WaitConfig { spin })
}

#[test]
fn finding_a_message_at_the_first_look_costs_nothing() {
    for spin in [Spin::Auto, Spin::Never, Spin::Always, Spin::For(Duration::from_secs(1))] {
        let (mut policy, sleep) = (policy(spin), Recorder::default());
        assert_eq!(policy.wait(Some(0), || Some(5), &sleep), Some(5));
        assert_eq!((policy.spins, policy.yields, policy.sleeps), (0, 0, 0));
        assert!(sleep.calls.borrow().is_empty());
    }
}

#[test]
fn never_spinning_follows_the_protocol_of_sleep() {
    let (mut policy, sleep) = (policy(Spin::Never), Recorder::default());
    // Spurious wake-ups: two parks bring nothing.
    let found = policy.wait(None, || (sleep.parked.get() == 3).then_some('x'), &sleep);
    assert_eq!(found, Some('x'));
    assert_eq!(*sleep.calls.borrow(), ["announce", "park", "cancel"].repeat(3));
    assert_eq!((policy.spins, policy.yields, policy.sleeps), (0, 0, 3));
    assert_eq!(sleep.timeout.get(), None);
}

#[test]
fn a_message_between_the_looks_is_not_slept_over() {
    let (mut policy, sleep) = (policy(Spin::Never), Recorder::default());
    let found = policy.wait(None, || (!sleep.calls.borrow().is_empty()).then_some(()), &sleep);
    assert_eq!(found, Some(()));
    assert_eq!(*sleep.calls.borrow(), ["announce", "cancel"]);
    assert_eq!(policy.sleeps, 0);
}

#[test]
fn always_spinning_never_sleeps() {
    let (mut policy, sleep) = (policy(Spin::Always), Recorder::default());
    let mut looks = 0;
    let look = || {
        looks += 1;
        (looks == 10_000).then_some(())
    };
    assert_eq!(policy.wait(None, look, &sleep), Some(()));
    assert_eq!((policy.spins, policy.sleeps), (9_998, 0));
    assert!(sleep.calls.borrow().is_empty());
}

#[test]
fn a_deadline_ends_every_kind_of_wait() {
    for spin in [
        Spin::Auto,
        Spin::Never,
        Spin::Always,
        Spin::For(Duration::from_micros(10)),
        Spin::For(Duration::MAX),
    ] {
        let sleep = Recorder { real: true, ..Recorder::default() };
        let deadline = now_ns() + 2_000_000;
        let mut last_look = 0;
        let look = || -> Option<()> {
            last_look = now_ns();
            None
        };
        assert_eq!(policy(spin).wait(Some(deadline), look, &sleep), None, "{spin:?}");
        assert!(last_look >= deadline, "{spin:?}: no look after the deadline");
        let calls = sleep.calls.borrow();
        assert!(calls.is_empty() || *calls.last().unwrap() == "cancel", "{spin:?}: left announced");
    }
}

#[test]
fn a_deadline_in_the_past_still_looks_and_does_not_park() {
    let sleep = Recorder::default();
    let mut looks = 0;
    let look = || -> Option<()> {
        looks += 1;
        None
    };
    assert_eq!(policy(Spin::Never).wait(Some(1), look, &sleep), None);
    assert!(looks >= 2 && sleep.parked.get() == 0);
}

/// Answers that never come while spinning teach the policy to stop: most waits look only a few times.
#[test]
fn useless_spinning_stops() {
    let (mut policy, sleep) = (policy(Spin::Auto), Recorder::default());
    let wait = |policy: &mut WaitPolicy| {
        let before = sleep.parked.get();
        policy.wait(None, || (sleep.parked.get() > before).then_some(()), &sleep);
    };
    for _ in 0..500 {
        wait(&mut policy);
    }
    let spins = policy.spins;
    let waits = 200;
    let idle = (0..waits)
        .filter(|_| {
            let before = policy.spins;
            wait(&mut policy);
            policy.spins == before
        })
        .count();
    assert!(idle > waits / 2, "{idle} of {waits} waits did not spin; {spins} spins before");
}
