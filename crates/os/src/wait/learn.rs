//! What a waiting object learns from its waits: how long to spin, and whether to yield.
//!
//! Pure arithmetic, no clock and no system call: times go in, a budget comes out. Three observations matter:
//!
//! - a spin that found something: spinning pays, and if it took most of the budget, a longer one may pay more;
//! - a spin that found nothing: it pays less; when it mostly fails only every n-th wait tries again, n doubling;
//! - a sleep that ended soon: a spin of that length would have found it, so try earlier and longer. Unless a spin of
//!   the full length had just failed: then the peer could not run while we span (it shares our core), and the
//!   quick answer came *because* we slept.
//!
//! Two ends can also fall into step: where waking a sleeper takes longer than the longest spin, each misses the answer of the
//! other, sleeps, and is late in turn, though both would be fast if one of them stayed awake. After a full spin that
//! just missed, the next wait therefore spins for longer, once until a spin finds something again.

/// The longest spin, as a rule: about twice what waking a sleeper costs.
pub(super) const MAX_NS: u64 = 50_000;
/// The spin that ends a step: longer than a wake-up takes on a virtual machine whose core had gone to rest.
const LONGER_NS: u64 = 150_000;
/// The shortest spin worth the trouble.
pub(super) const MIN_NS: u64 = 2_000;

/// Learns how long to spin.
#[derive(Clone, Debug)]
pub(super) struct SpinLearner {
    pub(super) budget: u64,
    /// The longest spin.
    max: u64,
    /// How often spins find something, exponentially weighted; [`ALWAYS`] is always.
    success: u32,
    /// Waits without a spin until the next try, and how many it will be after the next failure.
    skip: u32,
    backoff: u32,
    /// A full spin failed and the sleep after it was short.
    contradicted: bool,
    step: Step,
}

/// Whether the other end may have fallen into step with this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Free,
    /// A full spin just missed; the next one is longer.
    Suspected,
    /// A longer one was tried.
    Tried,
}

impl SpinLearner {
    /// Knows nothing, and hopes.
    pub(super) fn new() -> SpinLearner {
        SpinLearner {
            budget: MAX_NS,
            max: MAX_NS,
            success: ALWAYS / 2,
            skip: 0,
            backoff: FIRST_BACKOFF,
            contradicted: false,
            step: Step::Free,
        }
    }

    /// One whose longest spin is another.
    pub(super) fn with_longest(max: u64) -> SpinLearner {
        SpinLearner { budget: max, max, ..SpinLearner::new() }
    }

    /// Nanoseconds to spin in the next wait; 0 for not at all.
    pub(super) fn budget(&mut self) -> u64 {
        if self.step == Step::Suspected {
            self.step = Step::Tried;
            return LONGER_NS.max(self.max);
        }
        if self.success < PAYS && self.skip > 0 {
            self.skip -= 1;
            return 0;
        }
        self.budget
    }

    /// A spin found something after `took` nanoseconds.
    pub(super) fn hit(&mut self, took: u64) {
        self.success += (ALWAYS - self.success).div_ceil(4);
        self.backoff = FIRST_BACKOFF;
        self.skip = 0;
        self.contradicted = false;
        self.step = Step::Free;
        if took > self.budget / 2 {
            self.budget = (self.budget * 2).min(self.max);
        }
    }

    /// A spin found nothing.
    pub(super) fn miss(&mut self) {
        self.success -= self.success.div_ceil(8);
        if self.success < PAYS {
            self.skip = self.backoff;
            self.backoff = (self.backoff * 2).min(LAST_BACKOFF);
        }
    }

    /// What was waited for came `asleep` nanoseconds after falling asleep, and `spun` were spent spinning before.
    pub(super) fn slept(&mut self, asleep: u64, spun: u64) {
        // Waking takes time itself, so a message that came within the longest spin shows up later than that.
        let soon = asleep.saturating_add(spun) < self.max + WAKE_NS;
        if self.step == Step::Free && spun >= self.max && asleep < LONGER_NS {
            self.step = Step::Suspected;
        }
        if !soon {
            if asleep > 4 * self.max {
                self.budget = (self.budget / 2).max(MIN_NS);
            }
        } else if spun >= self.max {
            self.contradicted = true;
        } else if !self.contradicted {
            self.budget = (self.budget * 2).min(self.max);
            self.skip /= 2;
        }
    }
}

/// Learns whether yielding finds anything: on a core that is shared with the peer it does.
#[derive(Clone, Debug)]
pub(super) struct YieldLearner {
    success: u32,
    skip: u32,
    backoff: u32,
}

