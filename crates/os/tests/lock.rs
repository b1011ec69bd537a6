//! The lock word of shared memory, with owners that are killed wherever they happen to be.

use std::sync::atomic::{AtomicU64, Ordering};

use viaduct_os::bare::lock::{RecoverableLock, Taken};
use viaduct_os::bare::whoami;

/// What the processes share. All zeros is its beginning.
struct Page {
    lock: RecoverableLock,
    /// Prepared inside the lock.
    draft: AtomicU64,
    /// Published by one step, when the draft is ready.
    done: AtomicU64,
}

fn shared_page() -> &'static Page {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh page for which zeros are a good value; it stays until the process ends.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        &*page.cast::<Page>()
    }
}

impl Page {
    /// One step more, in two halves, most of the time inside the lock.
    fn step(&self) -> Taken {
        let taken = self.lock.lock(whoami::owner());
        let done = self.done.load(Ordering::Relaxed);
        let draft = self.draft.load(Ordering::Relaxed);
        if draft != done && draft != done + 1 {
            // SAFETY: ends this process; its parent sees that.
            unsafe { libc::abort() };
        }
        self.draft.store(done + 1, Ordering::Relaxed);
        for _ in 0..50 {
            std::hint::spin_loop();
        }
        self.done.store(done + 1, Ordering::Release);
        self.lock.unlock(whoami::owner());
        taken
    }
}

/// A process that steps until it is killed.
fn start(page: &Page) -> i32 {
    // SAFETY: the child touches the shared page, makes system calls, and never returns.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: has the kernel end this process with the thread that made it, should a check fail there.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        whoami::check();
        loop {
            page.step();
        }
    }
    assert!(child > 0);
    child
}

#[test]
fn owners_that_are_killed_anywhere_leave_a_lock_that_works() {
    whoami::check();
    let page = shared_page();
    let mut inherited = 0;
    for round in 0..20u32 {
        let children = [start(page), start(page)];
        let begin = page.done.load(Ordering::Acquire);
        while page.done.load(Ordering::Acquire) < begin + 20 {
            std::thread::yield_now();
        }
        // Somewhere else in their steps each time.
        for _ in 0..round * 21 {
            std::hint::spin_loop();
        }
        for child in children {
            // SAFETY: our own children, which were not waited for.
            unsafe { assert_eq!(libc::kill(child, libc::SIGKILL), 0) };
        }
        for child in children {
            let mut status = 0;
            // SAFETY: as above; the local is valid for writes.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(libc::WTERMSIG(status), libc::SIGKILL, "it found half of a step as if it were whole");
        }
        match page.step() {
            Taken::Free => {}
            Taken::FromTheDead => inherited += 1,
            other => panic!("{other:?} in round {round}"),
        }
        assert_eq!(page.draft.load(Ordering::Relaxed), page.done.load(Ordering::Relaxed));
    }
    println!("{inherited} times the owner was dead");
    assert!(inherited > 0, "none was killed inside the lock");
}
