//! The distributed queue of Millennium Sort (section 3.2), filled by edges and by producers beside it, and what edges say of
//! waiting: which end of them is the bottleneck.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use common::{Ends, Numbers, numbers_of, tcp_pair, via_pair, via_pair_of, watch};
use viaduct_kit::tempdir::TempDir;
use viaduct_river::disk::{DiskSink, StreamSink, Volume};
use viaduct_river::net::{TcpSink, TcpSource};
use viaduct_river::{
    Buffer, EdgeCounts, Error, Fixed, MemPool, PartitionSink, RiverSink, Sink, Source, pump, records,
};

/// How long an end is kept waiting, and what at least has to be said of it.
const WAIT: Duration = Duration::from_millis(60);
const SEEN: u64 = 40_000_000;

/// Two nodes, and on each a producer whose records go to both by their number, one that is all for the other node, and one that
/// puts into the queue beside it. Each queue has two edges over shared memory, one over TCP, and two producers beside them.
#[test]
fn edges_and_local_producers_fill_one_queue_on_each_of_two_nodes() {
    let _watchdog = watch();
    let queues = [0, 1].map(|node| Arc::new(RiverSink::new(&format!("node {node}"), 2, 5)));
    let buffer = |n: u64| {
        let mut buffer = Buffer::heap(8);
        buffer.push_record(&n.to_be_bytes());
        buffer
    };
    let got: Vec<Vec<u64>> = std::thread::scope(|scope| {
        for node in 0..2usize {
            let other = 1 - node;
            let start = 1_000_000 * node as u64;
            let divided = via_pair_of("shm", &format!("queue-divided-{node}"), 1);
            let whole = divided.another(&format!("queue-whole-{node}"), 2);
            let (client, server) = tcp_pair();
            let sink = TcpSink::new("out", other as u32, client);
            let source = TcpSource::new("in", node as u32, server, MemPool::new(1, 4096).unwrap());
            let Ends { sink: far, source: from_divided, .. } = divided;
            let Ends { sink: all, source: from_whole, .. } = whole;
            let (here, there) = (queues[node].clone(), queues[other].clone());
            // What arrives at the other node.
            for source in [Box::new(from_divided) as Box<dyn Source>, Box::new(from_whole), Box::new(source)]
            {
                let there = there.clone();
                scope.spawn(move || pump(&*source, &*there).unwrap());
            }
            let near = here.clone();
            scope.spawn(move || {
                let mut sinks: Vec<Arc<dyn Sink>> = vec![near, Arc::new(far)];
                if node == 1 {
                    sinks.swap(0, 1);
                }
                let rule = |record: &[u8]| usize::from(record[7] % 2);
                let pool = MemPool::new(1, 4096).unwrap();
                let parts = PartitionSink::new("parts", Arc::new(Fixed(8)), rule, pool, sinks);
                pump(&Numbers::new(start, start + 20_000, 1), &parts).unwrap();
            });
            scope.spawn(move || pump(&Numbers::new(start + 100_000, start + 110_000, 1), &all).unwrap());
            scope.spawn(move || pump(&Numbers::new(start + 200_000, start + 210_000, 1), &sink).unwrap());
            scope.spawn(move || {
                for n in 0..500 {
                    here.put(buffer(start + 300_000 + n)).unwrap();
                }
                here.finish().unwrap();
            });
        }
        // Two consumers of one queue, and one of the other.
        let first = [(); 2].map(|()| scope.spawn(|| take(&queues[0])));
        let second = scope.spawn(|| take(&queues[1]));
        let mut both = first.map(|consumer| consumer.join().unwrap()).concat();
        both.sort_unstable();
        vec![both, second.join().unwrap()]
    });
    for (node, got) in got.into_iter().enumerate() {
        let (own, others) = (1_000_000 * node as u64, 1_000_000 * (1 - node) as u64);
        let parity = |start: u64| (start..start + 20_000).filter(move |n| (n % 2) as usize == node);
        let mut expected: Vec<u64> = parity(own).chain(parity(others)).collect();
        expected.extend(others + 100_000..others + 110_000);
        expected.extend(others + 200_000..others + 210_000);
        expected.extend(own + 300_000..own + 300_500);
        expected.sort_unstable();
        assert!(got == expected, "node {node}: {} of {}", got.len(), expected.len());
        assert_eq!(Sink::edge(&*queues[node]).counts().records, expected.len() as u64);
        assert!(queues[node].get().unwrap().is_none(), "it stays dry");
    }
}

/// All numbers that a consumer gets.
fn take(queue: &RiverSink) -> Vec<u64> {
    let mut all = Vec::new();
    while let Some(buffer) = queue.get().unwrap() {
        let numbers = records(&Fixed(8), buffer.data());
        all.extend(numbers.map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap())));
    }
    all.sort_unstable();
    all
}

fn block() -> Buffer {
    let mut buffer = Buffer::heap(4096);
    buffer.set_window(0, 4096);
    buffer
}

