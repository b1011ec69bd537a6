//! Threads take turns on the engine, and wait for it without holding it: its driver.

use std::cell::Cell;

use viaduct_os::wait::{WaitConfig, WaitPolicy};
use viaduct_via::driver::Driver;

use super::engine::Engine;
use super::{failed, finalized};
use crate::error::Result;

thread_local! {
    /// What this thread has learnt of its waits.
    static POLICY: Cell<Option<WaitPolicy>> = const { Cell::new(None) };
}

pub(super) struct Shared {
    driver: Driver<Engine>,
    wait: WaitConfig,
}

impl Shared {
    pub(super) fn new(engine: Engine, wait: WaitConfig) -> Shared {
        Shared { driver: Driver::new(engine), wait }
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
            engine.tell_others();
            result
        });
        done.ok_or_else(finalized)
    }

    /// Waits until `poll` has an answer. It has the engine while it looks, and only then.
    #[inline]
    pub(super) fn wait<T>(&self, mut poll: impl FnMut(&mut Engine) -> Option<T>) -> Result<T> {
        if let Some(found) = self.with(&mut poll)? {
            return Ok(found);
        }
        let mut policy = POLICY.take().unwrap_or_else(|| WaitPolicy::new(self.wait));
        let found = self.driver.wait_with(&mut policy, None, |engine| {
            engine.look();
            engine.tell_others();
            poll(engine)
        });
        POLICY.set(Some(policy));
        found.map_err(|_| finalized())
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
