//! A program that installs a filter for system calls after it has opened a NIC: membarrier worked before, and is refused from
//! then on. The only test in its process, which it changes for good.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use viaduct_kit::refused::refuse;
use viaduct_os::barrier;
use viaduct_os::turn::Turn;

#[test]
fn a_turn_holds_when_membarrier_is_refused_later() {
    let turn = Turn::new(0u64);
    // This thread is the owner, by plain stores.
    *turn.enter() += 1;
    let before = barrier::asymmetric();
    refuse(libc::SYS_membarrier);
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
