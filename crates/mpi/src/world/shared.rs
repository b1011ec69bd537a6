//! Threads take turns on the engine, and wait for it without holding it: its driver.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use viaduct_os::wait::{WaitConfig, WaitPolicy};
use viaduct_via::driver::Driver;

use super::engine::Engine;
use super::{failed, finalized};
use crate::error::Result;

thread_local! {
    /// What this thread has learnt of its waits.
    static POLICY: Cell<Option<WaitPolicy>> = const { Cell::new(None) };
}

/// The longest spin where each rank can have a CPU: a window of long messages takes that long, and to wake a sender for each
/// acknowledgement costs its receiver as much as the message.
const LONGEST: Duration = Duration::from_millis(1);

/// Times in a row that a receive yields before it waits by the policy, which may want it to sleep for the sake of others.
const MOST_HANDOVERS: u32 = 256;

pub(super) struct Shared {
    driver: Driver<Engine>,
    wait: WaitConfig,
    /// More ranks than CPUs for them on this host.
    pub(super) crowded: bool,
    /// How often receives may still leave their core to a peer before they wait; 0 while no peer shares it.
    handovers: AtomicU32,
}

impl Shared {
    pub(super) fn new(engine: Engine, wait: WaitConfig, crowded: bool) -> Shared {
        Shared { driver: Driver::new(engine), wait, crowded, handovers: AtomicU32::new(0) }
    }

    /// From now on a thread of the driver's accepts connections while the program computes.
    pub(super) fn serve(&self) -> Result<()> {
        self.driver.start().map_err(|why| failed("starting a thread")(&why))
    }

    /// Does something in this thread's turn. Fails once the process has finalized.
    #[inline]
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Engine) -> R) -> Result<R> {
        let done = self.driver.with(|engine| {
            let result = act(engine);
            engine.tell_others(0);
            result
        });
        done.ok_or_else(finalized)
    }

    /// Waits until `poll` has an answer. It has the engine while it looks, and only then.
    #[inline]
    pub(super) fn wait<T>(&self, mut poll: impl FnMut(&mut Engine) -> Option<T>) -> Result<T> {
        // Most that is waited for is there, or in the queue: one turn.
        let (found, quick) = self.with(|engine| {
            let found = poll(engine).or_else(|| {
                engine.look();
                poll(engine)
            });
            (found, engine.take_quick())
        })?;
        if let Some(found) = found {
            return Ok(found);
        }
        let mut policy = POLICY.take().unwrap_or_else(|| match self.crowded {
            true => WaitPolicy::new(self.wait),
            false => WaitPolicy::patient(self.wait, LONGEST),
        });
        policy.found_before(quick);
        let before = (policy.yields, policy.sleeps);
        let mut waiting = 0;
        let found = self.driver.wait_with(&mut policy, None, |engine| {
            engine.waiting += 1 - std::mem::replace(&mut waiting, 1);
            // Before it may sleep it has taken in everything: no peer rings for what is there already.
            let found = loop {
                let more = engine.look();
                engine.tell_others(1);
                let found = poll(engine);
                if found.is_some() || !more {
                    break found;
                }
            };
            engine.waiting -= u32::from(found.is_some());
            found
        });
        // One yield that found it: the peer has this core in turn with us, and so it will have it next time.
        let shares = (policy.yields, policy.sleeps) == (before.0 + 1, before.1);
        self.handovers.store(if shares { MOST_HANDOVERS } else { 0 }, Ordering::Relaxed);
        POLICY.set(Some(policy));
        found.map_err(|_| finalized())
    }

    /// Leaves the core to the peer that shares it, if one does. False: it does not, or had it so often that this thread
    /// waits as ever.
    #[inline]
    pub(super) fn hand_over(&self) -> bool {
        let left = self.handovers.load(Ordering::Relaxed);
        if left == 0 {
            return false;
        }
        self.handovers.store(left - 1, Ordering::Relaxed);
        std::thread::yield_now();
        true
    }

    /// Ends the engine: connections are closed.
    pub(super) fn close(&self, stats: bool) {
        if stats {
            let _ = self.driver.with(|engine| engine.print_counts());
        }
        // Closed already: another thread has finalized.
        let _ = self.driver.close();
    }
}
