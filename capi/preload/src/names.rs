//! What concerns descriptors themselves: making, closing, duplicating, their modes and options.

use libc::{c_int, c_uint, c_ulong, c_void, sockaddr, socklen_t};
use viaduct_intercept::table::{self, Kind};
use viaduct_intercept::{claim, descriptors, learn, receive, room, send};
use viaduct_os::bare::{Errno, syscall};

use crate::{blocking, give_int};

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let args = [domain as usize, kind as usize, protocol as usize, 0, 0, 0];
    // SAFETY: no pointers.
    let made = room::open(|| unsafe { syscall(libc::SYS_socket, args) });
    if let Ok(fd) = made {
        let stream = kind & 0xf == libc::SOCK_STREAM && matches!(protocol, 0 | libc::IPPROTO_TCP);
        let tcp = stream && matches!(domain, libc::AF_INET | libc::AF_INET6);
        if tcp { descriptors::note_tcp(fd as c_int) } else { descriptors::note_plain(fd as c_int) }
    }
    give_int(made)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: no pointers.
    let done = unsafe { syscall(libc::SYS_listen, [fd as usize, backlog as usize, 0, 0, 0, 0]) };
    if done.is_ok() && table::kind(fd) == Kind::Tcp {
        claim::greet();
        learn::listening(fd);
    }
    give_int(done)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller's promise.
    let done = unsafe { blocking(libc::SYS_connect, [fd as usize, to as usize, len as usize, 0, 0, 0]) };
    if table::kind(fd) == Kind::Tcp && len as usize >= size_of::<libc::sockaddr_in>() && !to.is_null() {
        // SAFETY: the kernel has just read so much; the port has this place in both families.
        let port = u16::from_be(unsafe { to.cast::<u16>().add(1).read_unaligned() });
        learn::note(fd, port);
    }
    give_int(done)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { connect(fd, to, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // A filter of system calls may know this one and not the newer one.
    let args = [fd as usize, from as usize, len as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    accepted(fd, room::open(|| unsafe { blocking(libc::SYS_accept, args) }))
}

fn accepted(fd: c_int, made: Result<usize, Errno>) -> c_int {
    if let Ok(new) = made {
        if table::kind(fd) == Kind::Tcp {
            descriptors::note_tcp(new as c_int);
            learn::accepted(fd, new as c_int);
        } else {
            descriptors::note_unknown(new as c_int);
        }
    }
    give_int(made)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let args = [fd as usize, from as usize, len as usize, flags as usize, 0, 0];
    // SAFETY: the caller's promise.
    accepted(fd, room::open(|| unsafe { blocking(libc::SYS_accept4, args) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if descriptors::is_internal(fd) {
        return give_int(Err(Errno(libc::EBADF)));
    }
    descriptors::closing(fd);
    // SAFETY: no pointers.
    give_int(unsafe { blocking(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __close(fd: c_int) -> c_int {
    // SAFETY: no pointers.
    unsafe { close(fd) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close_range(from: c_uint, to: c_uint, flags: c_int) -> c_int {
    let raw = |from: c_uint, to: c_uint| {
        // SAFETY: no pointers.
        unsafe { syscall(libc::SYS_close_range, [from as usize, to as usize, flags as usize, 0, 0, 0]) }
    };
    let only_marks = flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0;
    if only_marks || from > to {
        return give_int(raw(from, to));
    }
    // In a child that borrows its parent's memory nothing is noted; exec closes there what is ours.
    descriptors::closing_range(from, to);
    let mut first = from;
    let mut done = Ok(0);
    while let Some(ours) = descriptors::next_internal(first, to) {
        if ours > first {
            done = done.and(raw(first, ours - 1));
        }
        first = ours + 1;
    }
    if first <= to {
        done = done.and(raw(first, to));
    }
    give_int(done)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn closefrom(from: c_int) {
    // SAFETY: no pointers.
    unsafe { close_range(from.max(0) as c_uint, c_uint::MAX, 0) };
}

fn noted(fd: c_int, made: Result<usize, Errno>) -> c_int {
    if let Ok(copy) = made {
        descriptors::duplicated(fd, copy as c_int);
    }
    give_int(made)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    if descriptors::is_internal(fd) {
        return give_int(Err(Errno(libc::EBADF)));
    }
    // SAFETY: no pointers.
    noted(fd, room::open(|| unsafe { syscall(libc::SYS_dup, [fd as usize, 0, 0, 0, 0, 0]) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    if fd == to {
        // SAFETY: no pointers. Says whether the descriptor is open.
        let open = unsafe { syscall(libc::SYS_fcntl, [fd as usize, libc::F_GETFD as usize, 0, 0, 0, 0]) };
        return give_int(open.map(|_| fd as usize));
    }
    #[cfg(target_arch = "x86_64")]
    let call = libc::SYS_dup2;
    #[cfg(not(target_arch = "x86_64"))]
    let call = libc::SYS_dup3;
    replace(call, fd, to, 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: no pointers.
    unsafe { dup2(fd, to) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if fd == to {
        return give_int(Err(Errno(libc::EINVAL)));
    }
    replace(libc::SYS_dup3, fd, to, flags)
}

/// Makes `to`, another number, a duplicate of `fd` by one of the kernel's calls for that.
fn replace(call: i64, fd: c_int, to: c_int, flags: c_int) -> c_int {
    let bad = |error| give_int(Err(Errno(error)));
    if descriptors::is_internal(fd) {
        return bad(libc::EBADF);
    }
    // SAFETY: no pointers. What is not open cannot replace anything.
    let open = || unsafe { syscall(libc::SYS_fcntl, [fd as usize, libc::F_GETFD as usize, 0, 0, 0, 0]) };
    if descriptors::must_be_kept(to) && open().is_err() {
        return bad(libc::EBADF);
    }
    if descriptors::is_internal(to) && !descriptors::make_way(to) {
        return bad(libc::EBUSY);
    }
    descriptors::closing(to);
    // SAFETY: no pointers.
    noted(fd, unsafe { syscall(call, [fd as usize, to as usize, flags as usize, 0, 0, 0]) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    let args = [fd as usize, command as usize, argument, 0, 0, 0];
    match command {
        _ if descriptors::is_internal(fd) => give_int(Err(Errno(libc::EBADF))),
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            // SAFETY: the caller's promise.
            noted(fd, room::open(|| unsafe { syscall(libc::SYS_fcntl, args) }))
        }
        libc::F_SETFL => {
            if argument as c_int & libc::O_ASYNC != 0 {
                descriptors::keep_plain(fd, SIGNALS);
            }
            // SAFETY: the caller's promise.
            let done = unsafe { syscall(libc::SYS_fcntl, args) };
            if done.is_ok() {
                descriptors::note_nonblocking(fd, argument as c_int & libc::O_NONBLOCK != 0);
            }
            give_int(done)
        }
        // SAFETY: the caller's promise.
        libc::F_SETLKW | libc::F_OFD_SETLKW => give_int(unsafe { blocking(libc::SYS_fcntl, args) }),
        // SAFETY: the caller's promise.
        _ => give_int(unsafe { syscall(libc::SYS_fcntl, args) }),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { fcntl(fd, command, argument) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { fcntl(fd, command, argument) }
}

const SIOCATMARK: c_ulong = 0x8905;
const FIOASYNC: c_ulong = 0x5452;
const SO_BINDTOIFINDEX: c_int = 62;
const TCP_INQ: c_int = 36;
const SO_TIMESTAMP: c_int = 29;
const SO_TIMESTAMPNS: c_int = 35;
const SO_TIMESTAMPING: c_int = 37;
const SO_TIMESTAMP_NEW: c_int = 63;
const SO_TIMESTAMPNS_NEW: c_int = 64;
const SO_TIMESTAMPING_NEW: c_int = 65;
/// Why a connection with `O_ASYNC` is the kernel's.
const SIGNALS: &str = "signals tell of its bytes";

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sockatmark(fd: c_int) -> c_int {
    let mut mark: c_int = 0;
    // SAFETY: the local is valid for writes.
    let done = unsafe { ioctl(fd, SIOCATMARK, &raw mut mark as usize) };
    if done < 0 { done } else { mark }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    let args = [fd as usize, request as usize, argument, 0, 0, 0];
    let counted = match (descriptors::endpoint_of(fd), request) {
        (Some(index), libc::FIONREAD) => Some(receive::available(index, fd)),
        (Some(index), libc::TIOCOUTQ) => Some(send::unread(index, fd)),
        // Urgent data come by TCP: while bytes are in the ring their place was not reached.
        (Some(index), SIOCATMARK) if receive::has_ring_bytes(index) => Some(Ok(0)),
        _ => None,
    };
    if let Some(count) = counted {
        let store = |count: usize| {
            // SAFETY: the caller's promise: these requests store an int.
            unsafe { *std::ptr::with_exposed_provenance_mut::<c_int>(argument) = count as c_int };
            0
        };
        return give_int(count.map(store));
    }
    if request == FIOASYNC {
        descriptors::keep_plain(fd, SIGNALS);
    }
    // SAFETY: the caller's promise.
    let done = unsafe { syscall(libc::SYS_ioctl, args) };
    if request == libc::FIONBIO && done.is_ok() {
        // SAFETY: the kernel has just read this int.
        let nonblocking = unsafe { *std::ptr::with_exposed_provenance::<c_int>(argument) } != 0;
        descriptors::note_nonblocking(fd, nonblocking);
    }
    give_int(done)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // Said before the companion tells the peer, so that the peer knows what the end means.
    if (libc::SHUT_RD..=libc::SHUT_RDWR).contains(&how) {
        descriptors::note_shutdown(fd, how);
    }
    // SAFETY: no pointers.
    give_int(unsafe { syscall(libc::SYS_shutdown, [fd as usize, how as usize, 0, 0, 0, 0]) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // What these ask for only the kernel's own stream can give.
    let only = match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_ULP) => {
            Some((libc::ENOENT, "the kernel gets a protocol above TCP here"))
        }
        (libc::IPPROTO_TCP, libc::TCP_REPAIR) => Some((libc::EPERM, "it is repaired")),
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => Some((libc::EOPNOTSUPP, "it sends without copying")),
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => Some((libc::EINVAL, "it has a low-water mark")),
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => Some((libc::EOPNOTSUPP, "it is looked at from a place")),
        (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER | libc::SO_ATTACH_BPF) => {
            Some((libc::EINVAL, descriptors::FILTERED))
        }
        (libc::SOL_SOCKET, libc::SO_BINDTODEVICE | SO_BINDTOIFINDEX) => {
            Some((libc::EPERM, "it is bound to a device"))
        }
        (libc::IPPROTO_TCP, TCP_INQ) => Some((libc::ENOPROTOOPT, descriptors::TELLS_REST)),
        (libc::SOL_SOCKET, SO_TIMESTAMP | SO_TIMESTAMPNS | SO_TIMESTAMPING) => {
            Some((libc::ENOPROTOOPT, descriptors::TELLS_TIMES))
        }
        (libc::SOL_SOCKET, SO_TIMESTAMP_NEW | SO_TIMESTAMPNS_NEW | SO_TIMESTAMPING_NEW) => {
            Some((libc::ENOPROTOOPT, descriptors::TELLS_TIMES))
        }
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) => Some((libc::EISCONN, descriptors::FAST_OPEN)),
        _ => None,
    };
    if let Some((error, reason)) = only
        && !descriptors::keep_plain(fd, reason)
    {
        return give_int(Err(Errno(error)));
    }
    let args = [fd as usize, level as usize, name as usize, value as usize, len as usize, 0];
    // SAFETY: the caller's promise.
    give_int(unsafe { syscall(libc::SYS_setsockopt, args) })
}
