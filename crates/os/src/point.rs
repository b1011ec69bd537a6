//! Named steps at which a test may have this process die, stop or dawdle.
//!
//! Design, section 2.6: no call blocks for ever after a failure, wherever it struck. The steps between which a peer's
//! death could matter are marked with [`point`], and the kill sweep of `tests/faults` ends a process at each of them.
//! Without the feature `fault-points`, that is in every build that is not a test, a mark is an empty function and
//! nothing of this is compiled.

#[cfg(feature = "fault-points")]
pub use armed::{Action, arm, disarm, point, record, seen};

/// A step with a name.
#[cfg(not(feature = "fault-points"))]
#[inline(always)]
pub fn point(_name: &'static str) {}

#[cfg(feature = "fault-points")]
mod armed {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, MutexGuard};
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    /// What to do at a point.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Action {
        /// The process ends at once (SIGKILL).
        Kill,
        /// The process stops until it is continued (SIGSTOP).
        Stop,
        /// The thread sleeps.
        Sleep(Duration),
    }

    /// A step with a name. Costs one load while nothing is armed or recorded.
    #[inline]
    pub fn point(name: &'static str) {
        if ON.load(Ordering::Relaxed) {
            pass(name);
        }
    }

    /// Does `action` when the point `name` is passed for the `nth` time (1 is the first) from now on. Only the armed
    /// point acts, and once; counts start again.
    pub fn arm(name: &str, nth: u64, action: Action) {
        let mut state = lock();
        *state = State { seen: BTreeMap::new(), armed: Some((name.to_owned(), nth, action)) };
        ON.store(true, Ordering::Release);
    }

    /// Counts from now on, and does nothing else.
    pub fn record() {
        *lock() = State { seen: BTreeMap::new(), armed: None };
        ON.store(true, Ordering::Release);
    }

    /// No more counting, no more acting.
    pub fn disarm() {
        ON.store(false, Ordering::Release);
        lock().armed = None;
    }

    /// The points passed since [`arm`] or [`record`], with how often, by name.
    pub fn seen() -> Vec<(&'static str, u64)> {
        lock().seen.iter().map(|(name, count)| (*name, *count)).collect()
    }

    static ON: AtomicBool = AtomicBool::new(false);
    static STATE: Mutex<State> = Mutex::new(State { seen: BTreeMap::new(), armed: None });

    struct State {
        seen: BTreeMap<&'static str, u64>,
        armed: Option<(String, u64, Action)>,
    }

    fn lock() -> MutexGuard<'static, State> {
        STATE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    #[cold]
    #[inline(never)]
    fn pass(name: &'static str) {
        let mut state = lock();
        let count = state.seen.entry(name).or_insert(0);
        *count += 1;
        let count = *count;
        let due = state.armed.as_ref().is_some_and(|(point, nth, _)| point == name && *nth == count);
        let action = if due { state.armed.take().map(|(_, _, action)| action) } else { None };
        drop(state); // the others go on counting while this thread sleeps
        match action {
            None => {}
            Some(Action::Sleep(time)) => std::thread::sleep(time),
            // A signal to oneself is taken before the call returns.
            Some(Action::Stop) => kill_process(getpid(), Signal::STOP).expect("a process may stop itself"),
            Some(Action::Kill) => kill_process(getpid(), Signal::KILL).expect("a process may end itself"),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// What the other tests of this process pass is not ours.
        fn ours() -> Vec<(&'static str, u64)> {
            seen().into_iter().filter(|(name, _)| name.starts_with("test.")).collect()
        }

        #[test]
        fn passes_are_counted_and_the_nth_acts() {
            point("test.before");
            arm("test.b", 2, Action::Sleep(Duration::from_millis(30)));
            let start = std::time::Instant::now();
            ["test.a", "test.b", "test.b", "test.b", "test.a"].into_iter().for_each(point);
            assert!(start.elapsed() >= Duration::from_millis(30));
            assert_eq!(ours(), [("test.a", 2), ("test.b", 3)]);
            record();
            assert_eq!(ours(), []);
            disarm();
            point("test.after");
            assert_eq!(ours(), []);
        }
    }
}
