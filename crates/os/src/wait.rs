//! The one waiting policy: spin while it pays, then yield while it pays, then sleep.
//!
//! Design, section 2.2. Waking a sleeper costs about a hundred times what a message costs between two running cores, so
//! a short wait should spin; but a spinning thread on a busy machine keeps the very peer it waits for off the core. Every
//! waiting object therefore learns from its own waits (`learn.rs`) how long spinning is worth while, and all of them stop
//! when there are more runnable threads than CPUs. Idle costs nothing: in the end everybody sleeps.
//!
//! The policy does not know what it waits for: `poll` looks, [`Sleep`] sleeps (a [`crate::bell::BellWord`], mostly).

mod learn;
mod looks;

use std::fmt;
use std::hint::spin_loop;
use std::str::FromStr;
use std::time::Duration;

use rustix::thread::sched_yield;

use crate::crowd::crowded;
use crate::{clock, cpu, knob};
use learn::{SpinLearner, YieldLearner};
pub use looks::{Looks, Waits};

/// How to sleep until something may have changed. See [`crate::bell`] for the protocol behind the three.
pub trait Sleep {
    /// About to sleep; the caller looks once more after it. The ticket is for [`park`](Self::park): a sleeper that was rung
    /// since the announcement does not park.
    fn announce(&self) -> u32;
    /// Not sleeping after all, or awake again.
    fn cancel(&self);
    /// Sleeps until woken or `timeout` is over; may return early.
    fn park(&self, ticket: u32, timeout: Option<Duration>);
}

/// Settings of one waiting object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitConfig {
    /// Whether and how long to spin before sleeping.
    pub spin: Spin,
}

impl Default for WaitConfig {
    fn default() -> WaitConfig {
        WaitConfig { spin: Spin::Auto }
    }
}

/// Whether and how long to spin before sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// As long as experience says it pays, 50 us at most.
    Auto,
    /// Sleep at once.
    Never,
    /// Never sleep: for benchmarks on cores of their own.
    Always,
    /// This long, then sleep.
    For(Duration),
}

impl fmt::Display for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spin::Auto => f.write_str("auto"),
            Spin::Never => f.write_str("never"),
            Spin::Always => f.write_str("always"),
            Spin::For(time) => f.write_str(&knob::show_time(*time)),
        }
    }
}

impl FromStr for Spin {
    type Err = String;

    fn from_str(text: &str) -> Result<Spin, String> {
        match text {
            "auto" => Ok(Spin::Auto),
            "never" => Ok(Spin::Never),
            "always" => Ok(Spin::Always),
            time => {
                let time =
                    knob::time(time, "us").map_err(|_| "auto, never, always, or a time such as 20us")?;
                Ok(if time.is_zero() { Spin::Never } else { Spin::For(time) })
            }
        }
    }
}

/// Waits, and what was learnt from them. One per waiting object.
#[derive(Debug)]
pub struct WaitPolicy {
    /// Looks that found nothing while spinning.
    pub spins: u64,
    /// Times the CPU was offered to others.
    pub yields: u64,
    /// Times asleep.
    pub sleeps: u64,
    config: WaitConfig,
    spin: SpinLearner,
    yielding: YieldLearner,
    /// Nanoseconds after which yields are given up.
    longest_yield: u64,
    /// Waits since the crowd was last looked at.
    turn: u32,
    crowd: fn() -> bool,
}

impl WaitPolicy {
    /// A policy that knows nothing yet.
    pub fn new(config: WaitConfig) -> WaitPolicy {
        WaitPolicy {
            spins: 0,
            yields: 0,
            sleeps: 0,
            config,
            spin: SpinLearner::new(),
            yielding: YieldLearner::new(cpu::machine() == 1),
            longest_yield: LONGEST_YIELD_NS,
            turn: 0,
            crowd: crowded,
        }
    }

