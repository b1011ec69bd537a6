//! `libsovia_preload.so`: names of libc, replaced, so that an unmodified program's connections can move to shared memory.
//!
//! Thin: arguments are converted and checked here, `viaduct-intercept` does the rest. A descriptor that it does not know is
//! the kernel's: the system call is made by its instruction, with the same arguments. Names are exported without
//! a version; our own code calls none of them. No frame here has a destructor while a thread can be cancelled.
//!
//! - [`data`]: read, write and their kin. [`messages`]: send, recv, sendmsg, sendfile. [`ready`]: poll, epoll. [`select`].
//! - [`spawn`]: exec, spawning, the end. [`numbers`]: system calls by number.
//! - [`signals`]: handlers. [`jumps`]: ways out of them. [`names`]: close, dup, fcntl, ioctl, socket options. `stdio`: streams of libc over sockets. `start`: loading.

#![expect(missing_docs, reason = "the manual pages of libc describe every exported name")]
#![expect(clippy::missing_safety_doc, reason = "each asks of its arguments what the function of libc asks")]

pub mod data;
pub mod jumps;
pub mod messages;
pub mod names;
pub mod numbers;
pub mod ready;
pub mod select;
pub mod signals;
pub mod spawn;
mod start;
mod stdio;

use viaduct_intercept::{settings, wait};
use viaduct_os::bare::{Errno, cancel, syscall};

/// What libc's function gives for it, with `errno` set.
#[inline(always)]
fn give(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(value) => value as isize,
        Err(error) => fail(error),
    }
}

/// Apart from [`give`], so that calls which succeed save no registers for it.
#[cold]
#[inline(never)]
fn fail(Errno(number): Errno) -> isize {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = number };
    -1
}

#[inline(always)]
fn give_int(result: Result<usize, Errno>) -> i32 {
    give(result) as i32
}

/// Where connections are left on TCP for comparisons: waits as for upgraded ones before the kernel waits.
#[inline(always)]
fn spin_before(fd: i32, events: i16) {
    if settings::spins_on_tcp() {
        wait::spin_before(fd, events);
    }
}

/// The kernel's call, which may block.
///
/// # Safety
/// As the system call.
#[inline(always)]
unsafe fn blocking(number: i64, args: [usize; 6]) -> Result<usize, Errno> {
    if cancel::single_threaded() {
        // SAFETY: the caller's promise.
        return unsafe { syscall(number, args) };
    }
    // SAFETY: the caller's promise.
    unsafe { blocking_with_threads(number, &args) }
}

/// # Safety
/// As the system call.
#[inline(never)]
unsafe fn blocking_with_threads(number: i64, args: &[usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    cancel::point(|| unsafe { syscall(number, *args) })
}
