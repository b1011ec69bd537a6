//! Faults outside of a window go to the handlers that were there before, of both kinds, and end the process where there were
//! none, as signals do that a process sends; those inside are the window's. The only test in its process, whose handlers it changes for good.

use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use viaduct_os::fault::{Access, EngineKind, Protection, Stack, Window, serve};
use viaduct_os::segment::{Segment, page_size};

const ADDRESS: usize = 0x2A00_0000_0000;

static WINDOW: AtomicUsize = AtomicUsize::new(0);
static CAUGHT: AtomicUsize = AtomicUsize::new(0);
/// Where the program's own handler saw a fault.
static SEEN: AtomicUsize = AtomicUsize::new(0);
static PLAIN: AtomicI32 = AtomicI32::new(0);

fn open(address: usize, _: Access) -> bool {
    // SAFETY: the test keeps the window alive while faults are served.
    let window = unsafe { &*(WINDOW.load(Ordering::Acquire) as *const Window) };
    let page = (address - ADDRESS) / page_size() * page_size();
    CAUGHT.fetch_add(1, Ordering::Relaxed);
    window.protect(page..page + page_size(), Protection::Write).is_ok()
}

/// The program's own handler of SIGSEGV: opens the page, so that the program goes on.
extern "C" fn informed(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's, for this handler; the page is the test's own mapping.
    unsafe {
        let address = (*info).si_addr() as usize;
        SEEN.store(address, Ordering::SeqCst);
        let page = (address / page_size() * page_size()) as *mut libc::c_void;
        libc::mprotect(page, page_size(), libc::PROT_READ | libc::PROT_WRITE);
    }
}

/// The program's own handler of SIGBUS, of the old kind.
extern "C" fn plain(signal: libc::c_int) {
    PLAIN.store(signal, Ordering::SeqCst);
}

fn install(signal: libc::c_int, handler: usize, flags: libc::c_int) {
    // SAFETY: all zeroes is a valid action; the handlers above do what a handler may do.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &raw const action, ptr::null_mut()), 0);
    }
}

/// Runs `test` while the faults of a window are served.
fn with_window(test: impl FnOnce(*mut u8)) {
    let segment = Segment::create_sparse("chained", 4 * page_size()).expect("memory");
    let window = Window::new(&segment, ADDRESS, Some(EngineKind::Mprotect)).expect("a window");
    WINDOW.store(&raw const window as usize, Ordering::Release);
    let _stack = Stack::install().expect("a stack");
    let _serving = serve(ADDRESS..ADDRESS + window.len(), open).expect("faults");
    test(window.as_ptr());
}

/// A page of nothing.
fn closed_page() -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping somewhere.
    let page = unsafe { libc::mmap(ptr::null_mut(), page_size(), libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    page.cast()
}

fn touch(at: *mut u8) {
    // SAFETY: an address of the window or of a closed page, whose fault is caught, or ends the process as the test wants.
    unsafe { at.write_volatile(1) };
}

/// What ends a child that does this with the faults of a window served: a signal, or none.
fn ended_by(act: impl FnOnce(*mut u8)) -> Option<libc::c_int> {
    // SAFETY: the child calls nothing but system calls and the code under test, and leaves by a signal or _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        with_window(act);
        // SAFETY: ends the child where the act did not.
        unsafe { libc::_exit(3) };
    }
    let mut status = 0;
    // SAFETY: the child that was just made.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
}

fn send(signal: libc::c_int) {
    // SAFETY: a signal to this process.
    assert_eq!(unsafe { libc::kill(libc::getpid(), signal) }, 0);
}

#[test]
fn faults_elsewhere_go_to_the_handlers_that_were_there_before() {
    let elsewhere = |base| {
        touch(base);
        touch(closed_page());
    };
    assert_eq!(ended_by(elsewhere), Some(libc::SIGSEGV));
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // The handler of Rust's own runtime loses what is sent.
        install(signal, libc::SIG_DFL, 0);
        assert_eq!(ended_by(|_| send(signal)), Some(signal), "sent to a process without a handler");
        install(signal, libc::SIG_IGN, 0);
        assert_eq!(ended_by(|_| send(signal)), None, "sent to a process that ignores it");
        install(signal, libc::SIG_DFL, 0);
    }

    install(libc::SIGSEGV, informed as *const () as usize, libc::SA_SIGINFO);
    install(libc::SIGBUS, plain as *const () as usize, 0);
    with_window(|base| {
        touch(base.wrapping_add(page_size()));
        assert_eq!((CAUGHT.load(Ordering::SeqCst), SEEN.load(Ordering::SeqCst)), (1, 0));
        let page = closed_page();
        touch(page.wrapping_add(7));
        assert_eq!((CAUGHT.load(Ordering::SeqCst), SEEN.load(Ordering::SeqCst)), (1, page as usize + 7));
        // SAFETY: a signal to this thread, which has a handler.
        assert_eq!(unsafe { libc::raise(libc::SIGBUS) }, 0);
        assert_eq!(PLAIN.load(Ordering::SeqCst), libc::SIGBUS);
        touch(base.wrapping_add(2 * page_size()));
        assert_eq!(CAUGHT.load(Ordering::SeqCst), 2);
    });
}