    /// A policy that spins for up to `longest` where that pays: for programs that have their CPUs to themselves as a rule, and
    /// exchange so much at a time that an answer takes longer than a wake-up.
    pub fn patient(config: WaitConfig, longest: Duration) -> WaitPolicy {
        let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX).max(learn::MAX_NS);
        // They have what they wait for in common, so that the others of a crowd run on their behalf.
        let longest_yield = u64::MAX;
        WaitPolicy { spin: SpinLearner::with_longest(longest), longest_yield, ..WaitPolicy::new(config) }
    }

    /// What was waited for since the last wait was found so many times by looking, outside of this policy: spinning pays.
    /// A caller that looks a while by itself and waits only for what it did not find says so, or the policy would learn from its
    /// long waits alone.
    #[inline]
    pub fn found_before(&mut self, times: u32) {
        for _ in 0..times.min(CREDIT) {
            self.spin.hit(0);
        }
    }

    /// Waits until `poll` finds something; `None` once `deadline` (on [`clock::now_ns`]) has passed and a last look
    /// found nothing. No deadline: without limit.
    #[inline]
    pub fn wait<T>(
        &mut self,
        deadline: Option<u64>,
        mut poll: impl FnMut() -> Option<T>,
        sleep: &impl Sleep,
    ) -> Option<T> {
        match poll() {
            None => self.wait_on(deadline, poll, sleep),
            found => found,
        }
    }

    fn wait_on<T>(
        &mut self,
        deadline: Option<u64>,
        mut poll: impl FnMut() -> Option<T>,
        sleep: &impl Sleep,
    ) -> Option<T> {
        let auto = self.config.spin == Spin::Auto;
        if auto && self.is_turn_over() {
            self.yields += 1;
            sched_yield();
            if let Some(found) = poll() {
                return Some(found);
            }
        }
        let budget = self.budget();
        let mut spun = 0;
        if budget > 0 {
            match self.spin(budget, deadline, &mut poll) {
                Phase::Found(found, took) => {
                    if auto {
                        self.spin.hit(took);
                    }
                    return Some(found);
                }
                Phase::Late => return poll(),
                Phase::Nothing(took) => spun = took,
                // The few looks before the crowd was noticed found nothing as well: in a crowd even they should stop.
                Phase::Crowded => {}
            }
            if auto {
                self.spin.miss();
            }
        }
        if auto && self.yielding.pays() {
            let found = self.yield_a_few_times(&mut poll);
            if found.is_some() {
                return found;
            }
        }
        self.sleep(deadline, poll, sleep, spun)
    }

    /// Offers the CPU to others a few times, and looks after each. One that takes longer than a sleep and its wake-up does not pay,
    /// whatever it finds: so many other threads are in front that each of them, having nothing to do but to look, keeps the
    /// CPU from those that have. Then sleeping is better for all: the kernel knows which thread can go on.
    fn yield_a_few_times<T>(&mut self, poll: &mut impl FnMut() -> Option<T>) -> Option<T> {
        let start = clock::now_ns();
        for _ in 0..YIELDS {
            self.yields += 1;
            sched_yield();
            let found = poll();
            let late = clock::now_ns() - start > self.longest_yield;
            match found {
                None if !late => {}
                Some(_) if !late => {
                    self.yielding.hit();
                    return found;
                }
                _ => {
                    self.yielding.miss();
                    return found;
                }
            }
        }
        self.yielding.miss();
        None
    }

    /// Whether this wait leaves its CPU to other threads at once. Two threads that answer each other fast enough never sleep:
    /// on a crowded machine they would keep their CPUs until the kernel takes these away, and a third one, which it wakes
    /// beside them, would get one answer for each of its slices. After a turn of so many waits they yield once: an answer that
    /// comes within a microsecond would keep them from falling asleep.
    fn is_turn_over(&mut self) -> bool {
        self.turn += 1;
        if self.turn < TURN {
            return false;
        }
        self.turn = 0;
        (self.crowd)()
    }

    /// Nanoseconds to spin in this wait.
    fn budget(&mut self) -> u64 {
        // With one CPU nothing can change while we have it.
        let alone = cpu::machine() == 1;
        match self.config.spin {
            Spin::Always => u64::MAX,
            Spin::Never => 0,
            Spin::Auto | Spin::For(_) if alone => 0,
            Spin::Auto => self.spin.budget(),
            Spin::For(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1),
        }
    }

    fn spin<T>(
        &mut self,
        budget: u64,
        deadline: Option<u64>,
        poll: &mut impl FnMut() -> Option<T>,
    ) -> Phase<T> {
        let mut start = 0;
        loop {
            // The clock costs as much as several looks, and a fast answer should cost no clock at all.
            for _ in 0..LOOKS_PER_CLOCK {
                spin_loop();
                if let Some(found) = poll() {
                    let took = if start == 0 { 0 } else { clock::now_ns() - start };
                    return Phase::Found(found, took);
                }
                self.spins += 1;
            }
            let now = clock::now_ns();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Phase::Late;
            }
            if start == 0 {
                start = now;
                if self.config.spin == Spin::Auto && (self.crowd)() {
                    return Phase::Crowded;
                }
            } else if now - start >= budget && self.config.spin != Spin::Always {
                return Phase::Nothing(now - start);
            }
        }
    }

    fn sleep<T>(
        &mut self,
        deadline: Option<u64>,
        mut poll: impl FnMut() -> Option<T>,
        sleep: &impl Sleep,
        spun: u64,
    ) -> Option<T> {
        let start = clock::now_ns();
        loop {
            let ticket = sleep.announce();
            if let Some(found) = poll() {
                sleep.cancel();
                return Some(found);
            }
            let left = deadline.map(|deadline| deadline.saturating_sub(clock::now_ns()));
            if left == Some(0) {
                sleep.cancel();
                return poll();
            }
            self.sleeps += 1;
            sleep.park(ticket, left.map(Duration::from_nanos));
            sleep.cancel();
            if let Some(found) = poll() {
                if self.config.spin == Spin::Auto {
                    self.spin.slept(clock::now_ns() - start, spun);
                }
                return Some(found);
            }
        }
    }
}