impl YieldLearner {
    /// Starts out hopeful on a machine with one CPU, doubtful otherwise.
    pub(super) fn new(one_cpu: bool) -> YieldLearner {
        YieldLearner {
            success: if one_cpu { ALWAYS / 2 } else { 0 },
            skip: FIRST_BACKOFF,
            backoff: FIRST_BACKOFF,
        }
    }

    /// Whether to yield in the next wait.
    pub(super) fn pays(&mut self) -> bool {
        if self.success < PAYS && self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        true
    }

    /// A yield found something.
    pub(super) fn hit(&mut self) {
        self.success += (ALWAYS - self.success).div_ceil(4);
        self.backoff = FIRST_BACKOFF;
    }

    /// The yields found nothing.
    pub(super) fn miss(&mut self) {
        self.success -= self.success.div_ceil(8);
        if self.success < PAYS {
            self.skip = self.backoff;
            self.backoff = (self.backoff * 2).min(LAST_BACKOFF);
        }
    }
}

const ALWAYS: u32 = 256;
/// Below one success in four a spin costs more than it saves.
const PAYS: u32 = ALWAYS / 4;
const FIRST_BACKOFF: u32 = 16;
const LAST_BACKOFF: u32 = 1024;
/// What a wake-up costs, roughly.
const WAKE_NS: u64 = 30_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `waits` waits in which the answer comes `after` ns, and says how many of them span and how many found it.
    fn run(learner: &mut SpinLearner, waits: u32, after: u64) -> (u32, u32) {
        let (mut spun, mut found) = (0, 0);
        for _ in 0..waits {
            let budget = learner.budget();
            spun += u32::from(budget > 0);
            if budget > after {
                found += 1;
                learner.hit(after);
            } else {
                if budget > 0 {
                    learner.miss();
                }
                learner.slept((after - budget).max(WAKE_NS), budget);
            }
        }
        (spun, found)
    }

    #[test]
    fn quick_answers_are_always_spun_for() {
        assert_eq!(run(&mut SpinLearner::new(), 1000, 500), (1000, 1000));
    }

    #[test]
    fn slow_answers_soon_cost_next_to_nothing() {
        let mut learner = SpinLearner::new();
        let (spun, found) = run(&mut learner, 1000, 10_000_000);
        assert!(found == 0 && spun < 20, "{spun}");
        assert_eq!(learner.budget, MIN_NS);
    }

    #[test]
    fn it_recovers_when_answers_become_quick() {
        let mut learner = SpinLearner::new();
        run(&mut learner, 1000, 10_000_000);
        run(&mut learner, 100, 20_000);
        assert_eq!(run(&mut learner, 100, 20_000), (100, 100));
    }

    #[test]
    fn a_longer_spin_is_kept_where_it_finds_something_and_given_up_where_not() {
        let mut learner = SpinLearner::with_longest(1_000_000);
        assert_eq!(run(&mut learner, 100, 400_000), (100, 100));
        let (spun, found) = run(&mut learner, 1000, 20_000_000);
        assert!(found == 0 && spun < 20, "{spun}");
    }

    #[test]
    fn two_ends_do_not_stay_in_step() {
        const WAKE: u64 = 60_000;
        let mut ends = [SpinLearner::new(), SpinLearner::new()];
        for end in &mut ends {
            run(end, 100, 500);
        }
        let (mut slow, mut after) = (0, 100_000); // one of them was held up
        for turn in 0..1000 {
            let end = &mut ends[turn % 2];
            let budget = end.budget();
            let late = if budget > after {
                end.hit(after);
                0
            } else {
                if budget > 0 {
                    end.miss();
                }
                end.slept(after - budget + WAKE, budget);
                slow += 1;
                WAKE
            };
            after = late + 500;
        }
        assert!(slow <= 4, "{slow} slow answers after one delay");
    }

    #[test]
    fn a_peer_on_the_same_core_ends_the_spinning() {
        let mut learner = SpinLearner::new();
        let mut spun = 0;
        for _ in 0..2000 {
            let budget = learner.budget();
            if budget > 0 {
                spun += 1;
                learner.miss(); // the peer cannot run
            }
            learner.slept(20_000, budget); // and answers as soon as it can
        }
        assert!(spun < 40, "{spun}");
    }

    #[test]
    fn yields_stay_where_they_pay() {
        let mut learner = YieldLearner::new(false);
        let tried = (0..100).filter(|_| learner.pays().then(|| learner.hit()).is_some()).count();
        assert!(tried > 50, "{tried}");
        let tried = (0..1000).filter(|_| learner.pays().then(|| learner.miss()).is_some()).count();
        assert!(tried < 40, "{tried}");
    }
}
