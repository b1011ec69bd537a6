//! Which process and which thread this is, at the price of a load: a page that the kernel empties in every child.
//!
//! Handlers of fork are not called for a raw clone, and a library in a foreign application should not install any. A
//! page with `MADV_WIPEONFORK` reads as zeros in a child, however that was made. A child of vfork shares the page with
//! its parent: there the number on the page differs from what the kernel says.

use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::calls;
use super::gate::syscall;
use super::lock::Owner;

const PAGE: usize = 4096;

static SHARED: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
/// Where there is no page: the process, for which children look like their parent.
static FALLBACK: AtomicU64 = AtomicU64::new(0);
static GENERATION: AtomicU32 = AtomicU32::new(1);

thread_local! {
    static THREAD: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// What is known of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// As when it was last asked.
    Same,
    /// A child that has just noticed that it is one, or the very first call.
    New,
}

/// Looks whether this is a new process. The first caller in a new one gets [`Process::New`].
#[inline]
pub fn check() -> Process {
    if word().load(Ordering::Relaxed) != 0 { Process::Same } else { begin() }
}

#[inline]
fn word() -> &'static AtomicU64 {
    let page = SHARED.load(Ordering::Acquire);
    // SAFETY: the pointer is null or that of a page which is never unmapped; zeros are a valid word.
    if page.is_null() { &FALLBACK } else { unsafe { &*page } }
}

#[cold]
fn begin() -> Process {
    if SHARED.load(Ordering::Acquire).is_null() {
        make_page();
    }
    let value = u64::from(calls::process_id()) << 32 | calls::seconds_since_boot() & 0xffff_ffff | 1 << 31;
    GENERATION.fetch_add(1, Ordering::Relaxed);
    match word().compare_exchange(0, value, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Process::New,
        Err(_) => Process::Same,
    }
}

fn make_page() {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping that replaces none.
    let page = unsafe { syscall(libc::SYS_mmap, [0, PAGE, access as usize, flags as usize, usize::MAX, 0]) };
    let Ok(page) = page else { return };
    // SAFETY: our own page.
    let wiped = unsafe { syscall(libc::SYS_madvise, [page, PAGE, libc::MADV_WIPEONFORK as usize, 0, 0, 0]) };
    let at = core::ptr::with_exposed_provenance_mut(page);
    let new = wiped.is_ok()
        && SHARED.compare_exchange(core::ptr::null_mut(), at, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if !new {
        // SAFETY: our own page, of which no one knows.
        let _ = unsafe { syscall(libc::SYS_munmap, [page, PAGE, 0, 0, 0, 0]) };
    }
}

/// The process that this memory belongs to: in a child of vfork, the parent.
pub fn recorded_process() -> u32 {
    (word().load(Ordering::Relaxed) >> 32) as u32
}

/// Whether this is a child that runs in its parent's memory: it must not change tables.
pub fn borrows_memory() -> bool {
    let recorded = recorded_process();
    recorded != 0 && recorded != calls::process_id()
}

/// This thread, as [`lock`](super::lock) knows owners. [`check`] was called before.
#[inline]
pub fn owner() -> Owner {
    let word = word().load(Ordering::Relaxed);
    Owner::new((word >> 32) as u32, thread(), word & 0x7fff_ffff)
}

/// This thread's number.
#[inline]
pub fn thread() -> u32 {
    let generation = GENERATION.load(Ordering::Relaxed);
    let (known, of) = THREAD.get();
    if of == generation {
        return known;
    }
    let id = calls::thread_id();
    THREAD.set((id, generation));
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_a_new_process() {
        check();
        assert_eq!(check(), Process::Same);
        let before = owner();
        // SAFETY: the child makes system calls only and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let fresh = check() == Process::New && check() == Process::Same;
            let good = fresh && owner() != before && recorded_process() == calls::process_id();
            // SAFETY: ends the child without running what its parent registered.
            unsafe { libc::_exit(i32::from(!good)) };
        }
        let mut status = 0;
        // SAFETY: the local is valid for writes.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(!borrows_memory());
    }

    #[test]
    fn threads_are_told_apart() {
        check();
        let here = owner();
        assert_eq!(owner(), here);
        assert_ne!(std::thread::spawn(owner).join().unwrap(), here);
    }
}
