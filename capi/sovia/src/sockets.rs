//! Making, naming, connecting and closing sockets.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use libc::{c_int, sockaddr, socklen_t};
use viaduct_sovia::Listener;

use crate::code::{answer, err};
use crate::table::{self, Socket, State};
use crate::{address, table::library};

/// The type of a socket that goes over VIA.
pub const SOCK_VIA: c_int = 0x56;

/// Flags that may stand with the type.
const FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// Ports for sockets that name none.
const EPHEMERAL: std::ops::Range<u16> = 49152..65535;

/// `sov_socket`
pub extern "C" fn sov_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if kind & !FLAGS != SOCK_VIA {
        // SAFETY: the kernel's own call, with numbers only.
        return unsafe { libc::socket(domain, kind, protocol) };
    }
    answer((|| {
        if !matches!(domain, libc::AF_INET | libc::AF_INET6) {
            return Err(err(libc::EAFNOSUPPORT));
        }
        if !matches!(protocol, 0 | libc::IPPROTO_TCP) {
            return Err(err(libc::EPROTONOSUPPORT));
        }
        library()?;
        table::make(None, kind & libc::SOCK_NONBLOCK != 0)
    })())
}

/// `sov_bind`
///
/// # Safety
/// As `bind`.
pub unsafe extern "C" fn sov_bind(s: c_int, name: *const sockaddr, len: socklen_t) -> c_int {
    let Some(socket) = table::find(s) else {
        // SAFETY: the caller's word, and the kernel checks it.
        return unsafe { libc::bind(s, name, len) };
    };
    // SAFETY: the caller's word.
    answer(unsafe { address::read(name, len) }.and_then(|wanted| match &mut *socket.state() {
        State::Fresh(bound @ None, _) => {
            *bound = Some(wanted);
            Ok(0)
        }
        _ => Err(err(libc::EINVAL)),
    }))
}

/// `sov_listen`
pub extern "C" fn sov_listen(s: c_int, backlog: c_int) -> c_int {
    let Some(socket) = table::find(s) else {
        // SAFETY: the kernel's own call, with numbers only.
        return unsafe { libc::listen(s, backlog) };
    };
    answer((|| {
        let mut state = socket.state();
        let State::Fresh(bound, _) = &*state else { return Err(err(libc::EINVAL)) };
        let wanted = bound.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
        let (listener, address) = listen(wanted, backlog.clamp(1, 4096) as usize)?;
        listener.set_nonblocking(socket.nonblocking.load(Ordering::Relaxed));
        *state = State::Listening(Arc::new(listener), address);
        Ok(0)
    })())
}

/// Listens at an address; port 0 is the next one that is free.
fn listen(wanted: SocketAddr, backlog: usize) -> io::Result<(Listener, SocketAddr)> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let library = library()?;
    // A listener takes what comes to this host, whatever address of it was named.
    let at = |port| library.listen(&address::to_via((Ipv4Addr::UNSPECIFIED, port).into()), backlog);
    if wanted.port() != 0 {
        return Ok((at(wanted.port())?, wanted));
    }
    // Each process begins elsewhere.
    let start = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id() as u16);
    for i in 0..EPHEMERAL.len() as u16 {
        let port = EPHEMERAL.start + start.wrapping_add(i) % EPHEMERAL.len() as u16;
        match at(port).map_err(io::Error::from) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            done => return Ok((done?, SocketAddr::new(wanted.ip(), port))),
        }
    }
    Err(err(libc::EADDRINUSE))
}

/// `sov_accept`
///
/// # Safety
/// As `accept`.
pub unsafe extern "C" fn sov_accept(s: c_int, peer: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let Some(socket) = table::find(s) else {
        // SAFETY: the caller's word, and the kernel checks it.
        return unsafe { libc::accept(s, peer, len) };
    };
    answer((|| {
        let stream = socket.listener()?.accept()?;
        // SAFETY: the caller's word.
        unsafe { address::write(address::from_via(&stream.peer_addr()), peer, len) };
        table::make(Some(stream), false)
    })())
}

/// `sov_connect`: waits until it is connected, also where calls do not wait otherwise.
///
/// # Safety
/// As `connect`.
pub unsafe extern "C" fn sov_connect(s: c_int, peer: *const sockaddr, len: socklen_t) -> c_int {
    let Some(socket) = table::find(s) else {
        // SAFETY: the caller's word, and the kernel checks it.
        return unsafe { libc::connect(s, peer, len) };
    };
    answer((|| {
        // SAFETY: the caller's word.
        let peer = unsafe { address::read(peer, len) }?;
        match &*socket.state() {
            State::Fresh(..) => {}
            State::Connected(_) => return Err(err(libc::EISCONN)),
            State::Listening(..) => return Err(err(libc::EOPNOTSUPP)),
        }
        let stream = library()?.connect(&address::to_via(peer))?;
        socket.connect(stream)?;
        Ok(0)
    })())
}

/// `sov_shutdown`
pub extern "C" fn sov_shutdown(s: c_int, how: c_int) -> c_int {
    let Some(socket) = table::find(s) else {
        // SAFETY: the kernel's own call, with numbers only.
        return unsafe { libc::shutdown(s, how) };
    };
    let how = match how {
        libc::SHUT_RD => std::net::Shutdown::Read,
        libc::SHUT_WR => std::net::Shutdown::Write,
        libc::SHUT_RDWR => std::net::Shutdown::Both,
        _ => return crate::code::fail(libc::EINVAL),
    };
    answer(socket.stream().and_then(|stream| stream.shutdown(how)).map(|()| 0))
}

/// `sov_close`
pub extern "C" fn sov_close(s: c_int) -> c_int {
    // A number that the program has closed itself stands for a later file, which is meant; our socket goes with it.
    if let Some(socket) = table::remove(s) {
        let ours = socket.has_its_number();
        // A call of another thread that is under way keeps the socket until it returns.
        let ended = answer(end(socket).map(|()| 0));
        if ours {
            return ended;
        }
    }
    // SAFETY: the kernel's own call; that the number is in no other use is the caller's word.
    unsafe { libc::close(s) }
}

fn end(socket: Arc<Socket>) -> io::Result<()> {
    let Some(socket) = Arc::into_inner(socket) else { return Ok(()) };
    let fresh = State::Fresh(None, table::Options::default());
    match std::mem::replace(&mut *socket.state(), fresh) {
        State::Connected(stream) => match Arc::into_inner(stream) {
            Some(stream) => stream.close(),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// `sov_getsockname`
///
/// # Safety
/// As `getsockname`.
pub unsafe extern "C" fn sov_getsockname(s: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let Some(socket) = table::find(s) else {
        // SAFETY: the caller's word, and the kernel checks it.
        return unsafe { libc::getsockname(s, name, len) };
    };
    let own = match &*socket.state() {
        State::Fresh(bound, _) => bound.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()),
        State::Listening(_, address) => *address,
        State::Connected(_) => (Ipv4Addr::LOCALHOST, 0).into(),
    };
    // SAFETY: the caller's word.
    unsafe { address::write(own, name, len) };
    0
}

/// `sov_getpeername`
///
/// # Safety
/// As `getpeername`.
pub unsafe extern "C" fn sov_getpeername(s: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let Some(socket) = table::find(s) else {
        // SAFETY: the caller's word, and the kernel checks it.
        return unsafe { libc::getpeername(s, name, len) };
    };
    answer(socket.stream().map(|stream| {
        // SAFETY: the caller's word.
        unsafe { address::write(address::from_via(&stream.peer_addr()), name, len) };
        0
    }))
}
