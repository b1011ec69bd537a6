//! Forked children: private memory, dead descriptors, and a bell between two processes.
//!
//! A child of this multi-threaded program may only do what a signal handler may: it writes, makes system calls and
//! exits.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use viaduct_os::bell::BellWord;
use viaduct_os::budget::Budget;
use viaduct_os::fdpass::{Channel, Recv};
use viaduct_os::segment::Segment;
use viaduct_os::wait::{Spin, WaitConfig, WaitPolicy};
use viaduct_os::{barrier, fork};

/// Taken by every test: a child of another test would inherit this one's descriptors and keep them open.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs `child` in a forked child and returns its pid; the child exits 0 if it answers true.
fn in_child(child: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child runs only `child`, which by this file's rule allocates nothing and takes no lock, then exits
    // without running destructors.
    match unsafe { libc::fork() } {
        0 => {
            let good = child();
            // SAFETY: always allowed.
            unsafe { libc::_exit(i32::from(!good)) }
        }
        pid => {
            assert!(pid > 0, "fork failed");
            pid
        }
    }
}

fn exit_code(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: status is valid for writes, and pid is our child.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {}
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) }
}

fn wait_readable(channel: &Channel) -> bool {
    let mut fds = [rustix::event::PollFd::new(channel, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, None).is_ok()
}

fn segment() -> Segment {
    Segment::create("test", 4096, &Budget::new(16 << 20)).unwrap()
}

/// The word at `index` of a segment.
fn word(segment: &Segment, index: usize) -> &AtomicU64 {
    assert!(index * 8 + 8 <= segment.len());
    // SAFETY: inside the mapping, aligned, zeroed at the start, and only used as an atomic.
    unsafe { &*segment.as_ptr().cast::<AtomicU64>().add(index) }
}

#[test]
fn generation_changes_in_children_only() {
    let _alone = alone();
    let before = fork::generation();
    let pid = in_child(|| {
        let here = fork::generation();
        let grandchild = in_child(|| fork::generation() != here && fork::generation() != before);
        here != before && exit_code(grandchild) == 0
    });
    assert_eq!(exit_code(pid), 0);
    assert_eq!(fork::generation(), before);
}

#[test]
fn private_segments_do_not_reach_the_parent() {
    let _alone = alone();
    let mut segment = segment();
    segment.private_in_child().unwrap();
    segment.private_in_child().unwrap();
    segment.drop_fd();
    word(&segment, 0).store(1, Ordering::SeqCst);
    let pid = in_child(|| {
        let seen = word(&segment, 0).swap(2, Ordering::SeqCst);
        seen == 1 && word(&segment, 0).load(Ordering::SeqCst) == 2
    });
    assert_eq!(exit_code(pid), 0);
    assert_eq!(word(&segment, 0).load(Ordering::SeqCst), 1);
}

#[test]
fn by_default_a_child_does_not_have_the_mapping() {
    let _alone = alone();
    let segment = segment();
    let pid = in_child(|| {
        // mincore answers ENOMEM for an address that is not mapped.
        let mut state = 0u8;
        // SAFETY: one page is asked about, one byte is written.
        let answer = unsafe { libc::mincore(segment.as_ptr().cast(), 4096, &raw mut state) };
        // SAFETY: the address of this thread's error number.
        answer == -1 && unsafe { *libc::__errno_location() } == libc::ENOMEM
    });
    assert_eq!(exit_code(pid), 0);
}

#[test]
fn a_dropped_segment_is_not_mapped_again_in_children() {
    let _alone = alone();
    let gone = segment();
    gone.private_in_child().unwrap();
    let at = gone.as_ptr();
    drop(gone);
    let pid = in_child(|| {
        let mut state = 0u8;
        // SAFETY: one page is asked about, one byte is written.
        let answer = unsafe { libc::mincore(at.cast(), 4096, &raw mut state) };
        answer == -1 || state <= 1 // the harness may have mapped something here since
    });
    assert_eq!(exit_code(pid), 0);
}

#[test]
fn descriptors_die_in_the_child() {
    let _alone = alone();
    let (ours, theirs) = Channel::pair().unwrap();
    let (parent, child) = Channel::pair().unwrap();
    let registration = fork::close_in_child(ours.as_fd().as_raw_fd());
    let pid = in_child(|| {
        let dead = rustix::io::read(&ours, &mut [0; 1]) == Err(rustix::io::Errno::BADF);
        // The handlers have run; stays alive until the parent has seen the hang-up.
        child.send(b"x", &[]).is_ok() && wait_readable(&child) && dead
    });
    drop(registration);
    drop(ours);
    assert!(wait_readable(&parent));
    let hung_up = theirs.recv(&mut [0; 1], &mut Vec::new(), 0).unwrap();
    parent.send(b"x", &[]).unwrap();
    assert_eq!(exit_code(pid), 0);
    assert_eq!(hung_up, Recv::Closed, "the child kept the connection open");
}

/// Ten thousand hand-offs each way between two processes that sleep at once; a lost wake-up would hang.
fn bell_between_processes(spin: Spin) {
    const ROUNDS: u64 = 10_000;
    barrier::register();
    let segment = segment();
    segment.share_with_children().unwrap();
    let side = |n: usize| {
        // SAFETY: inside the page, on a border of 64, zeroed, and used as a bell only.
        let bell = unsafe { &*segment.as_ptr().add(n * 128).cast::<BellWord>() };
        (bell, word(&segment, n * 16 + 8))
    };
    let play = |me: usize, first: bool| {
        let ((my_bell, my_data), (bell, data)) = (side(me), side(1 - me));
        let mut policy = WaitPolicy::new(WaitConfig { spin });
        for round in 1..=ROUNDS {
            if first {
                data.store(round, Ordering::Release);
                bell.ring(None);
            }
            let look = || (my_data.load(Ordering::Acquire) == round).then_some(());
            policy.wait(None, look, my_bell);
            if !first {
                data.store(round, Ordering::Release);
                bell.ring(None);
            }
        }
    };
    let pid = in_child(|| {
        play(1, false);
        true
    });
    // Were the child to die the parent would wait for ever: end the test instead.
    let watch = std::thread::spawn(move || {
        let code = exit_code(pid);
        if code != 0 {
            eprintln!("the child died: {code}");
            std::process::abort();
        }
    });
    play(0, true);
    watch.join().unwrap();
}

#[test]
fn bell_between_processes_that_sleep() {
    let _alone = alone();
    bell_between_processes(Spin::Never);
}

#[test]
fn bell_between_processes_that_learn() {
    let _alone = alone();
    bell_between_processes(Spin::Auto);
}
