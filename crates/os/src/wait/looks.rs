//! The waiting policy for callers that cannot loop: a task of an executor looks, lets others have their turn, and looks again.
//!
//! What is learnt is what [`WaitPolicy`](super::WaitPolicy) learns. Between two looks other tasks run; in
//! a crowd of threads there are none.

use super::Spin;
use super::learn::{MAX_NS, SpinLearner};
use crate::crowd::crowded_for_good;
use crate::{clock, cpu};

/// How long to look for an answer: time for a peer that sleeps to be woken and to answer, so that one of two that both
/// sleep can begin. Where answers do come, they come much sooner.
const ANSWER_NS: u64 = 4 * MAX_NS;

/// How long to look at least: what falling asleep and waking up costs its caller alone, and other tasks use meanwhile. Often
/// one of them is just about to send what will be answered.
const TURN_NS: u64 = 10_000;

/// Answers in a row that did not come in time before searches are left out, and how many then.
const PATIENCE: u32 = 4;
const LAST_BACKOFF: u32 = 1024;

/// Looks of one waiting object, and what was learnt from them.
#[derive(Debug)]
pub struct Looks {
    spin: Spin,
    learner: SpinLearner,
    state: LookState,
    /// An answer is waited for.
    expecting: bool,
    misses: u32,
    /// Answers that are not looked for, and how many it will be after the next failure.
    skip: u32,
    backoff: u32,
    waits: Waits,
}

/// What waiting took, since this was last asked: for counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Looks that were to be repeated soon.
    pub spins: u64,
    /// Times that the caller was sent to sleep.
    pub sleeps: u64,
}

#[derive(Debug)]
enum LookState {
    /// Not waiting.
    Idle,
    /// Looking since then, for so long at most; the last look was then.
    Looking(u64, u64, u64),
    /// Asleep since then, after looking for so long.
    Asleep(u64, u64),
}

impl Looks {
    /// Looks that know nothing yet.
    pub fn new() -> Looks {
        Looks::with(Spin::Auto)
    }

    /// Looks with a spin budget that a setting gives. What is learnt counts for [`Spin::Auto`] alone.
    pub fn with(spin: Spin) -> Looks {
        Looks {
            spin,
            learner: SpinLearner::new(),
            state: LookState::Idle,
            expecting: false,
            misses: 0,
            skip: 0,
            backoff: PATIENCE,
            waits: Waits::default(),
        }
    }

    /// Nothing was there. Whether it pays to look again soon; if not, the caller goes to sleep.
    pub fn again(&mut self) -> bool {
        let asleep = matches!(self.state, LookState::Asleep(..));
        let again = self.decide();
        self.waits.spins += u64::from(again);
        self.waits.sleeps += u64::from(!again && !asleep);
        again
    }

    /// What was waited since the last call.
    #[inline]
    pub fn take_waits(&mut self) -> Waits {
        std::mem::take(&mut self.waits)
    }

    fn decide(&mut self) -> bool {
        match self.state {
            LookState::Idle => {
                let now = clock::now_ns();
                let budget = self.budget();
                self.state = match budget {
                    0 => LookState::Asleep(now, 0),
                    _ => LookState::Looking(now, budget, now),
                };
                budget > 0
            }
            LookState::Looking(since, budget, last) => {
                let now = clock::now_ns();
                if now - last > MAX_NS {
                    // The task did not look meanwhile, so nothing can be learnt from it.
                    self.state = LookState::Idle;
                    return self.decide();
                }
                if now - since < budget {
                    self.state = LookState::Looking(since, budget, now);
                    return true;
                }
                self.miss();
                self.state = LookState::Asleep(now, now - since);
                false
            }
            // Woken for nothing.
            LookState::Asleep(..) => false,
        }
    }

    /// Something was sent that may bring an answer soon: what was learnt from idling says nothing about that one. But a
    /// thread that sleeps until it has something to send itself need not have slept: that counts as if something had come.
    #[inline]
    pub fn restart(&mut self) {
        if !self.expecting && !matches!(self.state, LookState::Idle) {
            self.found();
        }
        (self.state, self.expecting) = (LookState::Idle, true);
    }

    /// Something was sent after the thread went to sleep. True if the thread should be woken, to look for the answer.
    pub fn search(&mut self) -> bool {
        self.restart();
        self.again()
    }

    /// Something was there.
    #[inline]
    pub fn found(&mut self) {
        match std::mem::replace(&mut self.state, LookState::Idle) {
            LookState::Idle => {}
            LookState::Looking(since, ..) if !self.expecting => {
                self.learner.hit(clock::now_ns() - since);
            }
            LookState::Looking(..) => (self.misses, self.backoff) = (0, PATIENCE),
            LookState::Asleep(..) if self.expecting => {}
            LookState::Asleep(since, spun) => self.learner.slept(clock::now_ns() - since, spun),
        }
        self.expecting = false;
    }