fn counts(edge: &viaduct_river::Edge) -> EdgeCounts {
    edge.counts()
}

#[test]
fn a_queue_says_which_side_waited() {
    let _watchdog = watch();
    let slow = RiverSink::new("slow consumer", 1, 1);
    slow.put(block()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| slow.put(block()).unwrap());
        std::thread::sleep(WAIT);
        slow.get().unwrap();
    });
    let told = counts(Sink::edge(&slow));
    assert!(told.credit_ns >= SEEN && told.data_ns == 0, "{told:?}");
    let idle = RiverSink::new("slow producer", 1, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| idle.get().unwrap());
        std::thread::sleep(WAIT);
        idle.put(block()).unwrap();
    });
    let told = counts(Sink::edge(&idle));
    assert!(told.data_ns >= SEEN && told.credit_ns == 0, "{told:?}");
}

#[test]
fn an_edge_over_via_says_which_side_waited() {
    let _watchdog = watch();
    let (_, sink, source) = via_pair("stall-via", 1);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let first = source.pull().unwrap();
            // It has the only buffer: the sender has no credit.
            std::thread::sleep(WAIT);
            drop(first);
            numbers_of(&source).unwrap().len()
        });
        std::thread::sleep(WAIT);
        for _ in 0..3 {
            sink.put(block()).unwrap();
        }
        sink.finish().unwrap();
        assert_eq!(reader.join().unwrap(), 2 * 512);
    });
    assert!(counts(source.edge()).data_ns >= SEEN, "{:?}", counts(source.edge()));
    assert!(counts(sink.edge()).credit_ns >= SEEN, "{:?}", counts(sink.edge()));
}

#[test]
fn an_edge_over_tcp_says_which_side_waited() {
    let _watchdog = watch();
    let (client, server) = tcp_pair();
    let sink = TcpSink::new("out", 1, client);
    let pool = MemPool::new(1, 64 << 10).unwrap();
    let source = TcpSource::new("in", 0, server, pool.clone());
    // All is there before it is asked for, and the wait is for a buffer alone.
    sink.put(block()).unwrap();
    let kept = pool.take();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| source.pull().unwrap().is_some());
        std::thread::sleep(WAIT);
        drop(kept);
        assert!(reader.join().unwrap());
    });
    let told = counts(source.edge());
    assert!(told.credit_ns >= SEEN && told.data_ns < told.credit_ns / 2, "no buffer: {told:?}");
    // Nothing comes.
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| source.pull().unwrap().is_some());
        std::thread::sleep(WAIT);
        sink.put(block()).unwrap();
        assert!(reader.join().unwrap());
    });
    assert!(counts(source.edge()).data_ns >= SEEN, "no data: {:?}", counts(source.edge()));
    // What the kernel takes at once was no wait, and what it does not take is one.
    assert_eq!(counts(sink.edge()).credit_ns, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..400 {
                let mut buffer = Buffer::heap(64 << 10);
                buffer.set_window(0, 64 << 10);
                sink.put(buffer).unwrap();
            }
            sink.finish().unwrap();
        });
        std::thread::sleep(WAIT);
        let mut bytes = 0;
        while let Some(buffer) = source.pull().unwrap() {
            bytes += buffer.len();
        }
        assert_eq!(bytes, 400 << 16);
    });
    assert!(counts(sink.edge()).credit_ns > 0, "a full window: {:?}", counts(sink.edge()));
}

/// The receiver takes nothing, and the kernel's buffers are full.
#[test]
fn a_failure_over_tcp_does_not_wait_for_ever_for_a_receiver_that_takes_nothing() {
    let _watchdog = watch();
    let (mut client, mut server) = tcp_pair();
    client.set_nonblocking(true).unwrap();
    while client.write(&[0; 1 << 16]).is_ok() {}
    let sink = TcpSink::new("out", 1, client);
    sink.fail(Error::Format("bad luck".into()));
    assert!(sink.put(block()).is_err(), "the connection has ended");
    // And so it has for the other end, once it takes what there is.
    let mut all = Vec::new();
    server.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let ended = server.read_to_end(&mut all);
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
}

#[test]
fn writes_by_the_thread_that_puts_are_work_and_no_wait() {
    let folder = TempDir::new("stall-disk");
    let path = folder.join("out");
    let volume = Volume::of_files(vec![(path.clone(), std::fs::File::create(&path).unwrap())], u64::MAX);
    let disk = DiskSink::new("disk", volume);
    let stream = StreamSink::new("stream", &path, Box::new(std::io::sink()));
    disk.put(block()).unwrap();
    let told = counts(disk.edge());
    assert!(told.work_ns > 0 && told.credit_ns == 0, "{told:?}");
    // The second part comes first, and waits.
    std::thread::scope(|scope| {
        scope.spawn(|| stream.write(&[1; 10], 10, 1).unwrap());
        std::thread::sleep(WAIT);
        stream.write(&[0; 10], 0, 1).unwrap();
    });
    let told = counts(stream.edge());
    assert!(told.credit_ns >= SEEN, "{told:?}");
}
