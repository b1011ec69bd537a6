//! What happens to our memory and descriptors in a forked child.
//!
//! A child of `fork` inherits mappings and descriptors of connections that are not its own. Three things are done
//! about it: a [`generation`] number by which an object notices that it lives in a child; segments that become private
//! copies at the same address (program memory that was registered for transfer keeps the meaning fork gives it); and
//! descriptors that are dead in the child, so that the peer sees the hang-up when the parent dies (design, section
//! 2.6). Serves the sockets layer of SOVIA, where forking servers are the rule.
//!
//! The handlers run for `fork` of the C library. They do not for `vfork`, `posix_spawn` (the child only executes
//! another program) and `_Fork` or bare `clone` (a child of those must not touch Viaduct).

use std::cell::UnsafeCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once};

use rustix::fs::{Mode, OFlags};
use rustix::io::DupFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::barrier;

/// A number that differs between a process and its forked child. One relaxed load.
#[inline]
pub fn generation() -> u32 {
    match GENERATION.load(Ordering::Relaxed) {
        0 => first_generation(),
        number => number,
    }
}

/// Makes `fd` dead in forked children: any use answers EBADF, and what it stood for is let go.
///
/// The number itself stays taken, by a placeholder, until its owner closes it in the child: were it free, the next
/// `open` would get it and the owner's destructor would close a stranger's file. The registration must be dropped before
/// the descriptor is closed.
pub fn close_in_child(fd: RawFd) -> Registration {
    add(Entry::Close(fd))
}

/// Keeps an entry in the list of things to do in a child; dropping it takes the entry out.
#[derive(Debug)]
#[must_use = "dropping it takes the registration back"]
pub struct Registration {
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let entry = {
            let mut registry = lock();
            let at = registry.entries.iter().position(|(id, _)| *id == self.id);
            at.map(|at| registry.entries.swap_remove(at))
        };
        drop(entry); // may close a descriptor: after the lock is free
    }
}

/// Has `len` bytes at `addr`, a shared mapping of `fd`, become a private mapping of it in children.
pub(crate) fn private_in_child(addr: usize, len: usize, prot: ProtFlags, fd: Arc<OwnedFd>) -> Registration {
    add(Entry::Private { addr, len, prot, fd })
}

/// Installs the handlers, once per process.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Best effort: without a placeholder the child closes the number.
        lock().placeholder = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        // SAFETY: the three handlers are plain functions of this program that stay loaded as long as it runs.
        let failed = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
        // It fails only without memory for a few words; a process in that state is lost anyway.
        assert_eq!(failed, 0, "pthread_atfork failed");
        let _ = GENERATION.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
    });
}

/// 0: the handlers are not installed yet.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static REGISTRY: Mutex<Registry> = Mutex::new(Registry { next: 0, entries: Vec::new(), placeholder: None });
static HELD: HeldRegistry = HeldRegistry(UnsafeCell::new(None));

struct Registry {
    next: u64,
    entries: Vec<(u64, Entry)>,
    /// A descriptor good for nothing (O_PATH), to be put in the place of dead ones.
    placeholder: Option<OwnedFd>,
}

enum Entry {
    Private { addr: usize, len: usize, prot: ProtFlags, fd: Arc<OwnedFd> },
    Close(RawFd),
}

/// The lock on the registry while a fork is under way.
struct HeldRegistry(UnsafeCell<Option<MutexGuard<'static, Registry>>>);

// SAFETY: the cell is touched only by the thread that forks, between `prepare` and `parent` or `child`; forks of other
// threads wait in `prepare` for the lock that the cell holds.
unsafe impl Sync for HeldRegistry {}

#[cold]
fn first_generation() -> u32 {
    install();
    GENERATION.load(Ordering::Relaxed)
}

fn lock() -> MutexGuard<'static, Registry> {
    // Nothing panics under the lock, and a half-done entry is impossible.
    REGISTRY.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn add(entry: Entry) -> Registration {
    install();
    let mut registry = lock();
    registry.next += 1;
    let id = registry.next;
    registry.entries.push((id, entry));
    Registration { id }
}

extern "C" fn prepare() {
    let guard = lock();
    // SAFETY: this thread holds the registry's lock, so no other thread is between `prepare` and `parent`.
    unsafe { *HELD.0.get() = Some(guard) };
}

extern "C" fn parent() {
    // SAFETY: runs in the thread that ran `prepare`, which holds the lock.
    drop(unsafe { (*HELD.0.get()).take() });
}

/// Only system calls from here on: locks of the allocator may be held by threads that do not exist in the child.
extern "C" fn child() {
    // SAFETY: the child's only thread is the one that ran `prepare`.
    let guard = unsafe { (*HELD.0.get()).take() };
    let Some(registry) = guard else { return };
    GENERATION.fetch_add(1, Ordering::Relaxed);
    for (_, entry) in &registry.entries {
        if let Entry::Private { addr, len, prot, fd } = entry {
            make_private(*addr, *len, *prot, fd.as_fd());
        }
    }
    // After the mappings, which may need descriptors that die now.
    for (_, entry) in &registry.entries {
        if let Entry::Close(fd) = entry {
            make_dead(*fd, registry.placeholder.as_ref());
        }
    }
    drop(registry);
    barrier::after_fork();
}

fn make_private(addr: usize, len: usize, prot: ProtFlags, fd: BorrowedFd<'_>) {
    let at = addr as *mut libc::c_void;
    // SAFETY: the range is a mapping that its Segment registered and has not given up (it unregisters first), so only
    // that segment's own pages are replaced, by pages of the same size and content.
    let done = unsafe { mmap(at, len, prot, MapFlags::PRIVATE | MapFlags::FIXED, fd, 0) };
    if done.is_err() {
        // A fault in the child is better than writing into the parent's memory.
        // SAFETY: as above.
        let _ = unsafe { munmap(at, len) };
    }
}

fn make_dead(fd: RawFd, placeholder: Option<&OwnedFd>) {
    match placeholder {
        Some(dead) => {
            // SAFETY: dup3 only changes what the number refers to, and its owner asked for that by registering it.
            let _ = unsafe { libc::dup3(dead.as_raw_fd(), fd, DupFlags::CLOEXEC.bits() as i32) };
        }
        None => {
            // SAFETY: as above; the child's owner of the number is told in `close_in_child` that it is dead.
            let _ = unsafe { libc::close(fd) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_is_stable_and_not_zero() {
        assert_ne!(generation(), 0);
        assert_eq!(generation(), generation());
    }

    #[test]
    fn registrations_come_and_go() {
        let here = |id: u64| lock().entries.iter().any(|(i, _)| *i == id);
        let a = close_in_child(-1);
        let b = close_in_child(-1);
        let (ida, idb) = (a.id, b.id);
        assert!(here(ida) && here(idb));
        drop(a);
        assert!(!here(ida) && here(idb));
        drop(b);
        assert!(!here(idb));
    }
}
