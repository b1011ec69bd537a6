//! Streams: the calls of std's `TcpStream`, over VIA.
//!
//! SOVIA, sections 4.2 and 4.3. A read sends what is held, so that a question is never kept waiting by the timer while its
//! answer is waited for. Dropping the last clone closes; closing returns at once, and FIN and FINACK are exchanged behind it.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use viaduct_os::clock;
use viaduct_os::wait::WaitPolicy;
use viaduct_via::{Driver, NetAddress};

use crate::address;
use crate::config::{Handling, Path};
use crate::engine::Engine;
use crate::library::{NOT_CLOSED, Owner};
use crate::socket::{Direction, Outcome};
use crate::table::SocketId;

/// The answer of a library that is closed.
const GONE: Outcome = Outcome::Failed(ErrorKind::NotConnected);

/// A connected stream.
pub struct Stream(Arc<Handle>);

pub(crate) struct Handle {
    pub(crate) owner: Arc<Owner>,
    /// That of the owner, at hand.
    driver: Driver<Engine>,
    pub(crate) id: SocketId,
    peer: NetAddress,
    /// Longer requests than this are lent.
    lend_from: usize,
    pub(crate) nonblocking: AtomicBool,
    /// In nanoseconds; 0 is none.
    read_timeout: AtomicU64,
    pub(crate) write_timeout: AtomicU64,
    /// In nanoseconds, and one more; 0 is none.
    linger: AtomicU64,
    reading: Mutex<WaitPolicy>,
    writing: Mutex<WaitPolicy>,
    ended: bool,
}

impl Stream {
    pub(crate) fn new(owner: Arc<Owner>, id: SocketId, peer: NetAddress) -> Stream {
        let wait = owner.shared.wait;
        let lends = owner.shared.with(|engine| engine.lends(id));
        let lend_from = if lends { owner.shared.copy_max } else { usize::MAX };
        Stream(Arc::new(Handle {
            driver: owner.shared.driver.clone(),
            owner,
            id,
            peer,
            lend_from,
            nonblocking: AtomicBool::new(false),
            read_timeout: AtomicU64::new(0),
            write_timeout: AtomicU64::new(0),
            linger: AtomicU64::new(0),
            reading: Mutex::new(WaitPolicy::new(wait)),
            writing: Mutex::new(WaitPolicy::new(wait)),
            ended: false,
        }))
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn id(&self) -> SocketId {
        self.0.id
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Engine, SocketId) -> T) -> T {
        self.0.with(work)
    }

    /// Another handle on this stream, for another thread.
    ///
    /// # Errors
    /// Never: the call has the form of std's.
    pub fn try_clone(&self) -> io::Result<Stream> {
        Ok(Stream(self.0.clone()))
    }

