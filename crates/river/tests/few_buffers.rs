//! Flows whose pools have few buffers, registered with a NIC: each comes back as soon as its send is done, whatever thread
//! waits for it.

mod common;

use std::sync::Arc;

use common::{Ends, Numbers, numbers_of, via_pair_of, watch};
use viaduct_river::{BalanceSink, Fixed, MemPool, PartitionSink, RiverSink, Sink, Source, pump};

/// The providers that a process can meet itself through.
fn each_provider(test: impl Fn(&str)) {
    test("shm");
    match viaduct_providers::open("ofi:tcp", &Default::default()) {
        Ok(_) => test("ofi:tcp"),
        Err(error) => viaduct_kit::packages::skip(&format!("ofi:tcp cannot be used: {error}")),
    }
}

#[test]
fn a_source_with_one_registered_buffer_is_pumped_over_an_edge() {
    let _watchdog = watch();
    each_provider(|provider| {
        let Ends { port, sink, source, .. } = via_pair_of(provider, "few-pump", 1);
        let pool = MemPool::registered(&port, 1, 4096, None).unwrap();
        let input = Numbers::from_pool(0, 20_000, 1, pool.clone());
        std::thread::scope(|scope| {
            scope.spawn(|| pump(&input, &sink).unwrap());
            assert!(numbers_of(&source).unwrap().into_iter().eq(0..20_000), "{provider}");
        });
        assert_eq!(pool.free(), 1, "{provider}");
    });
}

#[test]
fn partitions_share_one_registered_buffer() {
    let _watchdog = watch();
    each_provider(|provider| {
        let Ends { port, sink, source, .. } = via_pair_of(provider, "few-parts", 1);
        let near = Arc::new(RiverSink::new("near", 1, 1));
        let pool = MemPool::registered(&port, 1, 4096, None).unwrap();
        let sinks = vec![near.clone() as Arc<dyn Sink>, Arc::new(sink)];
        let rule = |record: &[u8]| usize::from(record[7] / 8 % 2);
        let parts = PartitionSink::new("parts", Arc::new(Fixed(8)), rule, pool, sinks);
        let (here, there) = std::thread::scope(|scope| {
            scope.spawn(|| pump(&Numbers::new(0, 20_000, 1), &parts).unwrap());
            let near = scope.spawn(|| numbers_of(&*near).unwrap());
            let there = numbers_of(&source).unwrap();
            (near.join().unwrap(), there)
        });
        assert!(here.into_iter().eq((0..20_000).filter(|n| n / 8 % 2 == 0)), "{provider}");
        assert!(there.into_iter().eq((0..20_000).filter(|n| n / 8 % 2 == 1)), "{provider}");
    });
}

#[test]
fn one_registered_buffer_is_balanced_over_two_edges() {
    let _watchdog = watch();
    each_provider(|provider| {
        let one = via_pair_of(provider, "few-one", 1);
        // Both edges leave from one NIC, so that one registered pool serves both.
        let two = one.another("few-two", 1);
        let pool = MemPool::registered(&one.port, 1, 4096, None).unwrap();
        let input = Numbers::from_pool(0, 20_000, 1, pool);
        let balance = BalanceSink::new("balance", vec![Arc::new(one.sink), Arc::new(two.sink)]);
        let mut all = std::thread::scope(|scope| {
            scope.spawn(|| pump(&input, &balance).unwrap());
            let other = scope.spawn(|| numbers_of(&two.source).unwrap());
            let mut all = numbers_of(&one.source).unwrap();
            all.extend(other.join().unwrap());
            all
        });
        all.sort_unstable();
        assert!(all.into_iter().eq(0..20_000), "{provider}");
    });
}

#[test]
fn a_thread_that_waits_before_the_first_send_gets_the_buffer_back() {
    let _watchdog = watch();
    let Ends { port, sink, source, .. } = via_pair_of("shm", "few-early", 2);
    let pool = MemPool::registered(&port, 1, 4096, None).unwrap();
    let mut buffer = pool.take();
    buffer.push_record(&7u64.to_be_bytes());
    std::thread::scope(|scope| {
        // It sleeps while no edge has had a buffer of the pool, so nothing tells it yet where to look for one.
        let waiting = scope.spawn(|| pool.take().capacity());
        std::thread::sleep(std::time::Duration::from_millis(20));
        sink.put(buffer).unwrap();
        assert_eq!(waiting.join().unwrap(), 4096);
    });
    assert_eq!(source.pull().unwrap().unwrap().data(), 7u64.to_be_bytes());
}
