//! Waiting for several streams, and for other descriptors beside them: the pollable descriptor of the library, and what is
//! ready. For event loops, `poll()` and the tokio face.
//!
//! One descriptor stands for everything on the NIC ([`viaduct_via::driver::Watch`]).

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use viaduct_via::driver;

use crate::engine::Engine;
use crate::library::{Owner, Sovia};
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
pub struct StreamWatch {
    inner: driver::Watch<Engine>,
    owner: Arc<Owner>,
}

impl fmt::Debug for StreamWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamWatch").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Sovia {
    /// Begins to watch. What came before is not announced: look once more, then poll the descriptor.
    ///
    /// # Errors
    /// If there can be no more descriptors, or the library was closed.
    pub fn watch(&self) -> io::Result<StreamWatch> {
        let owner = self.owner().clone();
        let inner = owner.shared.driver.watch().map_err(other)?;
        let watch = StreamWatch { inner, owner };
        watch.take_in();
        Ok(watch)
    }

    /// Takes in what came, for all streams. The calls of streams do so too; this is for a program that watches and calls none.
    pub fn progress(&self) {
        self.owner().shared.with(|engine| while engine.handle() {});
    }
}

impl StreamWatch {
    /// Begins to watch anew, after the descriptor was readable.
    ///
    /// # Errors
    /// If the library was closed.
    pub fn again(&self) -> io::Result<()> {
        self.inner.again().map_err(other)?;
        self.take_in();
        Ok(())
    }

    /// Whether a VI that was cooled has something is seen by a look after the announcement.
    fn take_in(&self) {
        self.owner.shared.with(|engine| while engine.handle() {});
    }
}

impl AsFd for StreamWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
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
