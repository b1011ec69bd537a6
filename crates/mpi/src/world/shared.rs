//! Threads take turns on the engine, and wait for it without holding it.

use std::cell::Cell;

use viaduct_os::turn::Turn;
use viaduct_os::wait::WaitPolicy;
use viaduct_via::Sleepers;

use super::engine::Engine;
use super::finalized;
use crate::error::Result;

thread_local! {
    /// What this thread has learnt of its waits.
    static POLICY: Cell<Option<WaitPolicy>> = const { Cell::new(None) };
}

pub(super) struct Shared {
    /// There until the process finalizes.
    engine: Turn<Option<Engine>>,
    sleepers: Sleepers,
}

impl Shared {
    pub(super) fn new(engine: Engine) -> Shared {
        Shared { sleepers: engine.links.nic.sleepers(), engine: Turn::new(Some(engine)) }
    }

    /// Does something in this thread's turn, and wakes other threads that may wait for it.
    #[inline]
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Engine) -> R) -> Result<R> {
        let mut news = false;
        let result = self.engine.with(|engine| {
            let engine = engine.as_mut()?;
            let before = engine.core.changes();
            let result = act(engine);
            news = engine.core.changes() != before || engine.leaves_doubts();
            Some(result)
        });
        if news {
            self.sleepers.wake_others();
        }
        result.ok_or_else(finalized)
    }

    /// Waits until `poll` has an answer. It has the engine while it looks, and only then.
    #[inline]
    pub(super) fn wait<T>(&self, mut poll: impl FnMut(&mut Engine) -> Option<T>) -> Result<T> {
        if let Some(found) = self.with(&mut poll)? {
            return Ok(found);
        }
        let mut policy = POLICY.take().unwrap_or_else(|| WaitPolicy::new(Default::default()));
        let look = || {
            let looked = self.with(|engine| {
                engine.look();
                poll(engine)
            });
            looked.transpose()
        };
        let found = policy.wait(None, look, &self.sleepers);
        POLICY.set(Some(policy));
        found.expect("a wait without a limit ends with an answer")
    }

    /// Ends the engine: connections are closed.
    pub(super) fn close(&self, stats: bool) {
        let engine = self.engine.with(Option::take);
        if let Some(engine) = &engine
            && stats
        {
            engine.print_counts();
        }
        drop(engine);
        self.sleepers.ring();
    }
}
