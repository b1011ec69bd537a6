//! What a layer says in its turn, for the driver to act on afterwards, and how the service thread rests.

use std::task::Waker;
use std::time::Duration;

use viaduct_os::clock;

const WAKE: u8 = 1;
const POKE: u8 = 2;
const TASK: u8 = 4;

/// What a layer has to say after a turn.
#[derive(Debug, Default)]
pub struct News {
    said: u8,
    tasks: Vec<Waker>,
}

impl News {
    /// Threads that wait, and watchers of the descriptor, look again: something was done that they may wait for.
    #[inline]
    pub fn wake(&mut self) {
        self.said |= WAKE;
    }

    /// The service thread ticks soon.
    #[inline]
    pub fn poke(&mut self) {
        self.said |= POKE;
    }

    /// Wakes a task. Each object keeps the wakers of the tasks that wait for it, so that others are left alone.
    #[inline]
    pub fn task(&mut self, task: Waker) {
        self.said |= TASK;
        self.tasks.push(task);
    }

    #[inline(always)]
    pub(super) fn said(&self) -> u8 {
        self.said
    }

    pub(super) fn wakes(&self) -> bool {
        self.said & WAKE != 0
    }

    pub(super) fn pokes(&self) -> bool {
        self.said & POKE != 0
    }

    /// Ends the news, with the tasks that are to be woken.
    pub(super) fn end(&mut self) -> Vec<Waker> {
        self.said = 0;
        std::mem::take(&mut self.tasks)
    }
}

/// How the service thread rests until there is something to do for it. A connection request, an answer, a peer's end and a
/// poke wake it from either place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    pub(super) on_bell: bool,
    until: Option<u64>,
}

impl Rest {
    /// Parked, which costs senders nothing. Messages do not wake it: the layer's users take them in.
    pub fn parked() -> Rest {
        Rest { on_bell: false, until: None }
    }

    /// Asleep on the NIC's bell, so that every message wakes it, by a system call of its sender.
    pub fn on_bell() -> Rest {
        Rest { on_bell: true, until: None }
    }

    /// Not beyond this time of [`clock::now_ns`], if there is one. Of several the earliest counts.
    pub fn until(self, at: Option<u64>) -> Rest {
        Rest { until: self.until.into_iter().chain(at).min(), ..self }
    }

    /// How long it lasts, if it ends by itself and not after `limit`.
    pub(super) fn time(self, limit: Option<Duration>) -> Option<Duration> {
        let left = self.until.map(|at| Duration::from_nanos(at.saturating_sub(clock::now_ns())));
        left.into_iter().chain(limit).min()
    }

    /// Whether it is over by the clock.
    pub(super) fn is_over(self) -> bool {
        self.until.is_some_and(|at| at <= clock::now_ns())
    }
}
