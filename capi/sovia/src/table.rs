//! The table of sockets, by number (`sockdes[]` of figure 6), and the library behind them.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use libc::c_int;
use viaduct_sovia::{Config, Listener, Sovia, Stream};
use viaduct_via::Nic;

use crate::code::err;

/// A socket of type `SOCK_VIA`.
pub(crate) struct Socket {
    /// Keeps the number; never read.
    number: OwnedFd,
    pub(crate) nonblocking: AtomicBool,
    state: Mutex<State>,
}

/// What became of it.
#[derive(Clone)]
pub(crate) enum State {
    /// As made, perhaps with an address.
    Fresh(Option<SocketAddr>, Options),
    Listening(Arc<Listener>, SocketAddr),
    Connected(Arc<Stream>),
}

/// What was set before there was a stream.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) nodelay: Option<bool>,
    pub(crate) read_timeout: Option<Duration>,
    pub(crate) write_timeout: Option<Duration>,
    pub(crate) linger: Option<Duration>,
}

impl Options {
    fn apply(&self, stream: &Stream) -> io::Result<()> {
        if let Some(on) = self.nodelay {
            stream.set_nodelay(on)?;
        }
        stream.set_read_timeout(self.read_timeout)?;
        stream.set_write_timeout(self.write_timeout)?;
        stream.set_linger(self.linger)
    }
}

impl Socket {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its stream, if it has one.
    pub(crate) fn stream(&self) -> io::Result<Arc<Stream>> {
        match &*self.state() {
            State::Connected(stream) => Ok(stream.clone()),
            _ => Err(err(libc::ENOTCONN)),
        }
    }

    /// Its listener, if it has one.
    pub(crate) fn listener(&self) -> io::Result<Arc<Listener>> {
        match &*self.state() {
            State::Listening(listener, _) => Ok(listener.clone()),
            _ => Err(err(libc::EINVAL)),
        }
    }

    /// It is connected now.
    pub(crate) fn connect(&self, stream: Stream) -> io::Result<()> {
        let mut state = self.state();
        let State::Fresh(_, options) = &*state else { return Err(err(libc::EISCONN)) };
        options.apply(&stream)?;
        stream.set_nonblocking(self.nonblocking.load(Ordering::Relaxed))?;
        *state = State::Connected(Arc::new(stream));
        Ok(())
    }
}

static SOCKETS: LazyLock<RwLock<HashMap<RawFd, Arc<Socket>>>> = LazyLock::new(RwLock::default);
static LIBRARY: Mutex<Option<Sovia>> = Mutex::new(None);

/// The socket behind a number; none if it is the kernel's.
pub(crate) fn find(number: c_int) -> Option<Arc<Socket>> {
    SOCKETS.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
}

/// A new socket.
pub(crate) fn make(stream: Option<Stream>, nonblocking: bool) -> io::Result<c_int> {
    // SAFETY: a call without memory; what it gives is ours.
    let number = match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) } {
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: just opened, and nobody else has it.
        fd => unsafe { OwnedFd::from_raw_fd(fd) },
    };
    let key = number.as_raw_fd();
    let fresh = State::Fresh(None, Options::default());
    let socket = Socket { number, nonblocking: AtomicBool::new(nonblocking), state: Mutex::new(fresh) };
    if let Some(stream) = stream {
        socket.connect(stream)?;
    }
    SOCKETS.write().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::new(socket));
    Ok(key)
}

/// Takes a socket out of the table.
pub(crate) fn remove(number: c_int) -> Option<Arc<Socket>> {
    let removed = SOCKETS.write().unwrap_or_else(PoisonError::into_inner).remove(&number);
    removed.inspect(|socket| debug_assert_eq!(socket.number.as_raw_fd(), number))
}

/// The library, which opens when it is first needed.
pub(crate) fn library() -> io::Result<Sovia> {
    let mut library = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(open) = &*library {
        return Ok(open.clone());
    }
    let variable = |name: &str| std::env::var(name).ok();
    let provider = variable("VIADUCT_PROVIDER").filter(|name| !name.is_empty());
    let streams = Config::from_variables(variable)?;
    let config = viaduct_providers::Config::from_variables(variable)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e.to_string()))?;
    let opened = viaduct_providers::open(provider.as_deref().unwrap_or("auto"), &config).and_then(Nic::open);
    let nic = opened.map_err(|e| io::Error::from(viaduct_sovia::Error::from(e)))?;
    let open = Sovia::open(nic, streams)?;
    // SAFETY: a function that may run at exit: it takes locks that no thread holds for ever.
    unsafe { libc::atexit(at_exit) };
    Ok(library.insert(open).clone())
}

/// Section 4.4: at exit all connections are closed, with a bounded wait.
extern "C" fn at_exit() {
    // Who exits in the middle of a call of ours would wait for itself.
    if let Ok(mut sockets) = SOCKETS.try_write() {
        sockets.clear();
    }
    if let Ok(mut library) = LIBRARY.try_lock() {
        drop(library.take());
    }
}
