//! Sleeping on a word that several processes share.
//!
//! The plain futex, without the private flag, because the word lives in a segment that a peer maps too. Serves
//! [`crate::bell`] (design, section 2.2). It is no lock and knows no owners: DESIGN 2.4 forbids inter-process mutexes
//! in providers.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{Flags, wait as futex_wait, wake as futex_wake};
use rustix::time::Timespec;

/// Why [`wait`] came back. None of them says that the condition the caller waits for holds: it must look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitResult {
    /// A [`wake`] (or a kernel that felt like it).
    Woken,
    /// The word did not hold the expected value; the caller did not sleep.
    Mismatch,
    /// The time was up.
    TimedOut,
    /// A signal arrived.
    Interrupted,
}

/// Sleeps while `word` holds `expected`, at most for `timeout` (monotonic; `None`: without limit).
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> WaitResult {
    // A time that does not fit is centuries away, which is no limit.
    let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
    match futex_wait(word, Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) => WaitResult::Woken,
        Err(Errno::AGAIN) => WaitResult::Mismatch,
        Err(Errno::TIMEDOUT) => WaitResult::TimedOut,
        // EINTR; nothing else can happen to a valid reference, and if it does the caller looks again.
        Err(_) => WaitResult::Interrupted,
    }
}

/// Wakes up to `n` sleepers on `word`; says how many there were.
pub fn wake(word: &AtomicU32, n: u32) -> u32 {
    // The kernel takes a signed count.
    let n = n.min(i32::MAX as u32);
    futex_wake(word, Flags::empty(), n).map_or(0, |woken| woken as u32)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn mismatch_and_timeout() {
        let word = AtomicU32::new(3);
        assert_eq!(wait(&word, 4, None), WaitResult::Mismatch);
        assert_eq!(wait(&word, 3, Some(Duration::from_millis(1))), WaitResult::TimedOut);
        assert_eq!(wake(&word, u32::MAX), 0);
    }

    #[test]
    fn wake_reaches_a_sleeper() {
        let word = Arc::new(AtomicU32::new(0));
        let sleeper = {
            let word = Arc::clone(&word);
            std::thread::spawn(move || {
                while word.load(Ordering::Acquire) == 0 {
                    wait(&word, 0, None);
                }
            })
        };
        word.store(1, Ordering::Release);
        wake(&word, 1);
        sleeper.join().unwrap();
    }

    #[test]
    fn absurd_timeouts_do_not_panic() {
        let word = AtomicU32::new(1);
        assert_eq!(wait(&word, 0, Some(Duration::MAX)), WaitResult::Mismatch);
    }
}
