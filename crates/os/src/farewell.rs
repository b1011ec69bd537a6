//! The last moments of a process: what is done when it exits, and how peers hear at once of an end by a fatal signal.
//!
//! SOVIA, section 4.4. The kernel tells peers of every end, but only when the process is gone: while it writes its core they
//! would wait. What runs in the signal handler here is one system call for each connection, and only where the process
//! ends: a handler of the program's own runs first, as it would have run without this module, and connections are cut
//! behind it only if it has set the default action, as handlers do that let the signal come again.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Connections that are cut; further ones end with the process, as all do without this.
const MOST: usize = 1024;

static LINES: [AtomicI32; MOST] = [const { AtomicI32::new(-1) }; MOST];

/// Signals that end a process unless it has a handler.
const FATAL: [i32; 9] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGABRT,
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
];

/// What was there before, in the order of [`FATAL`].
struct Before(UnsafeCell<[MaybeUninit<libc::sigaction>; FATAL.len()]>);

// SAFETY: each is written once, before its handler is installed, and only read by that handler.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new([const { MaybeUninit::uninit() }; FATAL.len()]));
static READY: [AtomicBool; FATAL.len()] = [const { AtomicBool::new(false) }; FATAL.len()];

/// A connection that is cut at a fatal signal, until this is dropped. It must be dropped before the descriptor is closed.
#[derive(Debug)]
pub struct CutLine(usize);

impl CutLine {
    /// Takes a socket in. None if there are too many.
    pub fn of(fd: RawFd) -> Option<CutLine> {
        let free =
            |line: &AtomicI32| line.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        LINES.iter().position(free).map(CutLine)
    }
}

impl Drop for CutLine {
    fn drop(&mut self) {
        LINES[self.0].store(-1, Ordering::Release);
    }
}

/// Something to be done when the process exits by `exit` or by returning from `main`, before anything registered earlier.
/// Whether there was room for it.
pub fn at_exit(act: extern "C" fn()) -> bool {
    // SAFETY: a plain function, which lives as long as the process.
    unsafe { libc::atexit(act) == 0 }
}

/// From now on a signal that ends the process cuts all its connections with other processes of this host first. Handlers of
/// the program run as before, with the flags and the mask they were installed with; one that returns and leaves itself
/// installed keeps the connections. A signal that is ignored stays so. Handlers that are installed later replace this one.
pub fn cut_at_fatal_signals() -> io::Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        for (at, &signal) in FATAL.iter().enumerate() {
            if let Err(error) = install(at, signal) {
                result = Err(error);
            }
        }
    });
    result
}

fn install(at: usize, signal: i32) -> io::Result<()> {
    let mut before = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: asks for the action there is, into memory of the right type.
    if unsafe { libc::sigaction(signal, std::ptr::null(), before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled by the call above.
    let mut action = unsafe { before.assume_init() };
    if action.sa_sigaction == libc::SIG_IGN {
        return Ok(());
    }
    // SAFETY: under the `Once`, and before the handler that reads it is there.
    unsafe { (*BEFORE.0.get())[at] = before };
    READY[at].store(true, Ordering::Release);
    // Mask and flags stay: what a system call does that is interrupted, and on which stack the handler runs.
    if action.sa_sigaction == libc::SIG_DFL {
        action.sa_flags |= libc::SA_ONSTACK;
    }
    action.sa_sigaction = on_signal as *const () as usize;
    action.sa_flags |= libc::SA_SIGINFO;
    // SAFETY: the handler makes only calls that a handler may make.
    match unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(at) = FATAL.iter().position(|s| *s == signal) else { return };
    if !READY[at].load(Ordering::Acquire) {
        return;
    }
    // SAFETY: written before this handler was installed, and never again.
    let before = unsafe { (&(*BEFORE.0.get()))[at].assume_init_ref() };
    if before.sa_sigaction == libc::SIG_DFL {
        cut_all();
        // SAFETY: both may be called in a handler. The signal comes again when this handler returns, and ends us.
        unsafe {
            libc::sigaction(signal, before, std::ptr::null_mut());
            libc::raise(signal);
        }
        return;
    }
    run(before, signal, info, context);
    // A handler that has set the default action and returns expects the signal again: the process is about to end. With
    // SA_RESETHAND the kernel has set it, and the handler has said nothing.
    if before.sa_flags & libc::SA_RESETHAND == 0 && is_default(signal) {
        cut_all();
    }
}

/// Cuts every connection in the list. `errno` is left alone: the program may go on behind the signal.
fn cut_all() {
    // SAFETY: the address of this thread's own.
    let errno = unsafe { &mut *libc::__errno_location() };
    let kept = *errno;
    for line in &LINES {
        let fd = line.load(Ordering::Acquire);
        if fd >= 0 {
            // SAFETY: a system call that a handler may make; the descriptor is open while it is in the list.
            unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
        }
    }
    *errno = kept;
}

/// Whether the default action is installed for a signal.
fn is_default(signal: i32) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a call that a handler may make, into memory of the right type, which is read only if it was filled. It
    // cannot fail for a signal that came, so `errno` stays.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_DFL
    }
}

/// Runs the handler that was installed before ours.
fn run(before: &libc::sigaction, signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if before.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the flag says that the handler has this type.
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(before.sa_sigaction) };
        handler(signal, info, context);
    } else {
        // SAFETY: without the flag it has this one.
        let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(before.sa_sigaction) };
        handler(signal);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_line_is_in_the_list_while_it_lives() {
        let (a, _b) = UnixStream::pair().unwrap();
        let listed = || LINES.iter().any(|l| l.load(Ordering::Relaxed) == a.as_raw_fd());
        let line = CutLine::of(a.as_raw_fd()).unwrap();
        assert!(listed());
        drop(line);
        assert!(!listed());
    }
}
