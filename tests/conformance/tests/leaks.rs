//! Nothing stays behind: no descriptor, mapping, thread or file after a world has ended.

use std::fs;

use viaduct_conformance::harness::{Setup, loopback, ofi_tcp, shm, shm_copying};
use viaduct_conformance::world::{Side, World, connect};
use viaduct_kit::leaks::LeakCheck;
use viaduct_via::Reliability::{ReliableDelivery, Unreliable};
use viaduct_via::{Descriptor, Error, MemAttributes, Queue, SharedNic, ViState};

/// A bit of everything, ended in an orderly way and in a hurry.
fn life(setup: Setup) -> bool {
    let mut w = match World::open(setup) {
        Ok(w) => w,
        Err(Error::NotSupported(_) | Error::Unavailable { .. }) => return false,
        Err(e) => panic!("{e}"),
    };
    for level in [ReliableDelivery, Unreliable] {
        let (va, vb) = w.pair(level);
        w.b.post_recvs(vb, 4, 100_000);
        for len in [10, 5000, 100_000] {
            let buffer = w.a.buffer(len);
            w.a.post_send(va, Descriptor::send(buffer)).unwrap();
            drop((w.received(vb), w.sent(va)));
        }
    }
    let tag = w.b.tag;
    let target = w.b.register(vec![0; 70_000], MemAttributes::remote(tag)).unwrap();
    let (va, vb) = w.pair(ReliableDelivery);
    let buffer = w.a.buffer(70_000);
    w.a.post_send(va, Descriptor::rdma_write(buffer, target.remote(0))).unwrap();
    drop(w.sent(va));
    w.b.deregister(target).unwrap();
    w.a.disconnect(va).unwrap();
    w.reaches(Side::B, vb, ViState::Error);
    let mut third = w.node();
    let (vc, vd) = (third.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let address = w.address();
    connect(&mut third, vc, &mut w.b, vd, &address);
    let shared = SharedNic::new(third.into_nic());
    shared.lock().post_recv(vc, Descriptor::recv_empty()).unwrap();
    shared.notify(vc, Queue::Receive, Box::new(|_, _| {})).unwrap();
    shared.lock().listen(&w.address(), 1).unwrap();
    drop(shared);
    let World { a, b, folder, .. } = w;
    drop((a, b));
    if let Some(folder) = folder {
        // The service thread of the shared NIC may be the last to let go of it, a moment later.
        let list = || fs::read_dir(folder.path()).unwrap().flatten().map(|f| f.path()).collect::<Vec<_>>();
        let mut left = list();
        for _ in 0..500 {
            if left.is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            left = list();
        }
        assert!(left.is_empty(), "left in the run-time folder: {left:?}");
    }
    true
}

/// Once to warm up whatever a process keeps for ever, then again with the leak check.
fn check(make: fn() -> Setup) {
    if !life(make()) {
        viaduct_kit::packages::skip("no such provider in this build");
        return;
    }
    await_handlers();
    let leaks = LeakCheck::start();
    for _ in 0..3 {
        life(make());
    }
    leaks.finish();
}

/// Until no thread that runs handlers is left: one that drops its NIC itself is not waited for, and would be seen by the
/// first look of the leak check and no longer by the last.
fn await_handlers() {
    let is_handler = |task: std::io::Result<std::fs::DirEntry>| {
        let name = task.and_then(|task| std::fs::read_to_string(task.path().join("comm")));
        name.is_ok_and(|name| name.trim_end() == "viaduct-notify")
    };
    let end = std::time::Instant::now() + viaduct_kit::effort::scaled(std::time::Duration::from_secs(5));
    while std::fs::read_dir("/proc/self/task").unwrap().any(is_handler) && std::time::Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

viaduct_kit::isolated! {
    fn loopback_leaves_nothing() {
        check(loopback);
    }
}

viaduct_kit::isolated! {
    fn shm_leaves_nothing() {
        check(shm);
    }
}

viaduct_kit::isolated! {
    fn copying_shm_leaves_nothing() {
        check(shm_copying);
    }
}

viaduct_kit::isolated! {
    fn ofi_leaves_nothing() {
        check(ofi_tcp);
    }
}
