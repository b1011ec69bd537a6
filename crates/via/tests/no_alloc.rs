//! The data path does not touch the heap: posting, polling and small copies, on the shared-memory provider.
//!
//! Both NICs are driven by the thread that counts. The first rounds warm up (a mapping is asked for, a ledger grows),
//! after that the count must be 0. (The loopback provider makes a packet per message, so it is not asked.)

use std::time::Duration;

use viaduct_kit::alloc::{CountingAlloc, allocations_during};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_providers::Config;
use viaduct_via::{
    Completion, Cq, Descriptor, Error, MemAttributes, Nic, ProtectionTag, Reliability, Vi, ViAttributes,
};

#[global_allocator]
static ALLOC: CountingAlloc = CountingAlloc;

const WARM_UP: u64 = 2000;
const ROUNDS: u64 = 2000;

/// Two NICs, each with a tag.
struct Two {
    a: Nic,
    b: Nic,
    tags: (ProtectionTag, ProtectionTag),
    _watchdog: Watchdog,
    _folder: TempDir,
}

fn two() -> Two {
    let folder = TempDir::new("heap");
    let mut config = Config::default();
    config.shm.runtime_dir = Some(folder.path().to_owned());
    let open = || Nic::open(viaduct_providers::open("shm", &config).expect("shm")).expect("a NIC");
    let (mut a, mut b) = (open(), open());
    let tags = (a.create_ptag().unwrap(), b.create_ptag().unwrap());
    let watchdog = Watchdog::arm(Duration::from_secs(120), "a round without the heap");
    Two { a, b, tags, _watchdog: watchdog, _folder: folder }
}

impl Two {
    /// A connected pair with receives of `len` bytes posted on both sides.
    fn connect(&mut self, level: Reliability, len: usize, cqs: Option<(Cq, Cq)>) -> (Vi, Vi) {
        let limit = Some(Duration::from_secs(30));
        let make = |nic: &mut Nic, tag, cq: Option<Cq>| {
            let attributes = ViAttributes::new(tag).reliability(level);
            let vi = nic.create_vi(match cq {
                Some(cq) => attributes.cq(cq),
                None => attributes,
            });
            let vi = vi.unwrap();
            for _ in 0..8 {
                let buffer = nic.alloc(len, MemAttributes::local(tag)).unwrap();
                nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
            }
            vi
        };
        let va = make(&mut self.a, self.tags.0, cqs.map(|c| c.0));
        let vb = make(&mut self.b, self.tags.1, cqs.map(|c| c.1));
        let address = format!("heap-{}", vb.raw().index).parse().unwrap();
        let listener = self.b.listen(&address, 1).unwrap();
        self.a.connect_start(va, None, &address, &[], limit).unwrap();
        let request = self.b.wait_listener(listener, limit).unwrap();
        self.b.accept(request, vb).unwrap();
        self.a.connect_finish(va).unwrap();
        (va, vb)
    }

    fn message(&mut self, len: usize) -> Descriptor {
        Descriptor::send(self.a.alloc(len, MemAttributes::local(self.tags.0)).unwrap())
    }
}

/// Looks at both sides until one look finds something.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
        std::hint::spin_loop();
    }
}

/// Runs rounds; those after the warm-up must not allocate.
fn assert_no_heap(what: &str, mut round: impl FnMut(u64)) {
    (0..WARM_UP).for_each(&mut round);
    let made = allocations_during(|| (WARM_UP..WARM_UP + ROUNDS).for_each(&mut round));
    assert_eq!(made, 0, "{what}: {made} allocations in {ROUNDS} rounds");
}

/// One message there, everything posted again.
fn one_way(two: &mut Two, (va, vb): (Vi, Vi), send: Descriptor) -> Descriptor {
    two.a.post_send(va, send).unwrap();
    let mut sent: Option<Completion> = None;
    let got = until(|| {
        if sent.is_none() {
            sent = two.a.poll_send(va).unwrap();
        }
        two.b.poll_recv(vb).unwrap()
    });
    assert!(got.status.is_success());
    two.b.post_recv(vb, got.descriptor).unwrap();
    let sent = sent.unwrap_or_else(|| {
        until(|| {
            assert!(two.b.poll_send(vb).unwrap().is_none());
            two.a.poll_send(va).unwrap()
        })
    });
    assert!(sent.status.is_success());
    sent.descriptor
}

