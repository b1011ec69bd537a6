//! A fatal signal cuts connections, and then the handler runs that was there before; one that is ignored stays so. A test
//! program of its own, since handlers are the whole process's.

use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, Ordering};

use viaduct_os::farewell::{Line, cut_at_fatal_signals};

static PLAIN: AtomicI32 = AtomicI32::new(0);
static INFORMED: AtomicI32 = AtomicI32::new(0);

extern "C" fn plain(signal: i32) {
    PLAIN.store(signal, Ordering::SeqCst);
}

extern "C" fn informed(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's, for this handler.
    let of = unsafe { (*info).si_signo };
    INFORMED.store(if of == signal { signal } else { -1 }, Ordering::SeqCst);
}

fn install(signal: i32, handler: usize, flags: i32) {
    // SAFETY: all zeroes is a valid action; the handlers above store a number and do nothing else.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

fn raise(signal: i32) {
    // SAFETY: a signal to this thread, whose handler returns.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

#[test]
fn connections_are_cut_and_then_the_applications_handler_runs() {
    install(libc::SIGTERM, plain as *const () as usize, 0);
    install(libc::SIGINT, informed as *const () as usize, libc::SA_SIGINFO);
    install(libc::SIGHUP, libc::SIG_IGN, 0);
    cut_at_fatal_signals().unwrap();
    cut_at_fatal_signals().unwrap();
    for (signal, ran) in [(libc::SIGTERM, &PLAIN), (libc::SIGINT, &INFORMED)] {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let line = Line::of(ours.as_raw_fd()).unwrap();
        raise(signal);
        assert_eq!(ran.load(Ordering::SeqCst), signal, "the handler that was there before");
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "the peer sees the end");
        drop(line);
    }
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let _line = Line::of(ours.as_raw_fd()).unwrap();
    raise(libc::SIGHUP);
    theirs.set_nonblocking(true).unwrap();
    assert_eq!(theirs.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "ignored is ignored");
}
