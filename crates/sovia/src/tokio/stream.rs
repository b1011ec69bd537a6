//! One stream: tokio's traits, and the calls of its `TcpStream`.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::driver::{Driver, WaitPlace};
use crate::socket::Direction;

/// A connected stream. Dropped, it closes; FIN and FINACK are exchanged behind it.
pub struct Stream {
    inner: crate::Stream,
    reading: WaitPlace,
    writing: WaitPlace,
    driver: Arc<Driver>,
}

impl Stream {
    pub(super) fn new(inner: crate::Stream, driver: Arc<Driver>) -> io::Result<Stream> {
        inner.set_nonblocking(true)?;
        let place = |direction| WaitPlace::new(inner.id(), direction, driver.looks());
        let (reading, writing) = (place(Direction::Read), place(Direction::Write));
        Ok(Stream { inner, reading, writing, driver })
    }

    /// Sends, or waits for room. A stream that has sent a question soon reads the answer.
    fn sent(&self, cx: &mut Context<'_>, send: impl Fn() -> io::Result<usize>) -> Poll<io::Result<usize>> {
        let sent = self.driver.poll(&self.writing, cx, || unless_blocked(send()))?;
        if sent.is_ready() {
            self.driver.expect(&self.reading);
        }
        sent
    }

    /// Copies out what the next read would bring, and leaves it there.
    ///
    /// # Errors
    /// As of [`crate::Stream::peek`], but that it waits.
    ///
    /// # Cancel safety
    /// Nothing is taken from the stream, so nothing is lost.
    pub async fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        std::future::poll_fn(|cx| {
            let peeked = self.driver.poll(&self.reading, cx, || unless_blocked(self.inner.peek(into)))?;
            peeked.map(|n| n)
        })
        .await
    }

    /// Whether small requests go at once instead of being combined until flushed or read.
    ///
    /// # Errors
    /// Never: the call has the form of std's.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.inner.set_nodelay(on)
    }

    /// Whether small requests go at once.
    ///
    /// # Errors
    /// Never: the call has the form of std's.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.inner.nodelay()
    }

    /// What closing does to what is still under way; see [`crate::Stream::set_linger`]. A time would block the runtime, so
    /// it should be zero or none.
    ///
    /// # Errors
    /// Never: the call has the form of std's.
    pub fn set_linger(&self, limit: Option<Duration>) -> io::Result<()> {
        self.inner.set_linger(limit)
    }

    /// The address of the other end: of a listener as it was asked for, of a client the name of its NIC.
    pub fn peer_addr(&self) -> String {
        self.inner.peer_addr()
    }

    /// The provider that carries the bytes, while connected.
    pub fn provider(&self) -> Option<&'static str> {
        self.inner.provider()
    }

    /// The stream for threads that block.
    ///
    /// # Errors
    /// Never: the call has the form of std's.
    pub fn into_std(self) -> io::Result<crate::Stream> {
        let inner = self.inner.try_clone()?;
        inner.set_nonblocking(false)?;
        Ok(inner)
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let target = into.initialize_unfilled();
        let attempt = || unless_blocked((&self.inner).read(target));
        let read = ready!(self.driver.poll(&self.reading, cx, attempt)?)?;
        into.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.sent(cx, || (&self.inner).write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.sent(cx, || (&self.inner).write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Said again and again by some, so it is no sign of an answer to come: writing was.
        Poll::Ready((&self.inner).flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.inner.shutdown(Shutdown::Write) {
            // The peer was quicker.
            Err(e) if e.kind() == ErrorKind::NotConnected => Poll::Ready(Ok(())),
            done => Poll::Ready(done),
        }
    }
}

pub(super) fn unless_blocked<T>(result: io::Result<T>) -> Option<io::Result<T>> {
    match result {
        Err(e) if e.kind() == ErrorKind::WouldBlock => None,
        done => Some(done),
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
