//! Closing descriptors that a peer sent and that are not what they should be.
//!
//! `close` waits for some files: one of a FUSE file system until its server answers, a TCP socket as long as it lingers. A
//! peer chooses what it sends, so a thread that others wait for does not close such a descriptor itself.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::eventfd::EventFd;
use crate::segment::Segment;
use crate::signals;

/// Threads that close at the same time. When all of them hang, what comes after is left open.
const MOST: usize = 16;

static CLOSING: AtomicUsize = AtomicUsize::new(0);

/// Closes descriptors of unknown kind: memory and eventfds here, all else on a thread of their own.
pub fn close_apart(mut fds: Vec<OwnedFd>) {
    fds.retain(|fd| !Segment::is_one(fd.as_fd()) && !EventFd::is_one(fd.as_fd()));
    if fds.is_empty() {
        return;
    }
    if CLOSING.fetch_add(1, Ordering::Relaxed) >= MOST {
        CLOSING.fetch_sub(1, Ordering::Relaxed);
        std::mem::forget(fds);
        return;
    }
    let close = move || {
        drop(fds);
        CLOSING.fetch_sub(1, Ordering::Relaxed);
    };
    // Without a thread the closure is dropped here, and the descriptors with it.
    let thread = std::thread::Builder::new().name("viaduct-close".into()).stack_size(64 << 10);
    if signals::while_blocked(|| thread.spawn(close)).is_err() {
        CLOSING.fetch_sub(1, Ordering::Relaxed);
    }
}
