//! Signals as something to read: a launcher waits for them in the same epoll set as for everything else.
//!
//! Catapult (Millennium Sort, section 3.1) hands signals on to the programs it started. Nothing runs in a signal handler
//! here: the signals are blocked, and a descriptor says which have come.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::OsError;

/// Numbers of the signals that Viaduct names.
pub mod number {
    pub use libc::{SIGALRM as ALRM, SIGCHLD as CHLD, SIGCONT as CONT, SIGHUP as HUP, SIGINT as INT};
    pub use libc::{SIGKILL as KILL, SIGPIPE as PIPE, SIGQUIT as QUIT, SIGSTOP as STOP, SIGTERM as TERM};
    pub use libc::{SIGTSTP as TSTP, SIGUSR1 as USR1, SIGUSR2 as USR2};
}

/// A descriptor from which blocked signals are read. They stay blocked when it is dropped.
#[derive(Debug)]
pub struct SignalFd {
    fd: OwnedFd,
}

impl SignalFd {
    /// Blocks these signals in this thread, and in threads it makes from now on, and reads them instead.
    ///
    /// # Errors
    /// [`OsError::Fds`] when descriptors have run out.
    pub fn block(signals: &[i32]) -> Result<SignalFd, OsError> {
        let set = set_of(signals);
        // SAFETY: the set is initialised, and a null pointer asks for no old one.
        let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if failed != 0 {
            return Err(OsError::sys("sigprocmask", io::Error::from_raw_os_error(failed)));
        }
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let raw = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if raw < 0 {
            return Err(OsError::sys("signalfd", io::Error::last_os_error()));
        }
        // SAFETY: the kernel made this descriptor for us just now.
        Ok(SignalFd { fd: unsafe { OwnedFd::from_raw_fd(raw) } })
    }

    /// The next signal that has come, if any.
    pub fn take(&self) -> Option<i32> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        let n = rustix::io::read(&self.fd, &mut info).ok()?;
        // The number is the first word; short reads do not happen.
        (n == info.len()).then(|| i32::from_ne_bytes([info[0], info[1], info[2], info[3]]))
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Does something in whose time this thread, and so every thread that it makes, blocks the signals that are sent to the
/// process: a thread of a library is none for the program's signal handlers to run on. Faults are not blocked.
pub fn while_blocked<T>(act: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call fills the set that the others change and use; the mask that was there is kept in the second.
    let changed = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
            libc::SIGABRT,
            libc::SIGSYS,
        ] {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let done = act();
    if changed {
        // SAFETY: filled by the call that changed the mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    done
}

/// Lets every signal through again. Makes one system call and allocates nothing.
pub fn unblock_all() {
    let set = set_of(&[]);
    // SAFETY: the set is initialised; the call fails only for an unknown first argument.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
}

/// The usual name of a signal, without SIG; its number if it has none.
pub fn name(signal: i32) -> String {
    match NAMES.iter().find(|(number, _)| *number == signal) {
        Some((_, name)) => (*name).to_owned(),
        None => signal.to_string(),
    }
}

/// The signal of a name or number: `TERM`, `SIGTERM`, `15`.
pub fn by_name(text: &str) -> Option<i32> {
    let upper = text.to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    let number = || text.parse().ok().filter(|n| (1..=64).contains(n));
    NAMES.iter().find(|(_, name)| *name == bare).map(|(number, _)| *number).or_else(number)
}

const NAMES: &[(i32, &str)] = &[
    (libc::SIGHUP, "HUP"),
    (libc::SIGINT, "INT"),
    (libc::SIGQUIT, "QUIT"),
    (libc::SIGILL, "ILL"),
    (libc::SIGTRAP, "TRAP"),
    (libc::SIGABRT, "ABRT"),
    (libc::SIGBUS, "BUS"),
    (libc::SIGFPE, "FPE"),
    (libc::SIGKILL, "KILL"),
    (libc::SIGUSR1, "USR1"),
    (libc::SIGSEGV, "SEGV"),
    (libc::SIGUSR2, "USR2"),
    (libc::SIGPIPE, "PIPE"),
    (libc::SIGALRM, "ALRM"),
    (libc::SIGTERM, "TERM"),
    (libc::SIGCHLD, "CHLD"),
    (libc::SIGCONT, "CONT"),
    (libc::SIGSTOP, "STOP"),
    (libc::SIGTSTP, "TSTP"),
    (libc::SIGTTIN, "TTIN"),
    (libc::SIGTTOU, "TTOU"),
    (libc::SIGXCPU, "XCPU"),
    (libc::SIGXFSZ, "XFSZ"),
    (libc::SIGSYS, "SYS"),
];

fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises all of it.
    let mut set: libc::sigset_t = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    };
    for &signal in signals {
        // SAFETY: the set is initialised; an unknown number is refused and changes nothing.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_made_while_signals_are_blocked_blocks_them() {
        let blocked = |signal| {
            let mut now = MaybeUninit::<libc::sigset_t>::uninit();
            // SAFETY: asks for the mask, into memory of the right type.
            unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), now.as_mut_ptr());
                libc::sigismember(now.as_ptr(), signal) == 1
            }
        };
        let before = blocked(libc::SIGUSR2);
        let thread =
            while_blocked(|| std::thread::spawn(move || (blocked(libc::SIGUSR2), blocked(libc::SIGSEGV))));
        assert_eq!(thread.join().unwrap(), (true, false));
        assert_eq!(blocked(libc::SIGUSR2), before, "this thread is as it was");
    }

    #[test]
    fn names_and_numbers() {
        assert_eq!((name(15), name(63)), ("TERM".to_owned(), "63".to_owned()));
        assert_eq!([by_name("sigterm"), by_name("INT"), by_name("9")], [Some(15), Some(2), Some(9)]);
        assert_eq!([by_name("0"), by_name("65"), by_name("NEVER"), by_name("")], [None; 4]);
    }

    #[test]
    fn a_blocked_signal_is_read() {
        // A thread of its own, whose mask no other thread has; a signal to the thread, so that no other one takes it.
        std::thread::spawn(|| {
            let signals = SignalFd::block(&[number::USR2]).unwrap();
            assert_eq!(signals.take(), None);
            // SAFETY: the thread is this one.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
            assert_eq!(signals.take(), Some(number::USR2));
            assert_eq!(signals.take(), None);
        })
        .join()
        .unwrap();
    }
}
