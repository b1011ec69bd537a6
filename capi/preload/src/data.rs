//! read, write, and their kin with vectors.

use libc::{c_int, c_void, iovec, size_t, ssize_t};
use viaduct_intercept::raw::Buffers;
use viaduct_intercept::table::{self, Kind};
use viaduct_intercept::{receive, route, send, splice};
use viaduct_os::bare::{Errno, syscall};

use crate::{blocking, give, spin_before};

unsafe extern "C" {
    fn __chk_fail() -> !;
}

/// # Safety
/// The buffer is valid for what the call does with it.
pub(crate) unsafe fn receive_into(
    fd: c_int,
    index: u32,
    at: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let vector = [iovec { iov_base: at, iov_len: len }];
    // SAFETY: the caller's promise.
    give(receive::receive(index, fd, unsafe { Buffers::new(&vector) }, flags))
}

/// # Safety
/// The buffer is valid for reads.
pub(crate) unsafe fn send_from(
    fd: c_int,
    index: u32,
    at: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let vector = [iovec { iov_base: at.cast_mut(), iov_len: len }];
    // SAFETY: the caller's promise.
    give(send::send(index, fd, unsafe { Buffers::new(&vector) }, flags))
}

/// The vectors of a caller; an error where the kernel would give one.
///
/// # Safety
/// They are valid for reads, and what they name for what the call does with it.
pub(crate) unsafe fn buffers<'a>(vectors: *const iovec, count: usize) -> Result<Buffers<'a>, Errno> {
    if count > 1024 {
        return Err(Errno(libc::EINVAL));
    }
    if count == 0 {
        // SAFETY: no vectors.
        return Ok(unsafe { Buffers::new(&[]) });
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { Buffers::new(std::slice::from_raw_parts(vectors, count)) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn read(fd: c_int, at: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY (here and below): the caller's promise, which is that of libc's function.
    match route(fd) {
        Some(_) if len == 0 => 0,
        // SAFETY: as above.
        Some(index) => unsafe { receive_into(fd, index, at, len, 0) },
        None => {
            spin_before(fd, libc::POLLIN);
            // SAFETY: as above.
            give(unsafe { blocking(libc::SYS_read, [fd as usize, at as usize, len, 0, 0, 0]) })
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __read(fd: c_int, at: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { read(fd, at, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __read_chk(fd: c_int, at: *mut c_void, len: size_t, room: size_t) -> ssize_t {
    if len > room {
        // SAFETY: ends the program, as libc's own check does.
        unsafe { __chk_fail() }
    }
    // SAFETY: the caller's promise.
    unsafe { read(fd, at, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn write(fd: c_int, at: *const c_void, len: size_t) -> ssize_t {
    match route(fd) {
        // SAFETY: the caller's promise.
        Some(index) => unsafe { send_from(fd, index, at, len, 0) },
        // SAFETY: the caller's promise.
        None => give(unsafe { blocking(libc::SYS_write, [fd as usize, at as usize, len, 0, 0, 0]) }),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __write(fd: c_int, at: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { write(fd, at, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
    match route(fd) {
        Some(index) => {
            // SAFETY: the caller's promise.
            give(unsafe { buffers(vectors, count as usize) }.and_then(|all| receive::read(index, fd, all, 0)))
        }
        // SAFETY: the caller's promise.
        None => give(unsafe {
            spin_before(fd, libc::POLLIN);
            blocking(libc::SYS_readv, [fd as usize, vectors as usize, count as usize, 0, 0, 0])
        }),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn writev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
    match route(fd) {
        // SAFETY: the caller's promise.
        Some(index) => {
            // SAFETY: the caller's promise.
            give(unsafe { buffers(vectors, count as usize) }.and_then(|all| send::send(index, fd, all, 0)))
        }
        // SAFETY: the caller's promise.
        None => give(unsafe {
            blocking(libc::SYS_writev, [fd as usize, vectors as usize, count as usize, 0, 0, 0])
        }),
    }
}

/// With an offset of -1 and no flags but those for not waiting this is readv on a socket.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    vectors: *const iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> ssize_t {
    match route(fd).filter(|_| offset == -1) {
        Some(index) => {
            let wait = if flags & libc::RWF_NOWAIT != 0 { libc::MSG_DONTWAIT } else { 0 };
            // SAFETY: the caller's promise.
            give(
                unsafe { buffers(vectors, count as usize) }
                    .and_then(|all| receive::read(index, fd, all, wait)),
            )
        }
        None => {
            let args = [fd as usize, vectors as usize, count as usize, offset as usize, 0, flags as usize];
            // SAFETY: the caller's promise.
            give(unsafe { blocking(libc::SYS_preadv2, args) })
        }
    }
}

/// What C programs with offsets of 64 bits call for preadv2.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn preadv64v2(
    fd: c_int,
    vectors: *const iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { preadv2(fd, vectors, count, offset, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    vectors: *const iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> ssize_t {
    match route(fd).filter(|_| offset == -1) {
        Some(index) => {
            let wait = if flags & libc::RWF_NOWAIT != 0 { libc::MSG_DONTWAIT } else { 0 };
            // SAFETY: the caller's promise.
            give(unsafe { buffers(vectors, count as usize) }.and_then(|all| send::send(index, fd, all, wait)))
        }
        None => {
            let args = [fd as usize, vectors as usize, count as usize, offset as usize, 0, flags as usize];
            // SAFETY: the caller's promise.
            give(unsafe { blocking(libc::SYS_pwritev2, args) })
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pwritev64v2(
    fd: c_int,
    vectors: *const iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { pwritev2(fd, vectors, count, offset, flags) }
}

/// Bytes of a file that go to a connection at a time.
const PIECE: usize = 32 << 10;

/// A file to a connection with rings: its bytes are read and sent in pieces, and no byte is read that is not sent.
///
/// # Safety
/// `offset` is null or valid for reads and writes.
unsafe fn send_file(out: c_int, file: c_int, offset: *mut i64, count: size_t) -> Result<usize, Errno> {
    let seek = |by: i64, how: c_int| {
        // SAFETY: no pointers.
        unsafe { syscall(libc::SYS_lseek, [file as usize, by as usize, how as usize, 0, 0, 0]) }
    };
    // SAFETY: the caller's promise.
    let start = if offset.is_null() { seek(0, libc::SEEK_CUR)? as i64 } else { unsafe { *offset } };
    let mut piece = [0u8; PIECE];
    let mut sent = 0;
    let mut failed = None;
    while sent < count {
        let want = (count - sent).min(PIECE);
        let at = (start + sent as i64) as usize;
        // SAFETY: the piece is valid for writes of its length.
        let got = unsafe {
            syscall(libc::SYS_pread64, [file as usize, piece.as_mut_ptr() as usize, want, at, 0, 0])
        };
        let got = match got {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) => {
                failed = Some(error);
                break;
            }
        };
        let vector = [iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: got }];
        // Looked up for each piece: the other side may come, or be given up, in between.
        let result = match route(out) {
            // SAFETY: the piece outlives the call.
            Some(index) => send::send(index, out, unsafe { Buffers::new(&vector) }, 0),
            None => {
                let args = [out as usize, piece.as_ptr() as usize, got, 0, 0, 0];
                // SAFETY: as above.
                unsafe { syscall(libc::SYS_write, args) }
            }
        };
        match result {
            Ok(count) => sent += count,
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    if offset.is_null() {
        let _ = seek(start + sent as i64, libc::SEEK_SET);
    } else {
        // SAFETY: the caller's promise.
        unsafe { *offset = start + sent as i64 };
    }
    match failed {
        Some(error) if sent == 0 => Err(error),
        _ => Ok(sent),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendfile(
    out: c_int,
    file: c_int,
    offset: *mut i64,
    count: size_t,
) -> ssize_t {
    if table::kind(out) != Kind::Plain {
        // SAFETY: the caller's promise.
        return unsafe { send_file_slowly(out, file, offset, count) };
    }
    // SAFETY: the caller's promise. libc's function is no cancellation point.
    give(unsafe { syscall(libc::SYS_sendfile, [out as usize, file as usize, offset as usize, count, 0, 0]) })
}

/// # Safety
/// As libc's sendfile.
#[inline(never)]
unsafe fn send_file_slowly(out: c_int, file: c_int, offset: *mut i64, count: size_t) -> ssize_t {
    match route(out) {
        // SAFETY: the caller's promise.
        Some(_) => give(unsafe { send_file(out, file, offset, count) }),
        None => {
            let args = [out as usize, file as usize, offset as usize, count, 0, 0];
            // SAFETY: the caller's promise.
            give(unsafe { syscall(libc::SYS_sendfile, args) })
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendfile64(
    out: c_int,
    file: c_int,
    offset: *mut i64,
    count: size_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { sendfile(out, file, offset, count) }
}

/// Between a pipe and a connection with rings the bytes are copied; the kernel does all else.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_at: *mut i64,
    to: c_int,
    to_at: *mut i64,
    len: size_t,
    flags: u32,
) -> ssize_t {
    let nonblocking = flags & libc::SPLICE_F_NONBLOCK != 0;
    match (route(from), route(to)) {
        (None, None) => {
            let args = [from as usize, from_at as usize, to as usize, to_at as usize, len, flags as usize];
            // SAFETY: the caller's promise.
            give(unsafe { blocking(libc::SYS_splice, args) })
        }
        // As the kernel says of descriptors that have no position, and of two that are no pipes.
        _ if !from_at.is_null() || !to_at.is_null() => give(Err(Errno(libc::ESPIPE))),
        (Some(index), None) => give(splice::to_pipe(index, from, to, len, nonblocking)),
        (None, Some(index)) => give(splice::from_pipe(index, to, from, len, nonblocking)),
        (Some(_), Some(_)) => give(Err(Errno(libc::EINVAL))),
    }
}