    /// Copies out what the next read would bring, and leaves it there.
    ///
    /// # Errors
    /// As of a read: `WouldBlock` if nothing is there and the stream does not block, or its time for reads is over; `ConnectionReset` if
    /// the peer is gone.
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.0.receive(into, true)
    }

    /// Closes one direction or both, for all clones.
    ///
    /// # Errors
    /// Never: the call has the form of std's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.with(|engine, id| {
            let Some(socket) = engine.sockets.get_mut(id) else { return };
            if how != Shutdown::Write {
                socket.shutdown_read(&mut engine.nic);
            }
            if how != Shutdown::Read {
                socket.shutdown_write(&mut engine.nic, &mut engine.pool);
            }
            engine.wake(id);
        });
        Ok(())
    }

    /// Closes the stream, if this is its last clone. With a linger time it waits for the peer; an error says that the
    /// time was over before the peer had everything.
    ///
    /// # Errors
    /// `TimedOut`, or what ended the connection, if the stream lingers and not everything was delivered.
    pub fn close(self) -> io::Result<()> {
        match Arc::into_inner(self.0) {
            Some(mut handle) => handle.end(),
            None => Ok(()),
        }
    }

    /// How long a read waits; `None` is without limit.
    ///
    /// # Errors
    /// `InvalidInput` for a time of zero.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        set(&self.0.read_timeout, limit)
    }

    /// How long a write waits; `None` is without limit.
    ///
    /// # Errors
    /// `InvalidInput` for a time of zero.
    pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        set(&self.0.write_timeout, limit)
    }

    /// How long a read waits.
    ///
    /// # Errors
    /// Never: the call has the form of std's.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(got(&self.0.read_timeout))
    }

    /// How long a write waits.
    ///
    /// # Errors
    /// Never: the call has the form of std's.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(got(&self.0.write_timeout))
    }

    /// Whether calls return at once instead of waiting.
    ///
    /// # Errors
    /// Never: the call has the form of std's.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.0.nonblocking.store(on, Ordering::Relaxed);
        Ok(())
    }

    /// Whether small requests go at once instead of being combined.
    ///
    /// # Errors
    /// Never: the call has the form of std's.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.0.with(|engine, id| {
            if let Some(socket) = engine.sockets.get_mut(id) {
                socket.set_combining(&mut engine.nic, &mut engine.pool, !on);
            }
        });
        Ok(())
    }

    /// Whether small requests go at once.
    ///
    /// # Errors
    /// Never: the call has the form of std's.
    pub fn nodelay(&self) -> io::Result<bool> {
        let combining =
            |engine: &mut Engine, id| engine.sockets.get_mut(id)?.conn.as_ref().map(|c| c.combining());
        Ok(!self.0.with(combining).unwrap_or(false))
    }

    /// What closing does: `None` returns at once, a time waits so long for the peer to have everything, and zero breaks
    /// the connection off.
    ///
    /// # Errors
    /// Never: the call has the form of std's.
    pub fn set_linger(&self, limit: Option<Duration>) -> io::Result<()> {
        self.0.linger.store(limit.map_or(0, |l| nanos(l).saturating_add(1)), Ordering::Relaxed);
        Ok(())
    }

    /// What closing does.
    ///
    /// # Errors
    /// Never: the call has the form of std's.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(self.0.linger.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_nanos))
    }

    /// The address of the other end: of a listener as it was asked for, of a client the name of its NIC.
    pub fn peer_addr(&self) -> String {
        address::display(&self.0.peer)
    }

    /// How packets that are not small come to this end: [`Path::Ring`] or [`Path::Messages`]. `None` once it is closed.
    pub fn path(&self) -> Option<Path> {
        self.0.with(|engine, id| {
            let socket = engine.sockets.get_mut(id)?;
            Some(if socket.ours.has_ring() && !socket.no_ring { Path::Ring } else { Path::Messages })
        })
    }

    /// The provider that carries the bytes, while connected.
    pub fn provider(&self) -> Option<&'static str> {
        self.0.with(|engine, id| {
            let vi = engine.sockets.get_mut(id)?.vi;
            engine.nic.query_vi(vi).ok()?.provider
        })
    }
}

