//! A signal that ends the process cuts connections first. A handler of the program's own runs with the connections whole,
//! and keeps them unless it has set the default action; a signal that is ignored stays so. A test program of its own, since
//! handlers belong to the whole process.

use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use viaduct_os::farewell::{CutLine, cut_at_fatal_signals};

static PLAIN: AtomicI32 = AtomicI32::new(0);
static INFORMED: AtomicI32 = AtomicI32::new(0);
static MASKED: AtomicBool = AtomicBool::new(false);

/// Sets flags, and leaves the process as it is.
extern "C" fn plain(signal: i32) {
    PLAIN.store(signal, Ordering::SeqCst);
    // SAFETY: all zeroes is a set, which the call fills; both calls are allowed in a handler.
    unsafe {
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut blocked);
        MASKED.store(libc::sigismember(&raw const blocked, libc::SIGUSR1) == 1, Ordering::SeqCst);
    }
}

extern "C" fn informed(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's, for this handler.
    let of = unsafe { (*info).si_signo };
    INFORMED.store(if of == signal { signal } else { -1 }, Ordering::SeqCst);
}

/// Steps aside, as the handler of Rust's own library does for a fault it does not know.
extern "C" fn aside(signal: i32) {
    install(signal, libc::SIG_DFL, 0);
}

fn install(signal: i32, handler: usize, flags: i32) {
    // SAFETY: all zeroes is a valid action; the handlers above do what a handler may do.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        libc::sigaddset(&raw mut action.sa_mask, libc::SIGUSR1);
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

fn flags(signal: i32) -> i32 {
    // SAFETY: all zeroes is a valid action, which the call fills.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &raw mut action), 0);
        action.sa_flags
    }
}

fn raise(signal: i32) {
    // SAFETY: a signal to this thread, whose handler returns.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

/// A connection that is in the list, and its other end.
fn connection() -> (CutLine, UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    (CutLine::of(ours.as_raw_fd()).unwrap(), ours, theirs)
}

fn is_whole(theirs: &mut UnixStream) -> bool {
    match theirs.read(&mut [0]) {
        Ok(0) => false,
        other => other.unwrap_err().kind() == ErrorKind::WouldBlock,
    }
}

#[test]
fn a_handler_of_the_program_keeps_its_connections_unless_it_steps_aside() {
    install(libc::SIGTERM, plain as *const () as usize, libc::SA_RESTART);
    install(libc::SIGINT, informed as *const () as usize, libc::SA_SIGINFO);
    install(libc::SIGHUP, libc::SIG_IGN, 0);
    install(libc::SIGQUIT, aside as *const () as usize, 0);
    cut_at_fatal_signals().unwrap();
    cut_at_fatal_signals().unwrap();
    assert!(flags(libc::SIGTERM) & libc::SA_RESTART != 0, "interrupted calls go on");
    assert!(flags(libc::SIGINT) & libc::SA_RESTART == 0, "interrupted calls fail");
    for (signal, ran) in [(libc::SIGTERM, &PLAIN), (libc::SIGINT, &INFORMED)] {
        let (_line, _ours, mut theirs) = connection();
        raise(signal);
        assert_eq!(ran.load(Ordering::SeqCst), signal, "the handler of the program");
        assert!(is_whole(&mut theirs), "{signal}: the program goes on, and its connections with it");
    }
    assert!(MASKED.load(Ordering::SeqCst), "what the handler wants blocked is blocked");
    let (_line, _ours, mut theirs) = connection();
    raise(libc::SIGHUP);
    assert!(is_whole(&mut theirs), "ignored is ignored");
    // A connection that cannot be cut any more is an error of the call that cuts it.
    let (_reader, writer) = std::io::pipe().unwrap();
    let _failing = CutLine::of(writer.as_raw_fd()).unwrap();
    // SAFETY: the address of this thread's own.
    unsafe { *libc::__errno_location() = libc::EXDEV };
    raise(libc::SIGQUIT);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EXDEV), "errno is left alone");
    assert!(!is_whole(&mut theirs), "the next one ends the process, so the peer sees the end");
}
