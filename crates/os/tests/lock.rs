//! The lock word of shared memory, with owners that are killed wherever they happen to be.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

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

#[test]
fn a_thread_that_was_started_late_keeps_its_lock() {
    whoami::check();
    let page = shared_page();
    // The owner's word has the second of its process's first look: the thread is to be younger by more than rounding hides.
    thread::sleep(Duration::from_secs(3));
    thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let me = whoami::owner();
            assert_eq!(page.lock.lock(me), Taken::Free);
            page.draft.store(1, Ordering::Release);
            // Long enough for each of the others to ask the kernel.
            thread::sleep(Duration::from_millis(700));
            page.draft.store(0, Ordering::Release);
            page.lock.unlock(me);
        });
        while page.draft.load(Ordering::Acquire) == 0 && !holder.is_finished() {
            thread::yield_now();
        }
        // SAFETY: the child touches the shared page, makes system calls, and never returns.
        let child = unsafe { libc::fork() };
        if child == 0 {
            whoami::check();
            let good = page.step() == Taken::Free;
            // SAFETY: ends the child without running what its parent registered.
            unsafe { libc::_exit(i32::from(!good)) };
        }
        let mine = scope.spawn(|| page.step());
        let mut status = 0;
        // SAFETY: our own child; the local is valid for writes.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(
            (mine.join().unwrap(), status),
            (Taken::Free, 0),
            "the lock of a living thread was taken over"
        );
    });
    assert_eq!(page.done.load(Ordering::Relaxed), 2);
}
