//! send, recv and their kin with addresses, messages and many messages.

use libc::{c_int, c_uint, c_void, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};
use viaduct_intercept::{descriptors, receive, route, send, shared};

use viaduct_os::bare::calls;

use crate::data::{buffers, receive_into, send_from};
use crate::{blocking, give, give_int, spin_before};

unsafe extern "C" {
    fn __chk_fail() -> !;
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recv(fd: c_int, at: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { recvfrom(fd, at, len, flags, std::ptr::null_mut(), std::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recv(fd: c_int, at: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { recv(fd, at, len, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    at: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    if len > room {
        // SAFETY: ends the program, as libc's own check does.
        unsafe { __chk_fail() }
    }
    // SAFETY: the caller's promise.
    unsafe { recv(fd, at, len, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    at: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    match route(fd) {
        Some(index) => {
            if !from.is_null() && !from_len.is_null() {
                // SAFETY: the caller's promise. A connection names no sender.
                unsafe { *from_len = 0 };
            }
            // SAFETY: the caller's promise.
            unsafe { receive_into(fd, index, at, len, flags) }
        }
        None => {
            if flags & libc::MSG_DONTWAIT == 0 {
                spin_before(fd, libc::POLLIN);
            }
            let args = [fd as usize, at as usize, len, flags as usize, from as usize, from_len as usize];
            // SAFETY: the caller's promise.
            give(unsafe { blocking(libc::SYS_recvfrom, args) })
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    at: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    if len > room {
        // SAFETY: ends the program, as libc's own check does.
        unsafe { __chk_fail() }
    }
    // SAFETY: the caller's promise.
    unsafe { recvfrom(fd, at, len, flags, from, from_len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn send(fd: c_int, at: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { sendto(fd, at, len, flags, std::ptr::null(), 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __send(fd: c_int, at: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { send(fd, at, len, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    at: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    match route(fd) {
        // SAFETY: the caller's promise.
        Some(index) => unsafe { send_from(fd, index, at, len, flags) },
        None => {
            note_fast_open(fd, flags);
            let args = [fd as usize, at as usize, len, flags as usize, to as usize, to_len as usize];
            // SAFETY: the caller's promise.
            give(unsafe { blocking(libc::SYS_sendto, args) })
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    match route(fd).filter(|_| flags & libc::MSG_ERRQUEUE == 0) {
        Some(index) => {
            // SAFETY: the caller's promise.
            let message = unsafe { &mut *message };
            // SAFETY: as above.
            let all = unsafe { buffers(message.msg_iov, message.msg_iovlen) };
            let got = all.and_then(|all| receive::receive(index, fd, all, flags));
            if got.is_ok() {
                (message.msg_namelen, message.msg_controllen, message.msg_flags) = (0, 0, 0);
            }
            give(got)
        }
        // SAFETY: the caller's promise.
        None => give(unsafe {
            blocking(libc::SYS_recvmsg, [fd as usize, message as usize, flags as usize, 0, 0, 0])
        }),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    match route(fd) {
        Some(index) => {
            // SAFETY: the caller's promise.
            let message = unsafe { &*message };
            // SAFETY: as above.
            let all = unsafe { buffers(message.msg_iov, message.msg_iovlen) };
            give(all.and_then(|all| send::send(index, fd, all, flags)))
        }
        None => {
            note_fast_open(fd, flags);
            // SAFETY: the caller's promise.
            unsafe { part_with(message) };
            // SAFETY: the caller's promise.
            give(unsafe {
                blocking(libc::SYS_sendmsg, [fd as usize, message as usize, flags as usize, 0, 0, 0])
            })
        }
    }
}

/// A connection that is made by a send: its first packet has data.
#[inline]
fn note_fast_open(fd: c_int, flags: c_int) {
    if flags & libc::MSG_FASTOPEN != 0 {
        descriptors::keep_plain(fd, descriptors::FAST_OPEN);
    }
}

/// Connections that are passed on in a message are moved back: the process that gets them may not have the library.
///
/// # Safety
/// Valid for reads, as the kernel reads it.
unsafe fn part_with(message: *const msghdr) {
    // SAFETY: the caller's promise, here and below.
    unsafe {
        if message.is_null() || (*message).msg_control.is_null() || (*message).msg_controllen == 0 {
            return;
        }
        let mut control = libc::CMSG_FIRSTHDR(message);
        while let Some(part) = control.as_ref() {
            if part.cmsg_level == libc::SOL_SOCKET && part.cmsg_type == libc::SCM_RIGHTS {
                let count = part.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize) / size_of::<c_int>();
                for place in 0..count {
                    let fd = libc::CMSG_DATA(control).cast::<c_int>().add(place).read_unaligned();
                    shared::pass_on(fd);
                }
            }
            control = libc::CMSG_NXTHDR(message, control);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if let Some(index) = route(fd) {
        // SAFETY: the caller's promise.
        return unsafe { send_messages(index, fd, messages, count, flags) };
    }
    for place in 0..count.min(1024) as usize {
        // SAFETY: the caller's promise.
        unsafe { part_with(&raw const (*messages.add(place)).msg_hdr) };
    }
    let args = [fd as usize, messages as usize, count as usize, flags as usize, 0, 0];
    // SAFETY: the caller's promise.
    give_int(unsafe { blocking(libc::SYS_sendmmsg, args) })
}

/// # Safety
/// As libc's sendmmsg.
#[inline(never)]
unsafe fn send_messages(index: u32, fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    let mut done = 0;
    for place in 0..count.min(1024) as usize {
        // SAFETY: the caller's promise.
        let message = unsafe { &mut *messages.add(place) };
        // SAFETY: as above.
        let all = unsafe { buffers(message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) };
        match all.and_then(|all| send::send(index, fd, all, flags)) {
            Ok(sent) => message.msg_len = sent as u32,
            Err(error) if done == 0 => return give_int(Err(error)),
            Err(_) => break,
        }
        done += 1;
    }
    done
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> c_int {
    if let Some(index) = route(fd) {
        // SAFETY: the caller's promise.
        return unsafe { receive_messages(index, fd, messages, count, flags, limit) };
    }
    let args = [fd as usize, messages as usize, count as usize, flags as usize, limit as usize, 0];
    // SAFETY: the caller's promise.
    give_int(unsafe { blocking(libc::SYS_recvmmsg, args) })
}

/// # Safety
/// As libc's recvmmsg.
#[inline(never)]
unsafe fn receive_messages(
    index: u32,
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> c_int {
    let start = calls::now();
    let mut done = 0;
    for place in 0..count.min(1024) as usize {
        // SAFETY: the caller's promise.
        let message = unsafe { &mut *messages.add(place) };
        // After the first, what is there is taken and no more.
        let wait = flags & libc::MSG_WAITFORONE != 0 && done > 0;
        let flags = flags & !libc::MSG_WAITFORONE | if wait { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: as above.
        let all = unsafe { buffers(message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) };
        match all.and_then(|all| receive::receive(index, fd, all, flags)) {
            Ok(got) => {
                message.msg_len = got as u32;
                let header = &mut message.msg_hdr;
                (header.msg_namelen, header.msg_controllen, header.msg_flags) = (0, 0, 0);
            }
            Err(error) if done == 0 => return give_int(Err(error)),
            Err(_) => break,
        }
        done += 1;
        // As the kernel does it, the time is looked at after each message only.
        // SAFETY: the caller's promise.
        if unsafe { limit.as_ref() }.is_some_and(|limit| passed(limit, start)) {
            break;
        }
    }
    done
}

/// Whether so much time has passed since `start`.
fn passed(limit: &timespec, start: u64) -> bool {
    let ns = (limit.tv_sec.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(limit.tv_nsec as u64);
    calls::now() - start >= ns
}
