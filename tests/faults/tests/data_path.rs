//! Post and poll: no system call and no allocation, whichever way a message travels.

use std::fs;
use std::process::Command;
use std::time::Duration;

use viaduct_faults::node::{Mode, Place};
use viaduct_faults::plan::Kind;
use viaduct_kit::alloc::{CountingAlloc, allocations_during};
use viaduct_kit::child::Child;
use viaduct_kit::packages::need_program;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_via::{
    Buffer, Completion, Cq, Descriptor, MemAttributes, Nic, ProtectionTag, Status, Vi, ViAttributes,
};

#[global_allocator]
static ALLOC: CountingAlloc = CountingAlloc;

const LIMIT: Duration = Duration::from_secs(120);
/// Closing these fails and does nothing, but shows in a trace.
const BEGIN: i32 = -77;
const END: i32 = -78;

struct End {
    nic: Nic,
    tag: ProtectionTag,
    vi: Vi,
    cq: Option<Cq>,
}

impl End {
    fn buffer(&mut self, len: usize, kind: Kind) -> Buffer {
        let attributes = MemAttributes::remote(self.tag);
        match kind {
            Kind::Shared => self.nic.alloc(len, attributes).unwrap(),
            Kind::Heap => self.nic.register(vec![0; len], attributes).unwrap(),
            Kind::Implicit => vec![0; len].into(),
        }
    }

    fn poll(&mut self, receive: bool) -> Option<Completion> {
        match (self.cq, receive) {
            (Some(cq), _) => self.nic.poll_cq(cq).unwrap(),
            (None, true) => self.nic.poll_recv(self.vi).unwrap(),
            (None, false) => self.nic.poll_send(self.vi).unwrap(),
        }
    }
}

/// Two NICs of this process, driven by one thread.
struct Both {
    a: End,
    b: End,
    _folder: TempDir,
}

impl Both {
    fn new(mode: Mode, bound: bool) -> Both {
        let folder = TempDir::new("path");
        let end = || {
            let mut nic = Place { folder: folder.path(), mode }.open();
            let tag = nic.create_ptag().unwrap();
            let cq = bound.then(|| nic.create_cq(64).unwrap());
            let attributes = ViAttributes::new(tag);
            let vi = nic.create_vi(cq.map_or(attributes.clone(), |cq| attributes.cq(cq))).unwrap();
            End { nic, tag, vi, cq }
        };
        let (mut a, mut b) = (end(), end());
        let listener = b.nic.listen(&"path".parse().unwrap(), 1).unwrap();
        a.nic.connect_start(a.vi, None, &"path".parse().unwrap(), &[], None).unwrap();
        let request = b.nic.wait_listener(listener, None).unwrap();
        b.nic.accept(request, b.vi).unwrap();
        a.nic.connect_finish(a.vi).unwrap();
        Both { a, b, _folder: folder }
    }

    /// One message, again and again with the same two descriptors; `measure` gets the rounds that count.
    fn messages(
        &mut self,
        len: usize,
        from: Kind,
        to: Kind,
        rounds: usize,
        measure: &mut dyn FnMut(&mut dyn FnMut()),
    ) {
        let (out, inn) = (self.a.buffer(len, from), self.b.buffer(len, to));
        let mut pair = Some((Descriptor::send(out), Descriptor::recv(inn)));
        let mut round = |n: usize| {
            for _ in 0..n {
                let (send, recv) = pair.take().expect("put back below");
                self.b.nic.post_recv(self.b.vi, recv).unwrap();
                self.a.nic.post_send(self.a.vi, send).unwrap();
                let (mut sent, mut came) = (None, None);
                while sent.is_none() || came.is_none() {
                    sent = sent.or_else(|| self.a.poll(false));
                    came = came.or_else(|| self.b.poll(true));
                }
                let (sent, came) = (sent.expect("looped for it"), came.expect("looped for it"));
                assert!(sent.status == Status::Success && came.length as usize == len);
                pair = Some((sent.descriptor, came.descriptor));
            }
        };
        // Mappings are made and queues have grown after the first ones.
        round(300);
        measure(&mut || round(rounds));
    }

    /// RDMA write and read of the other's memory.
    fn rdma(&mut self, len: usize, rounds: usize, measure: &mut dyn FnMut(&mut dyn FnMut())) {
        let (local, window) = (self.a.buffer(len, Kind::Shared), self.b.buffer(len, Kind::Shared));
        let other = self.a.buffer(len, Kind::Shared);
        let place = window.remote(0);
        let mut pair = Some((Descriptor::rdma_write(local, place), Descriptor::rdma_read(other, place)));
        let mut round = |n: usize| {
            for _ in 0..n {
                let (write, read) = pair.take().expect("put back below");
                let mut done = |descriptor| {
                    self.a.nic.post_send(self.a.vi, descriptor).unwrap();
                    loop {
                        if let Some(done) = self.a.poll(false) {
                            assert_eq!(done.status, Status::Success);
                            return done.descriptor;
                        }
                    }
                };
                pair = Some((done(write), done(read)));
            }
        };
        round(300);
        measure(&mut || round(rounds));
    }

    /// Everything that has to do without system calls and allocations.
    fn everything(&mut self, rounds: usize, measure: &mut dyn FnMut(&mut dyn FnMut())) {
        use Kind::{Heap, Implicit, Shared};
        for (len, from, to) in
            [(8, Shared, Shared), (100, Heap, Heap), (4_096, Shared, Shared), (4_096, Shared, Heap)]
        {
            self.messages(len, from, to, rounds, measure);
        }
        self.messages(4_096, Implicit, Heap, rounds / 4, measure);
        self.rdma(256, rounds / 4, measure);
    }
}

viaduct_kit::child!(TRACED, |_args| {
    for bound in [false, true] {
        Both::new(Mode::Direct, bound).everything(25_000, &mut |work| {
            // SAFETY: closing a descriptor that cannot exist does nothing.
            unsafe { libc::close(BEGIN) };
            work();
            // SAFETY: as above.
            unsafe { libc::close(END) };
        });
    }
});

#[test]
fn post_and_poll_make_no_system_call() {
    let Some(strace) = need_program("strace", "strace") else { return };
    let _watchdog = Watchdog::arm(LIMIT, "a traced process");
    let folder = TempDir::new("trace");
    let (log, inner) = (folder.join("log"), TRACED.command(&[]));
    let mut command = Command::new(strace);
    command.arg("-f").arg("-o").arg(&log).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Child::start("strace", command).finish(LIMIT);
    let text = fs::read_to_string(&log).unwrap();
    let (mut inside, mut spans): (Option<&str>, _) = (None, 0);
    for line in text.lines() {
        let (thread, call) = line.split_once(' ').unwrap_or((line, ""));
        let call = call.trim_start();
        if call.starts_with(&format!("close({BEGIN})")) {
            inside = Some(thread);
        } else if call.starts_with(&format!("close({END})")) {
            (inside, spans) = (None, spans + 1);
        } else {
            assert_ne!(inside, Some(thread), "a system call between two polls: {call}");
        }
    }
    assert_eq!(spans, 12, "every way was measured");
}

#[test]
fn post_and_poll_do_not_touch_the_heap() {
    let _watchdog = Watchdog::arm(LIMIT, "messages without allocations");
    for bound in [false, true] {
        let mut spans = 0;
        Both::new(Mode::Direct, bound).everything(1_000, &mut |work| {
            spans += 1;
            assert_eq!(allocations_during(&mut *work), 0, "bound {bound}, way {spans}");
        });
        assert_eq!(spans, 6);
    }
}