impl Handle {
    #[inline]
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Engine, SocketId) -> T) -> T {
        self.driver.with(|engine| work(engine, self.id)).expect(NOT_CLOSED)
    }

    #[inline]
    fn receive(&self, into: &mut [u8], peek: bool) -> io::Result<usize> {
        let waits = !self.nonblocking.load(Ordering::Relaxed);
        if waits && !peek && self.owner.shared.handling == Handling::Single {
            // An answer that is on its way comes before the machinery of waiting is set up.
            match self.driver.with(|engine| engine.read_fast(self.id, into)).unwrap_or(GONE) {
                Outcome::Done(n) => return Ok(n),
                Outcome::Failed(kind) => return Err(kind.into()),
                Outcome::Wait => {}
            }
        }
        self.receive_slowly(into, peek)
    }

    /// What a fast look did not find. Apart, so that the fast path needs no room for a wait on its stack.
    #[inline(never)]
    fn receive_slowly(&self, into: &mut [u8], peek: bool) -> io::Result<usize> {
        let (policy, timeout) = (&self.reading, &self.read_timeout);
        self.wait(policy, timeout, Direction::Read, |engine| engine.read(self.id, into, peek))
    }

    /// Takes all of `bytes`, unless time or the stream ends before.
    #[inline]
    fn transmit(&self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.lend_from { self.transmit_lent(bytes) } else { self.transmit_copied(bytes) }
    }

    /// Takes all of `bytes` by copying them, so that they may change afterwards.
    #[inline]
    pub(crate) fn transmit_copied(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.driver.with(|engine| engine.write_fast(self.id, bytes)).unwrap_or(GONE) {
            Outcome::Done(n) if n == bytes.len() => Ok(n),
            Outcome::Failed(kind) => Err(kind.into()),
            Outcome::Done(n) => self.transmit_rest(bytes, n),
            Outcome::Wait => self.transmit_rest(bytes, 0),
        }
    }

    /// Takes what follows the first `done` bytes.
    fn transmit_rest(&self, bytes: &[u8], mut done: usize) -> io::Result<usize> {
        while done < bytes.len() {
            let rest = |engine: &mut Engine| engine.write(self.id, &bytes[done..]);
            match self.wait(&self.writing, &self.write_timeout, Direction::Write, rest) {
                Ok(n) => done += n,
                Err(_) if done > 0 => return Ok(done),
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    #[inline]
    fn wait(
        &self,
        policy: &Mutex<WaitPolicy>,
        timeout: &AtomicU64,
        direction: Direction,
        mut poll: impl FnMut(&mut Engine) -> Outcome,
    ) -> io::Result<usize> {
        let shared = &self.owner.shared;
        let poll = |engine: &mut Engine| match poll(engine) {
            Outcome::Wait => None,
            other => Some(other),
        };
        let outcome = if self.nonblocking.load(Ordering::Relaxed) {
            shared.poll_now(poll)
        } else {
            self.wait_longer(policy, timeout, direction, poll)
        };
        match outcome {
            Some(Outcome::Done(n)) => Ok(n),
            Some(Outcome::Failed(kind)) => Err(kind.into()),
            // Users of sockets expect this kind for both.
            Some(Outcome::Wait) | None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    #[inline(never)]
    fn wait_longer(
        &self,
        policy: &Mutex<WaitPolicy>,
        timeout: &AtomicU64,
        direction: Direction,
        poll: impl FnMut(&mut Engine) -> Option<Outcome>,
    ) -> Option<Outcome> {
        let shared = &self.owner.shared;
        let deadline = match timeout.load(Ordering::Relaxed) {
            0 => None,
            limit => Some(clock::now_ns().saturating_add(limit)),
        };
        // What was learnt from earlier waits, unless another thread is at it.
        match policy.try_lock() {
            Ok(mut policy) => shared.wait(&mut policy, deadline, (self.id, direction), poll),
            Err(_) => shared.wait(&mut WaitPolicy::new(shared.wait), deadline, (self.id, direction), poll),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        // In a forked child the connection is the parent's, and a thread that is not here may hold the lock.
        if std::mem::replace(&mut self.ended, true) || self.owner.is_inherited() {
            return Ok(());
        }
        let linger = self.linger.load(Ordering::Relaxed);
        let shared = &self.owner.shared;
        if linger == 1 {
            self.with(|engine, id| engine.abort(id));
            return Ok(());
        }
        self.with(|engine, id| engine.close(id));
        if linger == 0 {
            return Ok(());
        }
        let deadline = Some(clock::now_ns().saturating_add(linger - 1));
        let gone = |engine: &mut Engine| engine.sockets.get_mut(self.id).is_none().then_some(());
        let waited = shared.look(&mut WaitPolicy::new(shared.wait), deadline, gone);
        waited.ok_or_else(|| ErrorKind::WouldBlock.into())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.receive(into, false)
    }

    /// What std's loop does, for a message that is nearly always all that the reader asks for.
    #[inline]
    fn read_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        let mut rest = into;
        while !rest.is_empty() {
            match self.0.receive(rest, false)? {
                n if n == rest.len() => return Ok(()),
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => rest = &mut rest[n..],
            }
        }
        Ok(())
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut done = 0;
        for part in into.iter_mut().filter(|p| !p.is_empty()) {
            let n = match done {
                0 => self.0.receive(part, false)?,
                // Only what is there already.
                _ => self.0.with(|engine, id| match engine.read(id, part, false) {
                    Outcome::Done(n) => n,
                    _ => 0,
                }),
            };
            done += n;
            if n < part.len() {
                break;
            }
        }
        Ok(done)
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.transmit(bytes)
    }

    /// What std's loop does, for a write that takes nearly always all.
    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        loop {
            match self.0.transmit(rest)? {
                n if n == rest.len() => return Ok(()),
                0 => return Err(ErrorKind::WriteZero.into()),
                n => rest = &rest[n..],
            }
        }
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut done = 0;
        for part in parts.iter().filter(|p| !p.is_empty()) {
            let n = match self.0.transmit(part) {
                Ok(n) => n,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            };
            done += n;
            // What follows must not overtake the rest of this one.
            if n < part.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Sends what is held, or leaves it to go with the next acknowledgement where the window is shut.
    fn flush(&mut self) -> io::Result<()> {
        self.0.with(|engine, id| {
            engine.handle();
            if let Some(socket) = engine.sockets.get_mut(id) {
                socket.flush(&mut engine.nic, &mut engine.pool);
            }
        });
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }

    #[inline]
    fn read_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        (&*self).read_exact(into)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(into)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        (&*self).write_all(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

fn nanos(limit: Duration) -> u64 {
    u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX - 1)
}

fn set(timeout: &AtomicU64, limit: Option<Duration>) -> io::Result<()> {
    if limit == Some(Duration::ZERO) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "a time limit of no time; use set_nonblocking"));
    }
    timeout.store(limit.map_or(0, nanos), Ordering::Relaxed);
    Ok(())
}

fn got(timeout: &AtomicU64) -> Option<Duration> {
    Some(timeout.load(Ordering::Relaxed)).filter(|limit| *limit > 0).map(Duration::from_nanos)
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("peer", &self.peer_addr()).finish_non_exhaustive()
    }
}