#[test]
fn sending_and_receiving() {
    for level in Reliability::ALL {
        for len in [0usize, 8, 48, 100, 1000, 4096, 70_000] {
            let mut two = two();
            let pair = two.connect(level, len.max(1), None);
            let mut message = two.message(len.max(1));
            message.set_len(len);
            let mut message = Some(message);
            assert_no_heap(&format!("{len} bytes at {level:?}"), |round| {
                let mut next = message.take().expect("it came back");
                next.set_immediate((round % 2 == 0).then_some(round as u32));
                message = Some(one_way(&mut two, pair, next));
            });
        }
    }
}

#[test]
fn sending_inline() {
    for level in Reliability::ALL {
        let mut two = two();
        let (va, vb) = two.connect(level, 128, None);
        let most = two.a.attributes().max_inline;
        let bytes = vec![7; most];
        assert_no_heap(&format!("inline at {level:?}"), |round| {
            let len = round as usize % (most + 1);
            until(|| match two.a.send_inline(va, &bytes[..len], Some(1)) {
                Ok(()) => Some(()),
                Err(Error::Busy) => {
                    assert!(two.a.poll_send(va).unwrap().is_none());
                    None
                }
                Err(e) => panic!("{e}"),
            });
            let got = until(|| two.b.poll_recv(vb).unwrap());
            assert_eq!(got.length as usize, len);
            two.b.post_recv(vb, got.descriptor).unwrap();
            assert!(two.a.poll_send(va).unwrap().is_none());
        });
    }
}

#[test]
fn polling_a_completion_queue() {
    for count in [1usize, 4, 12] {
        let mut two = two();
        let (ca, cb) = (two.a.create_cq(1024).unwrap(), two.b.create_cq(1024).unwrap());
        let pairs: Vec<_> =
            (0..count).map(|_| two.connect(Reliability::ReliableDelivery, 64, Some((ca, cb)))).collect();
        let mut message = Some(two.message(64));
        // Each VI in turn, so that with many of them every one is heated and cooled.
        assert_no_heap(&format!("a completion queue over {count}"), |round| {
            let (va, _) = pairs[round as usize % count];
            two.a.post_send(va, message.take().expect("it came back")).unwrap();
            let got = until(|| {
                if message.is_none() {
                    message = two.a.poll_cq(ca).unwrap().map(|sent| sent.descriptor);
                }
                two.b.poll_cq(cb).unwrap()
            });
            two.b.post_recv(got.vi, got.descriptor).unwrap();
            if message.is_none() {
                message = Some(until(|| two.a.poll_cq(ca).unwrap()).descriptor);
            }
        });
    }
}

#[test]
fn unsignalled_sends() {
    let mut two = two();
    let (va, vb) = two.connect(Reliability::ReliableDelivery, 64, None);
    let mut spare: Vec<Descriptor> = (0..4).map(|_| two.message(64).unsignalled()).collect();
    assert_no_heap("unsignalled", |_| {
        let next = spare.pop().expect("they come back");
        two.a.post_send(va, next).unwrap();
        let got = until(|| {
            assert!(two.a.poll_send(va).unwrap().is_none());
            two.b.poll_recv(vb).unwrap()
        });
        two.b.post_recv(vb, got.descriptor).unwrap();
        spare.push(until(|| {
            assert!(two.a.poll_send(va).unwrap().is_none());
            two.a.reclaim(va)
        }));
    });
}

#[test]
fn writing_and_reading_remote_memory() {
    let mut two = two();
    let (va, _vb) = two.connect(Reliability::ReliableDelivery, 64, None);
    let tag = two.tags.1;
    let target = two.b.alloc(8192, MemAttributes::remote(tag)).unwrap();
    let tag = two.tags.0;
    let mut memory = |len| two.a.alloc(len, MemAttributes::local(tag)).unwrap();
    let mut operations = vec![
        Descriptor::rdma_write(memory(4096), target.remote(0)),
        Descriptor::rdma_read(memory(4096), target.remote(4096)),
        Descriptor::fetch_add(memory(8), target.remote(8), 1),
        Descriptor::compare_swap(memory(8), target.remote(16), 0, 0),
    ];
    assert_no_heap("remote memory", |_| {
        for _ in 0..4 {
            let next = operations.remove(0);
            two.a.post_send(va, next).unwrap();
            let done = until(|| two.a.poll_send(va).unwrap());
            assert!(done.status.is_success());
            operations.push(done.descriptor);
        }
    });
}
