//! The shared-memory provider between two NICs of one process: every way a message can travel.

use std::time::Duration;

use viaduct_providers::{Config, open};
use viaduct_via::{Counter, Descriptor, MemAttributes, Nic, ProtectionTag, Reliability, Vi, ViAttributes};

struct End {
    nic: Nic,
    vi: Vi,
    tag: ProtectionTag,
}

fn config(name: &str) -> Config {
    let mut config = Config::default();
    let dir = std::env::temp_dir().join(format!("viaduct-basic-{name}-{}", std::process::id()));
    config.shm.runtime_dir = Some(dir);
    config
}

fn pair(config: &Config, level: Reliability) -> (End, End) {
    let end = || {
        let mut nic = Nic::open(open("shm", config).unwrap()).unwrap();
        let tag = nic.create_ptag().unwrap();
        let vi = nic.create_vi(ViAttributes::new(tag).reliability(level)).unwrap();
        End { nic, vi, tag }
    };
    let (mut a, mut b) = (end(), end());
    let here = "basic".parse().unwrap();
    let listener = b.nic.listen(&here, 4).unwrap();
    a.nic.connect_start(a.vi, None, &here, b"hi", Some(Duration::from_secs(5))).unwrap();
    let request = b.nic.wait_listener(listener, Some(Duration::from_secs(5))).unwrap();
    assert_eq!(request.remote().private_data, b"hi");
    b.nic.accept(request, b.vi).unwrap();
    a.nic.connect_finish(a.vi).unwrap();
    (a, b)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + len) as u8).collect()
}

#[test]
fn every_size_and_kind_of_memory() {
    let config = config("sizes");
    for level in Reliability::ALL {
        let (mut a, mut b) = pair(&config, level);
        for size in [0usize, 1, 8, 48, 49, 104, 105, 4096, 65_536, 65_537, 1 << 20, 5 << 20] {
            for kinds in 0..9 {
                let text = pattern(size);
                let (from, to) = (kinds % 3, kinds / 3);
                let make = |end: &mut End, kind: usize| match kind {
                    0 => end.nic.alloc(size.max(1), MemAttributes::local(end.tag)).unwrap(),
                    1 => end.nic.register(vec![0; size.max(1)], MemAttributes::local(end.tag)).unwrap(),
                    _ => vec![0; size.max(1)].into(),
                };
                let (mut source, target) = (make(&mut a, from), make(&mut b, to));
                source.write(0, &text);
                let recv = Descriptor::recv(target).context(size as u64);
                b.nic.post_recv(b.vi, recv).unwrap();
                let send =
                    Descriptor::new(viaduct_via::Op::Send).segment_range(source, 0..size).immediate(77);
                a.nic.post_send(a.vi, send).unwrap();
                // Both ends are driven by this thread, so neither may wait for the other.
                let deadline = std::time::Instant::now() + Duration::from_secs(20);
                let (mut sent, mut got) = (None, None);
                while sent.is_none() || got.is_none() {
                    assert!(std::time::Instant::now() < deadline, "{level:?} {size} {from}->{to}");
                    sent = sent.or(a.nic.poll_send(a.vi).unwrap());
                    got = got.or(b.nic.poll_recv(b.vi).unwrap());
                }
                let (sent, got) = (sent.unwrap(), got.unwrap());
                assert!(
                    sent.status.is_success() && got.status.is_success(),
                    "{level:?} {size} {from}->{to}: {got:?}"
                );
                assert_eq!((got.length as usize, got.immediate), (size, Some(77)));
                assert!(got.data() == text, "{level:?} {size} {from}->{to}");
            }
        }
        a.nic.disconnect(a.vi).unwrap();
    }
}

#[test]
fn rdma_by_every_way() {
    for (direct, vm) in [(true, true), (false, true), (true, false), (false, false)] {
        let mut config = config("rdma");
        (config.shm.direct, config.shm.process_vm) = (direct, vm);
        let (mut a, mut b) = pair(&config, Reliability::ReliableDelivery);
        for shared in [true, false] {
            for size in [8usize, 100, 70_000] {
                let attributes = MemAttributes::remote(b.tag);
                let target = if shared {
                    b.nic.alloc(size, attributes)
                } else {
                    b.nic.register(vec![0; size], attributes)
                };
                let target = target.unwrap();
                let mut source = a.nic.alloc(size, MemAttributes::local(a.tag)).unwrap();
                source.write(0, &pattern(size));
                let finish = |a: &mut End, b: &mut End| {
                    let deadline = std::time::Instant::now() + Duration::from_secs(20);
                    loop {
                        assert!(std::time::Instant::now() < deadline);
                        b.nic.query_vi(b.vi).unwrap();
                        if let Some(done) = a.nic.poll_send(a.vi).unwrap() {
                            assert!(
                                done.status.is_success(),
                                "{direct} {vm} {shared} {size}: {:?}",
                                done.status
                            );
                            return done.descriptor.into_buffer();
                        }
                    }
                };
                a.nic.post_send(a.vi, Descriptor::rdma_write(source, target.remote(0))).unwrap();
                finish(&mut a, &mut b);
                assert!(target.to_vec(size) == pattern(size), "{direct} {vm} {shared} {size}");
                let back = a.nic.alloc(size, MemAttributes::local(a.tag)).unwrap();
                a.nic.post_send(a.vi, Descriptor::rdma_read(back, target.remote(0))).unwrap();
                assert!(finish(&mut a, &mut b).to_vec(size) == pattern(size));
                if size == 8 {
                    let old = a.nic.alloc(8, MemAttributes::local(a.tag)).unwrap();
                    let before = u64::from_ne_bytes(pattern(8).try_into().unwrap());
                    a.nic.post_send(a.vi, Descriptor::fetch_add(old, target.remote(0), 5)).unwrap();
                    assert_eq!(finish(&mut a, &mut b).to_vec(8), before.to_ne_bytes());
                    assert_eq!(target.to_vec(8), (before.wrapping_add(5)).to_ne_bytes());
                }
            }
        }
        let c = a.nic.counters();
        let ways = (c.read(Counter::KernelCopies) > 0, c.read(Counter::HelperCopies) > 0);
        assert_eq!(ways, (direct && vm, true), "{direct} {vm}");
    }
}
