//! Listeners: connections come about behind them, and are fetched with accept (section 3.3).

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use viaduct_os::clock;
use viaduct_via::NetAddress;

use crate::address;
use crate::engine::Engine;
use crate::library::Owner;
use crate::stream::Stream;

/// Takes connections at one address. Dropped, it takes no more, and those that were not accepted are closed.
pub struct Listener {
    owner: Arc<Owner>,
    port: usize,
    address: NetAddress,
    nonblocking: AtomicBool,
}

impl Listener {
    pub(crate) fn new(owner: Arc<Owner>, port: usize, address: NetAddress) -> Listener {
        Listener { owner, port, address, nonblocking: AtomicBool::new(false) }
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Engine, usize) -> T) -> T {
        self.owner.shared.with(|engine| work(engine, self.port))
    }

    /// The next connection.
    ///
    /// # Errors
    /// `WouldBlock` if none waits and the listener does not block.
    pub fn accept(&self) -> io::Result<Stream> {
        self.accept_until(None)
    }

    /// The next connection, if one comes within the time.
    ///
    /// # Errors
    /// `TimedOut`; `WouldBlock` if none waits and the listener does not block.
    pub fn accept_timeout(&self, limit: Duration) -> io::Result<Stream> {
        self.accept_until(Some(clock::now_ns().saturating_add(limit.as_nanos() as u64)))
    }

    /// Whether accept returns at once if no connection waits.
    pub fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Ordering::Relaxed);
    }

    /// Where it listens.
    pub fn local_addr(&self) -> String {
        address::display(&self.address)
    }

    /// Connections one after the other, without end.
    pub fn incoming(&self) -> impl Iterator<Item = io::Result<Stream>> + '_ {
        std::iter::repeat_with(|| self.accept())
    }

    /// The next connection wakes this task. To be followed by another look.
    #[cfg(feature = "tokio")]
    pub(crate) fn leave_waker(&self, waker: &std::task::Waker) {
        self.with(|engine, port| engine.port(port).leave_waker(waker));
    }

    fn accept_until(&self, deadline: Option<u64>) -> io::Result<Stream> {
        let shared = &self.owner.shared;
        let nonblocking = self.nonblocking.load(Ordering::Relaxed);
        let next = |engine: &mut Engine| {
            engine.accept_requests();
            let id = engine.port(self.port).ready.pop_front()?;
            // There is room for one more.
            engine.news.poke();
            let peer = engine.sockets.get_mut(id)?.peer.clone();
            Some((id, peer))
        };
        let next = match nonblocking {
            true => shared.poll_now(next),
            false => shared.wait_at_port(deadline, self.port, next),
        };
        match next {
            Some((id, peer)) => Ok(Stream::new(self.owner.clone(), id, peer)),
            None if nonblocking => Err(io::ErrorKind::WouldBlock.into()),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.owner.is_inherited() {
            self.with(|engine, port| engine.unlisten(port));
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("address", &self.local_addr()).finish_non_exhaustive()
    }
}
