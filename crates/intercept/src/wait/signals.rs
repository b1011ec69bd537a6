//! Signals that come to a thread that sleeps in a receive or a send. The kernel's call for sleeping ends after every handler;
//! TCP goes on after one with `SA_RESTART`. Where a program has handlers of both kinds, the end alone does not say which came:
//! those with `SA_RESTART` are then held back while the thread sleeps, a descriptor wakes it for them, and their handlers run
//! as soon as it is awake. What ends the call is one of the others.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use viaduct_os::bare::signals::{self, Handlers};
use viaduct_os::bare::{Errno, calls, cancel};

/// How often the program has changed what it does with a signal, and how often it had when that was last looked at.
static CHANGES: AtomicU32 = AtomicU32::new(1);
static SEEN: AtomicU32 = AtomicU32::new(0);
/// Signals with `SA_RESTART` if there are others, too; else none.
static HELD: AtomicU64 = AtomicU64::new(0);

/// The program has changed what it does with a signal.
pub fn changed() {
    CHANGES.fetch_add(1, Ordering::AcqRel);
}

/// Whether the program may have handlers: it has changed what it does with a signal.
pub(crate) fn may_be_handled() -> bool {
    CHANGES.load(Ordering::Acquire) != 1
}

fn held() -> u64 {
    let changes = CHANGES.load(Ordering::Acquire);
    if SEEN.load(Ordering::Acquire) != changes {
        let Handlers { restarting, interrupting } = signals::handlers();
        HELD.store(if interrupting == 0 { 0 } else { restarting }, Ordering::Release);
        SEEN.store(changes, Ordering::Release);
    }
    HELD.load(Ordering::Acquire)
}

/// An entry that waits for nothing.
pub(crate) const NONE: libc::pollfd = libc::pollfd { fd: -1, events: 0, revents: 0 };

/// Sleeps until one of the first two entries is ready. With a limit in time every handler ends the call, as on TCP.
pub(crate) fn sleep(fds: &mut [libc::pollfd; 3], limit_ns: Option<u64>) -> Result<usize, Errno> {
    let held = if limit_ns.is_none() { held() } else { 0 };
    if held == 0 {
        return cancel::point(|| calls::poll(&mut fds[..2], limit_ns, None));
    }
    sleep_apart(fds, held)
}

#[cold]
#[inline(never)]
fn sleep_apart(fds: &mut [libc::pollfd; 3], held: u64) -> Result<usize, Errno> {
    let blocked = signals::blocked();
    let held = held & !blocked;
    let Ok(fd) = signals::descriptor(held) else {
        return cancel::point(|| calls::poll(&mut fds[..2], None, None));
    };
    fds[2] = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let woken = cancel::point(|| calls::poll(fds, None, Some(blocked | held)));
    let _ = calls::close(fd);
    woken
}
