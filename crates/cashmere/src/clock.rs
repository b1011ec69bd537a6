//! Where the time of a worker goes, by the parts of figures 2 and 3 (sections 3.3 and 3.4).

use std::time::{Duration, Instant};

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

/// Adds up what a process spends its time on.
#[derive(Debug)]
pub(crate) struct Clock {
    on: Spent,
    since: Instant,
    sums: [Duration; Spent::ALL.len()],
}

impl Clock {
    pub(crate) fn new(on: Spent) -> Clock {
        Clock { on, since: Instant::now(), sums: Default::default() }
    }

    /// From now on the time goes to `to`. Gives what it went to before.
    pub(crate) fn switch(&mut self, to: Spent) -> Spent {
        let before = self.on;
        if to != before {
            let now = Instant::now();
            self.sums[before as usize] += now - self.since;
            (self.on, self.since) = (to, now);
        }
        before
    }

    /// What was spent on each part so far, and the clock begins anew.
    pub(crate) fn take(&mut self) -> [Duration; Spent::ALL.len()] {
        let now = Instant::now();
        self.sums[self.on as usize] += now - self.since;
        self.since = now;
        std::mem::take(&mut self.sums)
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
