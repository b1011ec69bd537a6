//! Where the time of a worker goes, by the parts of figures 2 and 3 (sections 3.3 and 3.4).

use std::time::{Duration, Instant};

use viaduct_os::clock::Tsc;

/// A part of the time of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Spent {
    /// The program itself, with its cache misses and the kernel's part of a fault.
    User,
    /// The library: entries, twins, diffs, mappings.
    Protocol,
    /// Messages and remote writes: sending, waiting for pages and acknowledgements, answering other nodes.
    Message,
    /// Waiting at locks, barriers and flags.
    Wait,
    /// Of servers: all but their sleep.
    Server,
}

impl Spent {
    /// All of them.
    pub const ALL: [Spent; 5] = [Spent::User, Spent::Protocol, Spent::Message, Spent::Wait, Spent::Server];

    /// The name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Spent::User => "user",
            Spent::Protocol => "protocol",
            Spent::Message => "message",
            Spent::Wait => "wait",
            Spent::Server => "servers",
        }
    }
}

/// Adds up what a process spends its time on. It is read several times in every barrier, so that it counts cycles, and takes
/// the length of one from the system's clock when the sums are taken.
#[derive(Debug)]
pub(crate) struct Clock {
    on: Spent,
    since: u64,
    /// In cycles.
    sums: [u64; Spent::ALL.len()],
    /// When the sums began.
    begun: Instant,
}

impl Clock {
    pub(crate) fn new(on: Spent) -> Clock {
        Clock { on, since: Tsc::about(), sums: [0; Spent::ALL.len()], begun: Instant::now() }
    }

    /// From now on the time goes to `to`. Gives what it went to before.
    #[inline]
    pub(crate) fn switch(&mut self, to: Spent) -> Spent {
        let before = self.on;
        if to != before {
            self.settle(Tsc::about());
            self.on = to;
        }
        before
    }

    /// The counters of two CPUs may be a little apart: time never runs backwards.
    fn settle(&mut self, now: u64) {
        self.sums[self.on as usize] += now.saturating_sub(self.since);
        self.since = now;
    }

    /// What was spent on each part so far, and the clock begins anew. The parts together are the time since it began.
    pub(crate) fn take(&mut self) -> [Duration; Spent::ALL.len()] {
        let now = Instant::now();
        self.settle(Tsc::about());
        let passed = now - std::mem::replace(&mut self.begun, now);
        let sums = std::mem::take(&mut self.sums);
        let all = sums.iter().sum::<u64>().max(1) as f64;
        sums.map(|cycles| passed.mul_f64(cycles as f64 / all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_goes_to_one_part() {
        let begun = Instant::now();
        let mut clock = Clock::new(Spent::User);
        let mut before = Spent::User;
        for part in [Spent::Protocol, Spent::Message, Spent::Message, Spent::Wait, Spent::User] {
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(clock.switch(part), before);
            before = part;
        }
        let sums = clock.take();
        let all = begun.elapsed();
        assert!(sums.iter().sum::<Duration>() <= all);
        assert!(sums[Spent::Message as usize] >= Duration::from_millis(2));
        assert_eq!(sums[Spent::Server as usize], Duration::ZERO);
        assert!(clock.take().iter().sum::<Duration>() < all);
    }
}
