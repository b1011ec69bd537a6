//! Options: those that mean something to a stream are set, those that a program sets out of habit are taken, the others are
//! refused.

use std::io;
use std::mem::size_of;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::{c_int, c_long, c_void, linger, socklen_t, timeval};

use crate::code::{answer, err};
use crate::sockets::SOCK_VIA;
use crate::table::{self, Socket, State};

/// `sov_setsockopt`
///
/// # Safety
/// As `setsockopt`.
pub unsafe extern "C" fn sov_setsockopt(
    s: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let Some(socket) = table::find(s) else {
        // SAFETY: the caller's word, and the kernel checks it.
        return unsafe { libc::setsockopt(s, level, name, value, len) };
    };
    answer((|| {
        match (level, name) {
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => {
                // SAFETY: the caller's word.
                set(&socket, Value::Nodelay(unsafe { read::<c_int>(value, len) }? != 0))?;
            }
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
                // SAFETY: the caller's word.
                set(&socket, Value::ReadTimeout(time(unsafe { read::<timeval>(value, len) }?)?))?;
            }
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => {
                // SAFETY: the caller's word.
                set(&socket, Value::WriteTimeout(time(unsafe { read::<timeval>(value, len) }?)?))?;
            }
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                // SAFETY: the caller's word.
                let linger = unsafe { read::<linger>(value, len) }?;
                let time = Duration::from_secs(linger.l_linger.max(0) as u64);
                set(&socket, Value::Linger((linger.l_onoff != 0).then_some(time)))?;
            }
            (
                libc::SOL_SOCKET,
                libc::SO_REUSEADDR
                | libc::SO_REUSEPORT
                | libc::SO_KEEPALIVE
                | libc::SO_SNDBUF
                | libc::SO_RCVBUF,
            ) => {}
            _ => return Err(err(libc::ENOPROTOOPT)),
        }
        Ok(0)
    })())
}

/// `sov_getsockopt`
///
/// # Safety
/// As `getsockopt`.
pub unsafe extern "C" fn sov_getsockopt(
    s: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let Some(socket) = table::find(s) else {
        // SAFETY: the caller's word, and the kernel checks it.
        return unsafe { libc::getsockopt(s, level, name, value, len) };
    };
    answer((|| {
        let listening = matches!(&*socket.state(), State::Listening(..));
        let number = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_TYPE) => SOCK_VIA,
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => c_int::from(listening),
            // Calls report their own errors.
            (libc::SOL_SOCKET, libc::SO_ERROR) => 0,
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => match &*socket.state() {
                State::Connected(stream) => c_int::from(stream.nodelay()?),
                State::Fresh(_, options) => c_int::from(options.nodelay.unwrap_or(false)),
                State::Listening(..) => 0,
            },
            _ => return Err(err(libc::ENOPROTOOPT)),
        };
        // SAFETY: the caller's word.
        if value.is_null() || len.is_null() || (unsafe { *len } as usize) < size_of::<c_int>() {
            return Err(err(libc::EINVAL));
        }
        // SAFETY: there is room for a number.
        unsafe { value.cast::<c_int>().write_unaligned(number) };
        // SAFETY: the caller's word.
        unsafe { *len = size_of::<c_int>() as socklen_t };
        Ok(0)
    })())
}

/// `sov_fcntl`: F_GETFL and F_SETFL with O_NONBLOCK. In C the third argument may be left out.
///
/// # Safety
/// As `fcntl`.
pub unsafe extern "C" fn sov_fcntl(s: c_int, command: c_int, argument: c_long) -> c_int {
    let Some(socket) = table::find(s) else {
        // SAFETY: the caller's word, and the kernel checks it.
        return unsafe { libc::fcntl(s, command, argument) };
    };
    let nonblocking = socket.nonblocking.load(Ordering::Relaxed);
    match command {
        libc::F_GETFL => libc::O_RDWR | if nonblocking { libc::O_NONBLOCK } else { 0 },
        libc::F_SETFL => answer(set_nonblocking(&socket, argument & c_long::from(libc::O_NONBLOCK) != 0)),
        libc::F_GETFD => libc::FD_CLOEXEC,
        libc::F_SETFD => 0,
        _ => crate::code::fail(libc::EINVAL),
    }
}

fn set_nonblocking(socket: &Socket, on: bool) -> io::Result<c_int> {
    socket.nonblocking.store(on, Ordering::Relaxed);
    match &*socket.state() {
        State::Fresh(..) => {}
        State::Listening(listener, _) => listener.set_nonblocking(on),
        State::Connected(stream) => stream.set_nonblocking(on)?,
    }
    Ok(0)
}

enum Value {
    Nodelay(bool),
    ReadTimeout(Option<Duration>),
    WriteTimeout(Option<Duration>),
    Linger(Option<Duration>),
}

/// Sets it on the stream, or keeps it until there is one.
fn set(socket: &Socket, value: Value) -> io::Result<()> {
    match &mut *socket.state() {
        State::Connected(stream) => match value {
            Value::Nodelay(on) => stream.set_nodelay(on),
            Value::ReadTimeout(limit) => stream.set_read_timeout(limit),
            Value::WriteTimeout(limit) => stream.set_write_timeout(limit),
            Value::Linger(limit) => stream.set_linger(limit),
        },
        State::Fresh(_, options) => {
            match value {
                Value::Nodelay(on) => options.nodelay = Some(on),
                Value::ReadTimeout(limit) => options.read_timeout = limit,
                Value::WriteTimeout(limit) => options.write_timeout = limit,
                Value::Linger(limit) => options.linger = limit,
            }
            Ok(())
        }
        State::Listening(..) => Ok(()),
    }
}

/// None is for ever, as with sockets.
fn time(value: timeval) -> io::Result<Option<Duration>> {
    let (Ok(seconds), 0..=999_999) = (u64::try_from(value.tv_sec), value.tv_usec) else {
        return Err(err(libc::EDOM));
    };
    let time = Duration::from_secs(seconds) + Duration::from_micros(value.tv_usec as u64);
    Ok(Some(time).filter(|time| !time.is_zero()))
}

/// # Safety
/// `len` bytes can be read there, and any bytes make a `T`.
unsafe fn read<T: Copy>(value: *const c_void, len: socklen_t) -> io::Result<T> {
    if value.is_null() || (len as usize) < size_of::<T>() {
        return Err(err(libc::EINVAL));
    }
    // SAFETY: so many bytes are there.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}
