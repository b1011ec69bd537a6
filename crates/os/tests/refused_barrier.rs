//! A program that installs a filter for system calls after it has opened a NIC: membarrier worked before, and is refused from
//! then on. The only test in its process, which it changes for good.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use viaduct_os::barrier;
use viaduct_os::turn::Turn;

/// Refuses membarrier to this thread and to those that it starts, with EPERM.
fn refuse_membarrier() {
    let ld_number = libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    let is_it = libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_membarrier as u32 };
    let refuse =
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | libc::EPERM as u32 };
    let allow = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    let mut filter = [ld_number, is_it, refuse, allow];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is whole, and the kernel copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let installed = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program);
        assert_eq!(installed, 0, "{}", std::io::Error::last_os_error());
    }
}

#[test]
fn a_turn_holds_when_membarrier_is_refused_later() {
    let turn = Turn::new(0u64);
    // This thread is the owner, by plain stores.
    *turn.enter() += 1;
    let before = barrier::asymmetric();
    refuse_membarrier();
    let inside = AtomicU32::new(0);
    let rounds = 20_000u64;
    let visit = |value: &mut u64| {
        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two threads are inside");
        *value += 1;
        inside.fetch_sub(1, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        for pause in [7, 500] {
            let (turn, visit) = (&turn, &visit);
            scope.spawn(move || {
                for round in 0..rounds {
                    turn.with(visit);
                    if round % (pause * 10) == 0 {
                        thread::sleep(Duration::from_micros(200));
                    }
                }
            });
        }
        for _ in 0..rounds {
            turn.with(visit);
        }
    });
    assert_eq!(*turn.enter(), 3 * rounds + 1);
    assert!(!barrier::asymmetric(), "threads go on with fences of their own (before: {before})");
}