/// Looks between two readings of the clock.
const LOOKS_PER_CLOCK: u32 = 32;
/// Waits that a thread has in a crowd before it leaves its CPU to others: some tens of microseconds, where a slice of the
/// kernel's is milliseconds. Eight clients of one server on two CPUs: with 4, 16, 64 and 256 the requests a second grow, and
/// so do the p99 and the distance between clients; from 8 to 64 all are better than over Unix sockets.
const TURN: u32 = 32;
/// Hits that make up for misses: enough to go from never to mostly.
const CREDIT: u32 = 4;
/// Yields before sleeping: enough for one peer on this core to run and answer.
const YIELDS: u32 = 4;
/// The longest time that yields may take. Eight clients on two CPUs, each with a thread of one server over a stream: with 30 to
/// 100 us four times the requests a second of Unix sockets, with 200 us sometimes, without a limit never. A server that is one thread
/// has fewer with 30 us than with 100 and more.
const LONGEST_YIELD_NS: u64 = 100_000;

enum Phase<T> {
    Found(T, u64),
    Nothing(u64),
    Crowded,
    Late,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// None of its sleeps lasts.
    struct Nap;

    impl Sleep for Nap {
        fn announce(&self) -> u32 {
            0
        }

        fn cancel(&self) {}

        fn park(&self, _ticket: u32, _timeout: Option<Duration>) {}
    }

    /// Waits whose second look finds something. Returns how many of them offered the CPU to others.
    fn yields_of(waits: u32, spin: Spin, crowd: fn() -> bool) -> u64 {
        let mut policy = WaitPolicy { crowd, ..WaitPolicy::new(WaitConfig { spin }) };
        for _ in 0..waits {
            let mut looks = 0;
            let look = || {
                looks += 1;
                (looks == 2).then_some(())
            };
            assert!(policy.wait(None, look, &Nap).is_some());
        }
        policy.yields
    }

    /// Counts sleeps, none of which lasts.
    #[derive(Default)]
    struct Naps(std::cell::Cell<u32>);

    impl Sleep for Naps {
        fn announce(&self) -> u32 {
            0
        }

        fn cancel(&self) {}

        fn park(&self, _ticket: u32, _timeout: Option<Duration>) {
            self.0.set(self.0.get() + 1);
        }
    }

    /// Waits whose answer comes while they sleep, with so many found by the caller itself before each. Returns how many of
    /// the last hundred did not spin.
    fn without_a_spin(found_before: u32) -> usize {
        let naps = Naps::default();
        let crowd = || false;
        let mut policy = WaitPolicy { crowd, ..WaitPolicy::new(WaitConfig { spin: Spin::Auto }) };
        let mut idle = 0;
        for wait in 0..200 {
            policy.found_before(found_before);
            let (before, sleeps) = (policy.spins, naps.0.get());
            let found = policy.wait(None, || (naps.0.get() > sleeps).then_some(()), &naps);
            assert!(found.is_some());
            idle += usize::from(wait >= 100 && policy.spins == before);
        }
        idle
    }

    #[test]
    fn a_caller_that_finds_most_by_itself_goes_on_spinning_for_the_rest() {
        if cpu::machine() == 1 {
            return;
        }
        assert_eq!(without_a_spin(10), 0);
        assert!(without_a_spin(0) > 50, "spins that find nothing end");
    }

    /// Yields in a thousand waits for something that is there after each, if they may take so long.
    fn yields_of_waits(longest_yield: u64) -> u64 {
        let yielding = YieldLearner::new(true);
        let mut policy = WaitPolicy { yielding, longest_yield, ..WaitPolicy::new(WaitConfig::default()) };
        for _ in 0..1000 {
            if policy.yielding.pays() {
                assert!(policy.yield_a_few_times(&mut || Some(())).is_some());
            }
        }
        policy.yields
    }

    #[test]
    fn yields_that_take_too_long_end() {
        assert_eq!(yields_of_waits(u64::MAX), 1000);
        assert!(yields_of_waits(0) < 100, "each was late");
    }

    #[test]
    fn quick_answers_do_not_keep_a_cpu_from_a_crowd() {
        if cpu::machine() == 1 {
            return;
        }
        assert_eq!(yields_of(4 * TURN, Spin::Auto, || true), 4);
        assert_eq!(yields_of(4 * TURN, Spin::Auto, || false), 0);
        assert_eq!(yields_of(4 * TURN, Spin::Always, || true), 0);
    }
}
