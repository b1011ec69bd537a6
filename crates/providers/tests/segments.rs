//! Two processes that share a segment anyway: both register it with their NICs, write into it by RDMA and by hand, and wake
//! each other by nudges. Whichever of them pays for the fences, no wake-up is lost.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use viaduct_kit::child::{hear, say};
use viaduct_kit::effort::scaled;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::segment::{Access, Segment};
use viaduct_providers::config::{Fences, ShmConfig};
use viaduct_providers::{Config, open};
use viaduct_via::{
    Buffer, Counter, Descriptor, MemAttributes, MemHandle, Nic, RemoteAddress, Spin, Status, Vi,
    ViAttributes, ViState, WaitConfig,
};

const LEN: usize = 1 << 30;
/// Where each process waits, in a part of the segment that has never been touched.
const CHILD: usize = LEN - 8192;
const PARENT: usize = LEN - 4096;
const ROUNDS: u64 = 200;

fn nic(folder: &Path, fences: Fences) -> Nic {
    // Without a longest sleep a lost wake-up is a hang.
    let shm = ShmConfig {
        runtime_dir: Some(folder.to_owned()),
        longest_sleep: None,
        fences,
        ..ShmConfig::default()
    };
    let mut nic = Nic::open(open("shm", &Config { shm, ..Config::default() }).unwrap()).unwrap();
    nic.set_wait(WaitConfig { spin: Spin::Never });
    nic
}

fn fences(word: &str) -> Fences {
    if word == "sender" { Fences::Sender } else { Fences::Sleeper }
}

/// Waits until a word of the segment has this value.
fn wait(nic: &mut Nic, memory: &Buffer, at: usize, value: u64) {
    nic.wait_for(None, |_| (memory.word(at).load(Ordering::Acquire) == value).then_some(())).unwrap();
}

viaduct_kit::child!(NEIGHBOUR, |args| {
    let (folder, pid, fd) = (Path::new(&args[0]), &args[1], &args[2]);
    let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/fd/{fd}")).unwrap();
    let segment = Arc::new(Segment::open_sparse(file.into(), Access::ReadWrite, LEN).unwrap());
    let mut nic = nic(folder, fences(&args[3]));
    let tag = nic.create_ptag().unwrap();
    let memory = nic.register_segment(&segment, 0..LEN, MemAttributes::remote(tag)).unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    let listener = nic.listen(&"segment".parse().unwrap(), 1).unwrap();
    let place = memory.remote(0);
    say(format!("place {} {}", place.addr, place.handle.number()));
    let request = nic.wait_listener(listener, None).unwrap();
    nic.accept(request, vi).unwrap();
    for round in 1..=ROUNDS {
        wait(&mut nic, &memory, CHILD, round);
        // By hand: it is the parent's memory as well.
        memory.word(PARENT).store(round, Ordering::Release);
        nic.nudge(vi).unwrap();
    }
    say("done");
    while hear().is_some() {}
});

fn write(nic: &mut Nic, vi: Vi, from: Buffer, to: RemoteAddress) -> Buffer {
    nic.post_send(vi, Descriptor::rdma_write(from, to)).unwrap();
    let done = nic.wait_send_outcome(vi, None).unwrap().0;
    assert_eq!(done.status, Status::Success);
    done.descriptor.into_buffer()
}

fn two_processes(ours: &str, theirs: &str) {
    let limit = scaled(Duration::from_secs(120));
    let _watchdog = Watchdog::arm(limit, "two processes and a segment");
    let folder = TempDir::new("segments");
    let segment = Arc::new(Segment::create_sparse("test", LEN).unwrap());
    let fd = segment.fd().unwrap().as_raw_fd().to_string();
    let pid = std::process::id().to_string();
    let mut nic = nic(folder.path(), fences(ours));
    let mut child = NEIGHBOUR.spawn(&[folder.path().to_str().unwrap(), &pid, &fd, theirs]);
    let place = child.expect_line("place ", limit);
    let (address, handle) = place.trim().split_once(' ').unwrap();
    let handle = MemHandle::from_number(handle.parse().unwrap());
    let place = RemoteAddress { addr: address.parse().unwrap(), handle };

    let tag = nic.create_ptag().unwrap();
    let memory = nic.register_segment(&segment, 0..LEN, MemAttributes::local(tag)).unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    nic.connect_start(vi, None, &"segment".parse().unwrap(), &[], Some(limit)).unwrap();
    nic.connect_finish(vi).unwrap();
    let mut source = nic.alloc(8, MemAttributes::local(tag)).unwrap();
    for round in 1..=ROUNDS {
        source.write(0, &round.to_ne_bytes());
        source = write(&mut nic, vi, source, place.offset(CHILD as u64));
        assert_eq!(memory.word(CHILD).load(Ordering::Acquire), round, "one memory, two registrations");
        nic.nudge(vi).unwrap();
        wait(&mut nic, &memory, PARENT, round);
    }
    let counters = nic.counters();
    assert_eq!(counters.read(Counter::KernelCopies) + counters.read(Counter::HelperCopies), 0);
    child.expect_line("done", limit);
    child.kill();
    nic.wait_for(None, |nic| (nic.query_vi(vi).unwrap().state == ViState::Error).then_some(())).unwrap();
    // What the neighbour wrote outlives it.
    assert_eq!(memory.word(PARENT).load(Ordering::Acquire), ROUNDS);
}

#[test]
fn two_processes_register_one_segment_and_wake_each_other() {
    two_processes("sleeper", "sleeper");
}

#[test]
fn no_nudge_is_lost_where_both_processes_fence_as_senders() {
    two_processes("sender", "sender");
}

#[test]
fn no_nudge_is_lost_between_a_process_that_fences_as_sender_and_one_that_does_not() {
    two_processes("sender", "sleeper");
    two_processes("sleeper", "sender");
}
