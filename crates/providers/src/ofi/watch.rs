//! How the control thread sleeps on libfabric's completion queue.
//!
//! A queue with one descriptor is an epoll set: the kernel then does something for it with each packet, whether a
//! thread sleeps on it or not. Where libfabric gives the list of its descriptors instead, nothing is watched while the owner polls,
//! and latency is that of plain `poll` (ADR 0014). But the list that a thread sleeps on becomes stale when a connection
//! comes, goes, or has something to write, and it is of no use when what came was read from a socket into the queue. So it
//! is noted when a thread sleeps on a list, and every other user of the engine looks whether it is still the same, and
//! the queue empty, before it gives up the lock ([`EngineGuard`]).

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

use viaduct_os::poll::{self, Watched};

use super::engine::Engine;
use super::nic::{Core, MESSAGES, lock};

/// The control thread's view of the descriptors.
#[derive(Default)]
pub(super) struct ControlWatch {
    list: Vec<Watched>,
    on_list: bool,
    events: Vec<viaduct_os::epoll::Event>,
}

impl ControlWatch {
    /// Takes the list, under the engine's lock; from here on changes of it wake us. False if there is something to do first.
    pub(super) fn begin(&mut self, engine: &mut Engine, core: &Core) -> bool {
        self.on_list = engine.fabric.has_list();
        if !self.on_list {
            return true;
        }
        let empty = engine.fabric.list(&mut self.list);
        engine.watched.clone_from(&self.list);
        core.pace.list();
        empty
    }

    /// Sleeps. Whether messages came, and nothing else.
    pub(super) fn sleep(&mut self, core: &Core, timeout: Option<Duration>) -> bool {
        self.events.clear();
        if !self.on_list {
            // A failure here (a signal) is a wake-up like any other.
            let _ = core.epoll.wait(&mut self.events, timeout);
            return !self.events.is_empty() && self.events.iter().all(|e| e.token == MESSAGES);
        }
        self.list.push(Watched::read(core.epoll.as_fd().as_raw_fd()));
        let ready = poll::wait(&mut self.list, timeout);
        self.end(core);
        let other = self.list.pop().is_some_and(|own| own.found != 0);
        ready.is_ok_and(|n| n > 0) && !other
    }

    /// The control thread no longer sleeps on the list.
    pub(super) fn end(&mut self, core: &Core) {
        core.pace.listed.store(false, Ordering::Relaxed);
    }
}

/// The engine, in the hands of a thread other than the control thread.
pub(super) struct EngineGuard<'a> {
    core: &'a Core,
    engine: MutexGuard<'a, Engine>,
}

impl Core {
    /// The engine, for the owner of the NIC.
    pub(super) fn hold(&self) -> EngineGuard<'_> {
        EngineGuard { core: self, engine: lock(&self.engine) }
    }
}

impl Drop for EngineGuard<'_> {
    fn drop(&mut self) {
        // Said under the lock, so we see it if the list was taken before.
        if self.core.pace.listed.load(Ordering::Relaxed) && self.engine.is_list_stale() {
            self.core.pace.unlist();
        }
    }
}

impl Deref for EngineGuard<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl DerefMut for EngineGuard<'_> {
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }
}
