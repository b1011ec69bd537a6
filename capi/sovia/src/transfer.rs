//! Sending and receiving.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use libc::{c_int, c_void, iovec, size_t, ssize_t};
use viaduct_sovia::Stream;

use crate::code::{answer, err};
use crate::table;

/// Flags of `recv` that are understood.
const RECV: c_int = libc::MSG_PEEK | libc::MSG_WAITALL | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
/// Flags of `send` that are understood.
const SEND: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE;

/// `sov_send`
///
/// # Safety
/// As `send`.
pub unsafe extern "C" fn sov_send(s: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    let Some(socket) = table::find(s) else {
        // SAFETY: the caller's word, and the kernel checks it.
        return unsafe { libc::send(s, buffer, len, flags) };
    };
    // SAFETY: the caller's word.
    let bytes = unsafe { from(buffer, len) };
    answer(socket.stream().and_then(|stream| send(&stream, bytes?, flags)))
}

/// `sov_recv`
///
/// # Safety
/// As `recv`.
pub unsafe extern "C" fn sov_recv(s: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    let Some(socket) = table::find(s) else {
        // SAFETY: the caller's word, and the kernel checks it.
        return unsafe { libc::recv(s, buffer, len, flags) };
    };
    // SAFETY: the caller's word.
    let bytes = unsafe { into(buffer, len) };
    answer(socket.stream().and_then(|stream| recv(&stream, bytes?, flags)))
}

/// `sov_write`
///
/// # Safety
/// As `write`.
pub unsafe extern "C" fn sov_write(s: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    match table::find(s) {
        // SAFETY: the caller's word.
        Some(_) => unsafe { sov_send(s, buffer, len, 0) },
        // SAFETY: the caller's word, and the kernel checks it.
        None => unsafe { libc::write(s, buffer, len) },
    }
}

/// `sov_read`
///
/// # Safety
/// As `read`.
pub unsafe extern "C" fn sov_read(s: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    match table::find(s) {
        // SAFETY: the caller's word.
        Some(_) => unsafe { sov_recv(s, buffer, len, 0) },
        // SAFETY: the caller's word, and the kernel checks it.
        None => unsafe { libc::read(s, buffer, len) },
    }
}

/// `sov_writev`
///
/// # Safety
/// As `writev`.
pub unsafe extern "C" fn sov_writev(s: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    let Some(socket) = table::find(s) else {
        // SAFETY: the caller's word, and the kernel checks it.
        return unsafe { libc::writev(s, parts, count) };
    };
    answer((|| {
        let stream = socket.stream()?;
        let mut done = 0;
        // SAFETY: the caller's word.
        for part in unsafe { vector(parts, count) }? {
            // SAFETY: the caller's word.
            let bytes = unsafe { from(part.iov_base, part.iov_len) }?;
            match send(&stream, bytes, 0) {
                Ok(n) => done += n,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    })())
}

/// `sov_readv`
///
/// # Safety
/// As `readv`.
pub unsafe extern "C" fn sov_readv(s: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    let Some(socket) = table::find(s) else {
        // SAFETY: the caller's word, and the kernel checks it.
        return unsafe { libc::readv(s, parts, count) };
    };
    answer((|| {
        let stream = socket.stream()?;
        let mut done = 0;
        // SAFETY: the caller's word.
        for part in unsafe { vector(parts, count) }?.iter().filter(|part| part.iov_len > 0) {
            // Only the first may wait.
            let flags = if done == 0 { 0 } else { libc::MSG_DONTWAIT };
            // SAFETY: the caller's word.
            let bytes = unsafe { into(part.iov_base, part.iov_len) }?;
            match recv(&stream, bytes, flags) {
                Ok(n) => done += n,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
            if done == 0 || !stream.readiness().read {
                break;
            }
        }
        Ok(done)
    })())
}

fn send(stream: &Arc<Stream>, bytes: &[u8], flags: c_int) -> io::Result<ssize_t> {
    if flags & !SEND != 0 {
        return Err(err(libc::EOPNOTSUPP));
    }
    if flags & libc::MSG_DONTWAIT != 0 && !stream.readiness().write {
        return Err(ErrorKind::WouldBlock.into());
    }
    let sent = (&**stream).write(bytes);
    if let Err(e) = &sent
        && e.kind() == ErrorKind::BrokenPipe
        && flags & libc::MSG_NOSIGNAL == 0
    {
        // SAFETY: what the kernel does in this place.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    Ok(sent? as ssize_t)
}

fn recv(stream: &Arc<Stream>, bytes: &mut [u8], flags: c_int) -> io::Result<ssize_t> {
    if flags & !RECV != 0 {
        return Err(err(libc::EOPNOTSUPP));
    }
    if flags & libc::MSG_DONTWAIT != 0 && !stream.readiness().read {
        return Err(ErrorKind::WouldBlock.into());
    }
    if flags & libc::MSG_PEEK != 0 {
        return Ok(stream.peek(bytes)? as ssize_t);
    }
    let mut done = (&**stream).read(bytes)?;
    while flags & libc::MSG_WAITALL != 0 && done > 0 && done < bytes.len() {
        match (&**stream).read(&mut bytes[done..]) {
            Ok(0) | Err(_) => break,
            Ok(n) => done += n,
        }
    }
    Ok(done as ssize_t)
}

/// # Safety
/// `len` bytes can be read there, and no other thread writes them meanwhile.
unsafe fn from<'a>(buffer: *const c_void, len: usize) -> io::Result<&'a [u8]> {
    match (buffer.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(err(libc::EFAULT)),
        // SAFETY: the caller's word.
        _ => Ok(unsafe { std::slice::from_raw_parts(buffer.cast(), len.min(isize::MAX as usize)) }),
    }
}

/// # Safety
/// `len` bytes can be written there, and no other thread uses them meanwhile.
unsafe fn into<'a>(buffer: *mut c_void, len: usize) -> io::Result<&'a mut [u8]> {
    match (buffer.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(err(libc::EFAULT)),
        // SAFETY: the caller's word. Bytes that were never written are only written.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), len.min(isize::MAX as usize)) }),
    }
}

/// # Safety
/// `count` of them are there.
unsafe fn vector<'a>(parts: *const iovec, count: c_int) -> io::Result<&'a [iovec]> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        // SAFETY: the caller's word.
        Ok(count @ ..=1024) if !parts.is_null() => Ok(unsafe { std::slice::from_raw_parts(parts, count) }),
        _ => Err(err(libc::EINVAL)),
    }
}
