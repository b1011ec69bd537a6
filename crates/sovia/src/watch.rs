//! Waiting for several streams, and for other descriptors beside them: the pollable descriptor of the library, and what is
//! ready. For event loops, `poll()` and the tokio face.
//!
//! One descriptor stands for everything on the NIC. A thread that waits holds a [`Watch`], looks once more, and polls the
//! descriptor; several threads may do so. It stays readable until the last of them has left, because what one of them
//! clears another could miss.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::library::{Owner, Shared, Sovia};
use crate::listener::Listener;
use crate::socket::Outcome;
use crate::stream::Stream;
use crate::table::SocketId;

/// What a stream can do without waiting.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Readiness {
    /// A read returns at once: with bytes, the end, or an error.
    pub read: bool,
    /// A write takes at least a byte, or fails.
    pub write: bool,
    /// The connection has ended or broken.
    pub ended: bool,
}

/// Makes the pollable descriptor readable at the next piece of news, while it lives.
pub struct Watch {
    owner: Arc<Owner>,
    fd: Arc<OwnedFd>,
}

impl Sovia {
    /// Begins to watch. What came before is not announced: look once more, then poll the descriptor.
    pub fn watch(&self) -> io::Result<Watch> {
        let owner = self.owner();
        let shared = &owner.shared;
        let mut engine = shared.lock();
        let fd = match &engine.pollable {
            Some(fd) => fd.clone(),
            None => {
                let fd = engine.nic.fd().map_err(other)?.try_clone_to_owned()?;
                engine.pollable.insert(Arc::new(fd)).clone()
            }
        };
        if shared.watchers.load(Ordering::Relaxed) == 0 {
            engine.nic.arm().map_err(other)?;
        }
        shared.watchers.fetch_add(1, Ordering::SeqCst);
        // Whether a VI that was cooled has something is seen by a look after the announcement, and only by that one.
        while engine.handle() {}
        shared.release(engine);
        Ok(Watch { owner: owner.clone(), fd })
    }

    /// Takes in what came, for all streams. The calls of streams do so too; this is for a program that watches and calls none.
    pub fn progress(&self) {
        let shared = &self.owner().shared;
        let mut engine = shared.lock();
        while engine.handle() {}
        shared.release(engine);
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let shared = &self.owner.shared;
        let mut engine = shared.lock();
        if shared.watchers.fetch_sub(1, Ordering::SeqCst) == 1 {
            engine.nic.disarm();
        }
        shared.release(engine);
    }
}

impl Shared {
    /// Something was done that rings no bell.
    #[inline]
    pub(crate) fn tell_watchers(&self) {
        if self.watchers.load(Ordering::SeqCst) > 0 {
            self.sleepers.ring();
        }
    }
}

impl Stream {
    /// What it can do now. Asking sends what is held, as a read would.
    pub fn readiness(&self) -> Readiness {
        self.with(readiness)
    }
}

impl Listener {
    /// Whether accept returns at once.
    pub fn ready(&self) -> bool {
        self.with(|engine, port| {
            engine.accept_requests();
            !engine.port(port).ready.is_empty()
        })
    }
}

fn readiness(engine: &mut Engine, id: SocketId) -> Readiness {
    let read = engine.read(id, &mut [0], true) != Outcome::Wait;
    let Some(socket) = engine.sockets.get_mut(id) else {
        return Readiness { read: true, write: true, ended: true };
    };
    let write = socket.ended || socket.conn.as_mut().is_none_or(|conn| conn.has_room());
    Readiness { read, write, ended: socket.ended }
}

fn other(error: viaduct_via::Error) -> io::Error {
    crate::Error::from(error).into()
}
