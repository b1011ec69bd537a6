//! Makes things go wrong on purpose: losses, failures and breaks at chosen or random places, repeatable by seed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::descriptor::{Status, Work};
use crate::error::Error;
use crate::hooks::{Hook, Verdict};

/// A step of set-up that can be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Making shareable memory, or sharing a segment of the program's.
    Allocate,
    /// Registering memory.
    Register,
    /// Listening.
    Listen,
    /// Asking for a connection.
    Request,
    /// Accepting one.
    Accept,
}

/// What a rule does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The message vanishes.
    Lose,
    /// The descriptor ends with this status.
    Fail(Status),
    /// The connection breaks at the next poll.
    Break,
}

/// When a rule applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// To the n-th descriptor handed over, counted from 0.
    Nth(u64, Action),
    /// To every n-th one.
    Every(u64, Action),
    /// To this many in a thousand, at random.
    PerMille(u32, Action),
    /// The n-th step of this kind is refused.
    NthStep(Step, u64),
}

/// A hook that meddles by rules.
#[derive(Debug)]
pub struct Faults {
    rules: Vec<Rule>,
    seen: AtomicU64,
    steps: Mutex<Vec<(Step, u64)>>,
    random: AtomicU64,
    injected: AtomicU64,
}

impl Faults {
    /// Faults by these rules. One seed and one traffic always give the same faults.
    pub fn new(seed: u64, rules: impl Into<Vec<Rule>>) -> Faults {
        Faults {
            rules: rules.into(),
            seen: AtomicU64::new(0),
            steps: Mutex::new(Vec::new()),
            random: AtomicU64::new(seed | 1),
            injected: AtomicU64::new(0),
        }
    }

    /// Faults brought about so far.
    pub fn injected(&self) -> u64 {
        self.injected.load(Ordering::Relaxed)
    }

    fn next_random(&self) -> u64 {
        // xorshift: any generator does, as long as a seed repeats it.
        let mut x = self.random.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.store(x, Ordering::Relaxed);
        x
    }

    fn judge(&self) -> Verdict {
        let n = self.seen.fetch_add(1, Ordering::Relaxed);
        for rule in &self.rules {
            let action = match *rule {
                Rule::Nth(at, action) if at == n => action,
                Rule::Every(k, action) if k > 0 && n % k == k - 1 => action,
                Rule::PerMille(p, action) if self.next_random() % 1000 < u64::from(p) => action,
                _ => continue,
            };
            self.injected.fetch_add(1, Ordering::Relaxed);
            return match action {
                Action::Lose => Verdict::Lose,
                Action::Fail(status) => Verdict::Fail(status),
                Action::Break => Verdict::Break,
            };
        }
        Verdict::Pass
    }
}

impl Hook for Faults {
    fn submit(&self, _: &Work, _: u32) -> Verdict {
        self.judge()
    }

    fn submit_inline(&self, _: &[u8]) -> Verdict {
        self.judge()
    }

    fn step(&self, step: Step) -> Result<(), Error> {
        let mut steps = self.steps.lock().unwrap_or_else(|e| e.into_inner());
        let n = match steps.iter_mut().find(|(s, _)| *s == step) {
            Some((_, n)) => {
                *n += 1;
                *n
            }
            None => {
                steps.push((step, 0));
                0
            }
        };
        if self.rules.contains(&Rule::NthStep(step, n)) {
            self.injected.fetch_add(1, Ordering::Relaxed);
            return Err(Error::Limit { what: "injected fault", limit: n });
        }
        Ok(())
    }
}
