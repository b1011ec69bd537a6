//! Under a real-time policy an owner that polls without pause leaves its control thread no CPU, and the first large
//! message to a peer needs that thread, and the peer's: the owner has to give way by itself.

use std::time::{Duration, Instant};

use viaduct_faults::node::{Mode, Place};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_via::{Descriptor, MemAttributes, Nic, Status, Vi, ViAttributes};

const LIMIT: Duration = Duration::from_secs(60);
const LEN: usize = 5_000;
const PAIRS: usize = 8;

/// Two NICs of this process, connected. Their control threads have the policy of the caller.
fn pair(folder: &TempDir) -> [(Nic, Vi); 2] {
    let end = || {
        let mut nic = Place { folder: folder.path(), mode: Mode::Direct }.open();
        let tag = nic.create_ptag().unwrap();
        let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
        let buffer = nic.alloc(LEN, MemAttributes::local(tag)).unwrap();
        nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
        (nic, vi)
    };
    let ((mut a, from), (mut b, to)) = (end(), end());
    let listener = b.listen(&"realtime".parse().unwrap(), 1).unwrap();
    a.connect_start(from, None, &"realtime".parse().unwrap(), &[], None).unwrap();
    let request = b.wait_listener(listener, Some(LIMIT)).unwrap();
    b.accept(request, to).unwrap();
    a.connect_finish(from).unwrap();
    b.unlisten(listener).unwrap();
    [(a, from), (b, to)]
}

viaduct_kit::child!(SPINNER, |_args| {
    let _watchdog = Watchdog::arm(LIMIT, "an owner that spins under a real-time policy");
    // One CPU for all threads made from here on.
    let cpu = viaduct_os::cpu::allowed()[0];
    viaduct_os::cpu::pin(cpu).unwrap();
    let folder = TempDir::new("realtime");
    let pairs: Vec<_> = (0..PAIRS).map(|_| pair(&folder)).collect();
    assert!(real_time(), "the right was there a moment ago");
    let (before, start, mut served) = (switches(), Instant::now(), Vec::new());
    for [(mut a, from), (mut b, to)] in pairs {
        a.post_send(from, Descriptor::send(vec![1; LEN].into())).unwrap();
        let (mut sent, mut received) = (None, None);
        while sent.is_none() || received.is_none() {
            sent = sent.or_else(|| a.poll_send(from).unwrap());
            received = received.or_else(|| b.poll_recv(to).unwrap());
        }
        assert_eq!(received.map(|done| done.status), Some(Status::Success));
        // To close a NIC means to wait for its thread, which is no spinning.
        served.push((a, b));
    }
    let gave_way = switches() - before;
    eprintln!("{PAIRS} first messages in {:?}, the owner gave way {gave_way} times", start.elapsed());
    assert!(gave_way > 0, "only the kernel's own mercy let the control threads run");
});

#[test]
fn an_owner_that_spins_gives_way_to_the_threads_it_waits_for() {
    if !std::thread::spawn(real_time).join().unwrap() {
        viaduct_kit::skip!("no right to set SCHED_FIFO");
    }
    SPINNER.spawn(&[]).finish(LIMIT * 2);
}

/// Puts this thread under the real-time policy. Whether that is allowed.
fn real_time() -> bool {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: a system call on a structure of ours, for this thread alone.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) == 0 }
}

/// How often this thread has given up the CPU of its own will.
fn switches() -> i64 {
    // SAFETY: a structure of integers, for which zeroes are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a system call that writes into a structure of ours.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
    usage.ru_nvcsw
}
