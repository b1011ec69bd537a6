//! The table of sockets, by number (`sockdes[]` of figure 6), and the library behind them.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Once, PoisonError, RwLock};
use std::time::Duration;

use libc::c_int;
use viaduct_sovia::{Config, Listener, Sovia, Stream};
use viaduct_via::Nic;

use crate::code::err;

/// A socket of type `SOCK_VIA`.
pub(crate) struct Socket {
    number: Number,
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
    /// Whether its number still stands for it; false after the program has closed the number with the kernel's `close`.
    pub(crate) fn has_its_number(&self) -> bool {
        self.number.is_ours()
    }

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

/// Keeps the number of a socket of ours from being given to another file: an unconnected socket of the kernel's, which is
/// never used. Programs may close numbers themselves, behind our back, and the kernel gives a closed number to the next
/// file that is opened; so the file behind it is looked at before it is closed.
struct Number {
    fd: RawFd,
    /// Device and inode of the placeholder. Those of a socket are its own, unlike an eventfd's.
    file: Option<(libc::dev_t, libc::ino_t)>,
}

impl Number {
    fn new() -> io::Result<Number> {
        // SAFETY: a call without memory.
        let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Number { fd, file: file_of(fd) })
    }

    /// Whether the number still stands for the placeholder.
    fn is_ours(&self) -> bool {
        self.file.is_some() && file_of(self.fd) == self.file
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: the placeholder that `new` opened, as was seen just now. The number is the program's only as that of a socket
            // of ours, whose `close` has come here: only a program that closes it by system call, in another thread and
            // between the two calls, could have another file there, and would lose that one.
            unsafe { libc::close(self.fd) };
        }
    }
}

/// Device and inode behind a number, if it is open.
fn file_of(fd: RawFd) -> Option<(libc::dev_t, libc::ino_t)> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: memory of the right type, which is filled if the call succeeds.
    let stat = unsafe { (libc::fstat(fd, stat.as_mut_ptr()) == 0).then(|| stat.assume_init()) }?;
    Some((stat.st_dev, stat.st_ino))
}

static SOCKETS: LazyLock<RwLock<HashMap<RawFd, Arc<Socket>>>> = LazyLock::new(RwLock::default);
static LIBRARY: Mutex<Option<Sovia>> = Mutex::new(None);

/// The socket behind a number; none if it is the kernel's.
pub(crate) fn find(number: c_int) -> Option<Arc<Socket>> {
    SOCKETS.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
}

/// A new socket.
pub(crate) fn make(stream: Option<Stream>, nonblocking: bool) -> io::Result<c_int> {
    let number = Number::new()?;
    let key = number.fd;
    let fresh = State::Fresh(None, Options::default());
    let socket = Socket { number, nonblocking: AtomicBool::new(nonblocking), state: Mutex::new(fresh) };
    if let Some(stream) = stream {
        socket.connect(stream)?;
    }
    let replaced = SOCKETS.write().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::new(socket));
    // A socket whose number the program had closed itself. Its stream is closed here, without the table's lock.
    drop(replaced);
    Ok(key)
}

/// Takes a socket out of the table.
pub(crate) fn remove(number: c_int) -> Option<Arc<Socket>> {
    SOCKETS.write().unwrap_or_else(PoisonError::into_inner).remove(&number)
}

/// The library, which opens when it is first needed.
pub(crate) fn library() -> io::Result<Sovia> {
    let mut library = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(open) = &*library
        && !open.is_inherited()
    {
        return Ok(open.clone());
    }
    // A forked child leaves what its parent has alone, and opens a library of its own.
    std::mem::forget(library.take());
    let variable = |name: &str| std::env::var(name).ok();
    viaduct_os::log::install_for_library("libsovia", variable(viaduct_os::log::VARIABLE));
    // `errno` has no room for a cause.
    let open = open_as(variable).inspect_err(|error| tracing::error!("cannot open: {error}"))?;
    static AT_EXIT: Once = Once::new();
    // SAFETY: a function that may run at exit: it waits for no lock without a limit.
    AT_EXIT.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
    Ok(library.insert(open).clone())
}

/// A library as the environment says.
fn open_as(variable: impl Fn(&str) -> Option<String> + Copy) -> io::Result<Sovia> {
    let provider = variable("VIADUCT_PROVIDER").filter(|name| !name.is_empty());
    let config = viaduct_providers::Config::from_variables(variable)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e.to_string()))?;
    let streams = Config { spin: config.wait.spin, ..Config::from_variables(variable)? };
    let opened = viaduct_providers::open(provider.as_deref().unwrap_or("auto"), &config)
        .and_then(|provider| Nic::open_with(provider, config.wait));
    let nic = opened.map_err(|e| io::Error::from(viaduct_sovia::Error::from(e)))?;
    Ok(Sovia::open(nic, streams)?)
}

/// Section 4.4: at exit all connections are closed, with a bounded wait.
extern "C" fn at_exit() {
    // A signal handler may have called exit in the middle of a call, whose locks this thread then holds: connections end
    // with the process.
    let Ok(mut library) = LIBRARY.try_lock() else { return };
    if !library.as_ref().is_some_and(Sovia::can_close) {
        return;
    }
    if let Ok(mut sockets) = SOCKETS.try_write() {
        sockets.clear();
    }
    drop(library.take());
}