    fn budget(&mut self) -> u64 {
        match self.spin {
            Spin::Auto => {
                // An answer that is left out counts as such in a crowd, too.
                let learnt = self.learnt();
                if crowded_for_good() { 0 } else { learnt }
            }
            Spin::Never => 0,
            Spin::Always => u64::MAX,
            Spin::For(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    fn learnt(&mut self) -> u64 {
        // With one CPU nothing of another process can change while we have it.
        if cpu::machine() == 1 {
            return 0;
        }
        if !self.expecting {
            return self.learner.budget().max(TURN_NS);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return 0;
        }
        ANSWER_NS
    }

    fn miss(&mut self) {
        if !self.expecting {
            return self.learner.miss();
        }
        self.misses += 1;
        if self.misses >= PATIENCE {
            self.skip = self.backoff;
            self.backoff = (self.backoff * 2).min(LAST_BACKOFF);
        }
    }
}

impl Default for Looks {
    fn default() -> Looks {
        Looks::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn looking_ends_and_then_only_sleep_is_left() {
        let mut looks = Looks::new();
        // However long this takes: it ends.
        while looks.again() {}
        assert!(matches!(looks.state, LookState::Asleep(..)));
        assert!(!looks.again(), "a useless wake-up starts no new search");
        looks.found();
        assert!(matches!(looks.state, LookState::Idle));
    }

    #[test]
    fn a_spin_budget_that_was_set_is_obeyed_and_counted() {
        let mut never = Looks::with(Spin::Never);
        assert!(!never.again() && !never.search() && !never.again());
        assert_eq!(never.take_waits(), Waits { spins: 0, sleeps: 2 }, "a search begins a new wait");
        assert_eq!(never.take_waits(), Waits::default());
        let mut always = Looks::with(Spin::Always);
        assert!((0..1000).all(|_| always.again()));
        assert_eq!(always.take_waits(), Waits { spins: 1000, sleeps: 0 });
        let mut bounded = Looks::with(Spin::For(Duration::from_millis(2)));
        let begin = clock::now_ns();
        while bounded.again() {}
        assert!(clock::now_ns() - begin >= 2_000_000);
        assert_eq!(bounded.take_waits().sleeps, 1);
    }

    #[test]
    fn a_thread_that_soon_sends_something_itself_learns_to_look_longer() {
        let mut looks = Looks::new();
        for _ in 0..8 {
            while looks.again() {}
            if let LookState::Asleep(since, _) = &mut looks.state {
                *since -= 1_000_000_000;
            }
            looks.found();
        }
        let before = looks.learner.budget;
        for _ in 0..8 {
            // Asleep without having looked, as in a crowd.
            (looks.state, looks.expecting) = (LookState::Asleep(clock::now_ns(), 0), false);
            looks.restart();
        }
        assert!(looks.learner.budget > before, "{} after {before}", looks.learner.budget);
    }

    #[test]
    fn a_pause_between_looks_is_no_search() {
        let mut looks = Looks::new();
        for _ in 0..100 {
            looks.again();
            if let LookState::Looking(since, _, last) = &mut looks.state {
                (*since, *last) = (*since - 1_000_000, *last - 1_000_000);
            }
            assert!(!matches!(looks.state, LookState::Asleep(_, spun) if spun > 4 * ANSWER_NS));
            looks.again();
            looks.restart();
            assert!(matches!(looks.state, LookState::Idle));
        }
    }

    #[test]
    fn a_thread_that_never_finds_anything_soon_looks_for_a_moment_only() {
        let mut looks = Looks::new();
        let mut searched = 0;
        for _ in 0..2000 {
            let mut longest = 0;
            while looks.again() {
                if let LookState::Looking(_, budget, _) = looks.state {
                    longest = budget;
                }
            }
            searched += u32::from(longest > TURN_NS);
            // Long after falling asleep.
            if let LookState::Asleep(since, _) = &mut looks.state {
                *since -= 1_000_000_000;
            }
            looks.found();
        }
        assert!(searched < 500, "{searched} of 2000 waits began with a long search in vain");
    }

    #[test]
    fn answers_that_never_come_in_time_are_looked_for_ever_more_rarely() {
        let mut looks = Looks::new();
        let mut searched = 0;
        for _ in 0..600 {
            looks.restart();
            let mut looked = false;
            while looks.again() {
                looked = true;
            }
            searched += u32::from(looked);
            looks.found();
        }
        assert!(searched < 100, "{searched} of 600");
        // A sleeper is woken for it as rarely.
        (looks.misses, looks.backoff, looks.skip) = (0, PATIENCE, 3);
        let mut woken = 0;
        for _ in 0..3 {
            woken += u32::from(looks.search());
            assert!(!looks.again(), "it stays asleep");
            looks.found();
        }
        assert_eq!((woken, looks.skip), (0, 0));
        // One that is found is enough to try each time again.
        looks.skip = 0;
        looks.restart();
        if looks.again() {
            looks.found();
            assert_eq!((looks.misses, looks.skip), (0, 0));
        }
    }
}
