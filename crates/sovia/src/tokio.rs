//! Streams and listeners for programs on tokio: `AsyncRead` and `AsyncWrite` over VIA. Whatever takes a tokio stream
//! (hyper, tonic, codecs) works on these, unchanged above the connector.
//!
//! ```text
//!   Stream, Listener      try; nothing there: look again after the other tasks, while that pays; then leave a waker
//!        │
//!   Sockets ── driver     one task for all of them sleeps on the pollable descriptor, takes packets in, wakes
//!        │
//!   Sovia, StreamWatch    the library
//! ```
//!
//! A look is cheap and a sleep is not, so a task whose answer is near is polled again instead of put to sleep (`os`'
//! learnt budget, 10 to 50 µs, and 200 µs after a write, whose answer may have to be woken). Idle costs nothing.
//!
//! # Cancel safety
//!
//! `read`, `write`, `accept` and `peek` of these types may be dropped at any await, as a branch of `select!` is: no byte and no connection
//! is lost, and what was written once is written. `read_exact` and `write_all` of tokio's traits may not: they count inside the future.
//!
//! ```
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use viaduct_sovia::{Config, Sovia, tokio::Sockets};
//! use viaduct_via::Nic;
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
//! # runtime.block_on(async {
//! let hub = viaduct_providers::loopback::Hub::new();
//! let server = Sockets::new(Sovia::open(Nic::open(hub.provider())?, Config::default())?)?;
//! let client = Sockets::new(Sovia::open(Nic::open(hub.provider())?, Config::default())?)?;
//!
//! let listener = server.listen("via://:7000", 16)?;
//! let mut asking = client.connect("via://localhost:7000").await?;
//! let mut answering = listener.accept().await?;
//! asking.write_all(b"how far is it?").await?;
//! asking.flush().await?;
//! let mut question = [0; 14];
//! answering.read_exact(&mut question).await?;
//! assert_eq!(&question, b"how far is it?");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod driver;
mod stream;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use self::driver::Driver;
pub use self::stream::Stream;
use self::stream::unless_blocked;
use crate::library::Sovia;

/// The sockets library inside a tokio runtime. Clones are the same.
#[derive(Clone)]
pub struct Sockets {
    sovia: Sovia,
    driver: Arc<Driver>,
}

impl Sockets {
    /// Takes a library into the runtime that this is called in, whose I/O driver must be enabled.
    ///
    /// # Errors
    /// If the call is not made in a runtime with its I/O driver enabled, or there can be no more descriptors.
    pub fn new(sovia: Sovia) -> io::Result<Sockets> {
        let driver = Driver::start(&sovia)?;
        Ok(Sockets { sovia, driver })
    }

    /// Connects to `via://host:port`, or to a name as VIA writes it.
    ///
    /// # Errors
    /// As of [`Sovia::connect`].
    ///
    /// # Cancel safety
    /// Dropping the future gives the stream up: a connection that is being made goes on behind it until it stands or its time is over, and is
    /// closed then.
    pub async fn connect(&self, address: &str) -> io::Result<Stream> {
        self.call(address, |sovia, address| sovia.connect(address)).await
    }

    /// Connects, or fails when the time is over.
    ///
    /// # Errors
    /// As of [`Sovia::connect_timeout`].
    ///
    /// # Cancel safety
    /// As of [`connect`](Self::connect).
    pub async fn connect_timeout(&self, address: &str, limit: Duration) -> io::Result<Stream> {
        self.call(address, move |sovia, address| sovia.connect_timeout(address, limit)).await
    }

    /// Listens at an address. Up to `backlog` connections stand before the program accepts them; clients beyond that wait
    /// in their `connect`.
    ///
    /// # Errors
    /// As of [`Sovia::listen`].
    pub fn listen(&self, address: &str, backlog: usize) -> io::Result<Listener> {
        let inner = self.sovia.listen(address, backlog)?;
        inner.set_nonblocking(true);
        Ok(Listener { inner, driver: self.driver.clone() })
    }

    /// Takes over a stream that was made elsewhere, of the same library.
    ///
    /// # Errors
    /// Never so far; the stream becomes one that does not block.
    pub fn adopt(&self, stream: crate::Stream) -> io::Result<Stream> {
        Stream::new(stream, self.driver.clone())
    }

    /// The library itself.
    pub fn sovia(&self) -> &Sovia {
        &self.sovia
    }

    /// Connecting waits for another process, and the library waits on its own thread for that.
    async fn call(
        &self,
        address: &str,
        connect: impl FnOnce(&Sovia, &str) -> Result<crate::Stream, crate::Error> + Send + 'static,
    ) -> io::Result<Stream> {
        let (sovia, address) = (self.sovia.clone(), address.to_owned());
        let connected = ::tokio::task::spawn_blocking(move || connect(&sovia, &address)).await;
        self.adopt(connected.map_err(io::Error::other)??)
    }
}

/// Takes connections at one address.
pub struct Listener {
    inner: crate::Listener,
    driver: Arc<Driver>,
}

impl Listener {
    /// The next connection.
    ///
    /// # Errors
    /// As of [`crate::Listener::accept`], but that it waits.
    ///
    /// # Cancel safety
    /// A connection that comes while no future is there is given to the next one: none is lost.
    pub async fn accept(&self) -> io::Result<Stream> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// The next connection, for a task that polls. Of several tasks the one that asked last is woken.
    ///
    /// # Errors
    /// As of [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let next = || unless_blocked(self.inner.accept());
        let found = next().or_else(|| {
            // The library's own thread accepts: no message has to be announced for that.
            self.inner.leave_waker(cx.waker());
            next()
        });
        match found {
            Some(stream) => Poll::Ready(stream.and_then(|s| Stream::new(s, self.driver.clone()))),
            None => Poll::Pending,
        }
    }

    /// Where it listens.
    pub fn local_addr(&self) -> String {
        self.inner.local_addr()
    }
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets").finish_non_exhaustive()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
