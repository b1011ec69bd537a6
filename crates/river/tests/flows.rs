//! Flows in memory and between nodes: nothing is lost, memory is bounded, failures arrive with their cause.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{Numbers, numbers_of, tcp_pair, via_pair, watch};
use viaduct_kit::tempdir::TempDir;
use viaduct_river::disk::{
    Chunks, Direct, DiskSink, DiskSource, MirrorSource, Partial, StreamSource, Volume,
};
use viaduct_river::net::{TcpSink, TcpSource};
use viaduct_river::{
    BalanceSink, Buffer, Delimited, Edge, Error, Filter, Fixed, KeyRange, Keyed, MemPool, MergeSource,
    PartitionSink, Prefixed, RecordFormat, RiverSink, Sink, Source, pump, records,
};

#[test]
fn partitions_flow_through_pools_of_one_buffer() {
    let _watchdog = watch();
    let sinks: Vec<_> = (0..3).map(|n| Arc::new(RiverSink::new(&format!("part {n}"), 1, 1))).collect();
    let rule = |record: &[u8]| usize::from(record[7] % 3);
    let pool = MemPool::new(1, 4096).unwrap();
    let parts = PartitionSink::new("parts", Arc::new(Fixed(8)), rule, pool, sinks.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| pump(&Numbers::new(0, 20_000, 1), &parts).unwrap());
        let readers: Vec<_> = sinks.iter().map(|sink| scope.spawn(|| numbers_of(&**sink).unwrap())).collect();
        let parts: Vec<Vec<u64>> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        for (n, part) in parts.iter().enumerate() {
            assert!(part.is_sorted() && part.iter().all(|number| (*number as u8) % 3 == n as u8));
        }
        assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), 20_000);
    });
}

#[test]
fn sorted_sources_merge_and_filters_drop() {
    let _watchdog = watch();
    let inputs: Vec<Arc<dyn Source>> =
        (0..5).map(|n| Arc::new(Numbers::new(n, 10_000, 5)) as Arc<dyn Source>).collect();
    let pool = MemPool::new(1, 4096).unwrap();
    let format = Arc::new(Fixed(8));
    let merged = MergeSource::new("merged", inputs, format.clone(), |a: &[u8], b: &[u8]| a.cmp(b), pool);
    let even = Filter::new("even", merged, format, |record: &[u8]| record[7].is_multiple_of(2));
    let all = numbers_of(&even).unwrap();
    assert_eq!(all, (0..10_000).step_by(2).collect::<Vec<u64>>());
    assert_eq!((even.edge().counts().records, even.source().edge().counts().records), (5000, 10_000));
}

/// Numbers that come late.
struct Late(Numbers);

/// How late, at least.
const LATE: Duration = Duration::from_millis(3);

impl Source for Late {
    fn pull(&self) -> Result<Option<Buffer>, Error> {
        std::thread::sleep(LATE);
        self.0.pull()
    }

    fn edge(&self) -> &Edge {
        self.0.edge()
    }
}

#[test]
fn ends_in_the_middle_of_a_flow_count_how_long_they_wait() {
    let _watchdog = watch();
    let format = Arc::new(Fixed(8));
    let filter = Filter::new("filter", Late(Numbers::new(0, 100, 1)), format.clone(), |_: &[u8]| true);
    assert_eq!(numbers_of(&filter).unwrap().len(), 100);
    let inputs = [0, 1].map(|n| Arc::new(Late(Numbers::new(n, 100, 2))) as Arc<dyn Source>);
    let (pool, compare) = (MemPool::new(1, 4096).unwrap(), |a: &[u8], b: &[u8]| a.cmp(b));
    let merge = MergeSource::new("merge", inputs.to_vec(), format, compare, pool);
    assert_eq!(numbers_of(&merge).unwrap().len(), 100);
    let folder = TempDir::new("river-waits");
    let path = folder.join("both");
    std::fs::write(&path, [7; 8000]).unwrap();
    let pool = MemPool::new(1, 4096).unwrap();
    let copies = [0, 1].map(|_| {
        let volumes = vec![Volume::open(&path).unwrap()];
        let format = Arc::new(Slow(LATE));
        DiskSource::new("copy", volumes, format, pool.clone(), Direct::Off, Partial::Refuse).unwrap()
    });
    let mirror = MirrorSource::new("mirror", copies).unwrap();
    let kept = pool.take();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(numbers_of(&mirror).unwrap().len(), 1000));
        // Both copies have the one buffer, and wait for it.
        while mirror.edge().counts().credit_ns == 0 {
            std::thread::sleep(LATE);
        }
        drop(kept);
    });
    let counts = [filter.edge(), merge.edge(), mirror.edge()].map(Edge::counts);
    assert!(counts.iter().all(|edge| u128::from(edge.data_ns) >= LATE.as_nanos()), "{counts:?}");
}

/// A stream of bytes as a source.
fn stream(bytes: Vec<u8>, format: Arc<dyn RecordFormat>) -> StreamSource {
    let inputs =
        vec![("input".into(), Box::new(std::io::Cursor::new(bytes)) as Box<dyn std::io::Read + Send>)];
    StreamSource::new("input", inputs, format, MemPool::new(1, 4096).unwrap(), Partial::Refuse)
}

#[test]
fn records_of_every_format_flow_through_partitions_and_over_an_edge() {
    let _watchdog = watch();
    // Words of 0 to 299 bytes: some are longer than what is left of a buffer.
    let words: Vec<Vec<u8>> = (0..2000usize).map(|n| vec![b'a' + (n % 26) as u8; n * 7 % 300]).collect();
    let ended = |mark: u8| words.iter().flat_map(|word| [&word[..], &[mark]].concat()).collect::<Vec<u8>>();
    let prefixed = words.iter().flat_map(|word| [&(word.len() as u32).to_le_bytes()[..], word].concat());
    let formats: [(Arc<dyn RecordFormat>, Vec<u8>); 3] = [
        (Arc::new(Delimited(b'\n')), ended(b'\n')),
        (Arc::new(Delimited(0)), ended(0)),
        (Arc::new(Prefixed), prefixed.collect()),
    ];
    for (format, bytes) in formats {
        let all = records(&*format, &bytes).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(all.len(), words.len(), "{format:?}");
        let (_, sink, source) = via_pair("river-formats", 1);
        let far: Arc<dyn Sink> = Arc::new(sink);
        let near = Arc::new(RiverSink::new("near", 1, 1));
        let rule = |record: &[u8]| record.len() % 2;
        let pool = MemPool::new(1, 4096).unwrap();
        let sinks = vec![near.clone() as Arc<dyn Sink>, far];
        let parts = PartitionSink::new("parts", format.clone(), rule, pool, sinks);
        let input = stream(bytes, format.clone());
        let parts_of = |source: &dyn Source| {
            let mut got = Vec::new();
            while let Some(buffer) = source.pull().unwrap() {
                got.extend(records(&*format, buffer.data()).map(<[u8]>::to_vec));
            }
            got
        };
        let (even, odd) = std::thread::scope(|scope| {
            scope.spawn(|| pump(&input, &parts).unwrap());
            let near = scope.spawn(|| parts_of(&*near));
            (parts_of(&source), near.join().unwrap())
        });
        let expected =
            |odd: usize| all.iter().filter(|record| record.len() % 2 == odd).cloned().collect::<Vec<_>>();
        assert!(even == expected(1) && odd == expected(0), "{format:?}");
        assert_eq!(input.edge().counts().records, 2000);
    }
}

#[test]
fn records_are_merged_by_the_keys_of_their_format() {
    let key = |offset, len, descending| KeyRange { offset, len, descending };
    let format = Arc::new(Keyed::new(4, vec![key(3, 1, true), key(0, 1, false)]).unwrap());
    let input = |bytes: &[u8]| Arc::new(stream(bytes.to_vec(), format.clone())) as Arc<dyn Source>;
    let by = format.clone();
    let merged = MergeSource::new(
        "merged",
        vec![input(b"a..9c..9b..1"), input(b"b..9b..2")],
        format.clone(),
        move |a: &[u8], b: &[u8]| by.compare(a, b),
        MemPool::new(1, 4096).unwrap(),
    );
    assert_eq!(merged.pull().unwrap().unwrap().data(), b"a..9b..9c..9b..2b..1");
}

#[test]
fn a_consumer_over_tcp_that_does_not_read_gets_no_more_than_the_kernel_holds() {
    let _watchdog = watch();
    let ((lazy, _unread), (quick, server)) = (tcp_pair(), tcp_pair());
    let lazy: Arc<dyn Sink> = Arc::new(TcpSink::new("lazy", 1, lazy));
    let quick: Arc<dyn Sink> = Arc::new(TcpSink::new("quick", 2, quick));
    let balance = BalanceSink::new("balance", vec![lazy.clone(), quick.clone()]);
    let source = TcpSource::new("in", 0, server, MemPool::new(2, 64 << 10).unwrap());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut bytes = 0;
            while let Some(buffer) = source.pull().unwrap() {
                bytes += buffer.len();
            }
            bytes
        });
        // Far more than the buffers of two sockets: all that the lazy one does not take goes to the other.
        for _ in 0..2000 {
            let mut buffer = Buffer::heap(64 << 10);
            buffer.set_window(0, 64 << 10);
            balance.put(buffer).unwrap();
        }
        quick.finish().unwrap();
        let (lazy, quick) = (lazy.edge().counts().bytes as usize, reader.join().unwrap());
        assert_eq!(lazy + quick, 2000 << 16);
        assert!(quick > lazy, "{quick} and {lazy}");
    });
}

#[test]
fn a_slow_consumer_gets_less() {
    let _watchdog = watch();
    let (fast, slow) = (Arc::new(RiverSink::new("fast", 2, 1)), Arc::new(RiverSink::new("slow", 2, 1)));
    let balance = BalanceSink::new("balance", vec![fast.clone(), slow.clone()]);
    std::thread::scope(|scope| {
        let quick = scope.spawn(|| numbers_of(&*fast).unwrap());
        let lazy = scope.spawn(|| {
            let mut count = 0;
            // The first buffer is kept until the other consumer has had all the rest but two.
            while let Some(buffer) = slow.get().unwrap() {
                while Source::edge(&*fast).counts().buffers < 90 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                count += buffer.records();
            }
            count
        });
        for n in 0..100u64 {
            let mut buffer = Buffer::heap(8);
            buffer.push_record(&n.to_be_bytes());
            balance.put(buffer).unwrap();
        }
        balance.finish().unwrap();
        let (quick, lazy) = (quick.join().unwrap(), lazy.join().unwrap());
        assert_eq!(quick.len() as u64 + lazy, 100);
        assert!(lazy <= 10, "{lazy}");
    });
}

#[test]
fn two_copies_serve_one_flow_and_stand_in_for_each_other() {
    let _watchdog = watch();
    let folder = TempDir::new("river-mirror");
    let paths = [folder.path().join("one"), folder.path().join("two")];
    let bytes: Vec<u8> = (0..200_000u32).map(|n| (n / 7) as u8).collect();
    paths.iter().for_each(|path| std::fs::write(path, &bytes).unwrap());
    let open = |path: &Path| {
        let pool = MemPool::new(2, 8192).unwrap();
        let volumes = vec![Volume::open(path).unwrap()];
        DiskSource::new("copy", volumes, Arc::new(Fixed(8)), pool, Direct::Off, Partial::Refuse).unwrap()
    };
    let read = |mirror: &MirrorSource| {
        let mut all = Vec::new();
        while let Some(buffer) = mirror.pull().unwrap() {
            all.extend_from_slice(buffer.data());
        }
        all
    };
    let mirror = MirrorSource::new("mirror", [open(&paths[0]), open(&paths[1])]).unwrap();
    assert!(read(&mirror) == bytes);
    assert!(mirror.served().iter().all(|&chunks| chunks > 0));
    let mirror = MirrorSource::new("mirror", [open(&paths[0]), open(&paths[1])]).unwrap();
    std::fs::File::options().write(true).open(&paths[0]).unwrap().set_len(50_000).unwrap();
    assert!(read(&mirror) == bytes, "the other copy has what one lost");
}

/// A copy in memory, which lacks every chunk whose number divided by three leaves `lacks`.
struct InMemory {
    pool: MemPool,
    lacks: u64,
}

impl Chunks for InMemory {
    fn shape(&self) -> [u64; 3] {
        [300 * 80, 80, 300]
    }

    fn buffer(&self, limit: Duration) -> Option<Buffer> {
        self.pool.take_for(limit)
    }

    fn spare_buffer(&self) -> Buffer {
        Buffer::heap(80)
    }

    fn read(&self, mut buffer: Buffer, number: u64) -> Result<Buffer, Error> {
        if number % 3 == self.lacks {
            return Err(Error::Format(format!("chunk {number} is not here")));
        }
        (0..10).for_each(|n| buffer.push_record(&(number * 10 + n).to_be_bytes()));
        buffer.set_position(number * 80);
        buffer.set_sequence(number);
        Ok(buffer)
    }
}

#[test]
fn copies_of_a_programs_own_are_mirrored() {
    let _watchdog = watch();
    let copy = |lacks| InMemory { pool: MemPool::new(1, 4096).unwrap(), lacks };
    let mirror = MirrorSource::new("mirror", [copy(0), copy(1)]).unwrap();
    assert!(numbers_of(&mirror).unwrap().into_iter().eq(0..3000), "each has what the other lacks");
    assert_eq!(mirror.served().iter().sum::<u64>(), 300);
    assert!(mirror.served().iter().all(|&chunks| chunks >= 100), "{:?}", mirror.served());
    let mirror = MirrorSource::new("mirror", [copy(1), copy(1)]).unwrap();
    let told = numbers_of(&mirror).unwrap_err().to_string();
    assert!(told.contains("chunk 1 is not here"), "{told}");
}

/// Records that take so long to count: a copy on a disk that is as slow.
#[derive(Debug)]
struct Slow(Duration);

impl RecordFormat for Slow {
    fn framing(&self) -> viaduct_river::Framing {
        Fixed(8).framing()
    }

    fn record_len(&self, bytes: &[u8]) -> Option<usize> {
        Fixed(8).record_len(bytes)
    }

    fn count(&self, bytes: &[u8]) -> u64 {
        std::thread::sleep(self.0);
        bytes.len() as u64 / 8
    }
}

#[test]
fn the_slower_copy_serves_less_to_a_single_thread() {
    let _watchdog = watch();
    let folder = TempDir::new("river-pace");
    let path = folder.path().join("both");
    let bytes: Vec<u8> = (0..100 * 8192u32).map(|n| (n / 7) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    for slow in [0, 1] {
        let copies = [0, 1].map(|copy| {
            let pool = MemPool::new(1, 8192).unwrap();
            let volumes = vec![Volume::open(&path).unwrap()];
            let format = Slow(Duration::from_millis(if copy == slow { 20 } else { 1 }));
            DiskSource::new("copy", volumes, Arc::new(format), pool, Direct::Off, Partial::Refuse).unwrap()
        });
        let mirror = MirrorSource::new("mirror", copies).unwrap();
        let river = RiverSink::new("river", 1, 1);
        let mut all = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| pump(&mirror, &river).unwrap());
            while let Some(buffer) = river.get().unwrap() {
                all.extend_from_slice(buffer.data());
            }
        });
        assert!(all == bytes);
        let served = mirror.served();
        assert_eq!(served[0] + served[1], 100);
        assert!(served[slow] >= 1 && served[slow] <= 25, "{served:?}, the slow one is {slow}");
    }
}

#[test]
fn copies_are_read_past_the_page_cache_where_that_is_asked_for() {
    let _watchdog = watch();
    let folder = TempDir::new("river-uncached");
    let path = folder.path().join("both");
    let bytes: Vec<u8> = (0..1u32 << 20).map(|n| (n / 7) as u8).collect();
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let mut volume = Volume::of_files(vec![(path.clone(), file)], u64::MAX);
    volume.use_direct();
    let sink = DiskSink::by_threads("out", volume);
    let mut buffer = MemPool::new(1, bytes.len()).unwrap().take();
    buffer.push_record(&bytes);
    sink.put(buffer).unwrap();
    let cached = || Volume::open(&path).unwrap().resident();
    if cached().is_none_or(|share| share > 0.1) {
        viaduct_kit::skip!("files of {} are always in the page cache", folder.path().display());
    }
    let copies = [0, 1].map(|_| {
        let pool = MemPool::new(2, 8192).unwrap();
        let volumes = vec![Volume::open(&path).unwrap()];
        DiskSource::new("copy", volumes, Arc::new(Fixed(8)), pool, Direct::On, Partial::Refuse).unwrap()
    });
    let mirror = MirrorSource::new("mirror", copies).unwrap();
    let mut all = Vec::new();
    while let Some(buffer) = mirror.pull().unwrap() {
        all.extend_from_slice(buffer.data());
    }
    assert!(all == bytes);
    assert!(cached().is_some_and(|share| share <= 0.1), "{:?} of it is in the page cache", cached());
}

#[test]
fn the_slower_copy_serves_less() {
    let _watchdog = watch();
    let folder = TempDir::new("river-slow");
    let path = folder.path().join("both");
    let bytes: Vec<u8> = (0..400_000u32).map(|n| (n / 7) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    let pools = [1, 4].map(|count| MemPool::new(count, 8192).unwrap());
    let copies = pools.clone().map(|pool| {
        let volumes = vec![Volume::open(&path).unwrap()];
        DiskSource::new("copy", volumes, Arc::new(Fixed(8)), pool, Direct::Off, Partial::Refuse).unwrap()
    });
    let mirror = MirrorSource::new("mirror", copies).unwrap();
    // A reader of the first copy waits for its buffer until the second one has served all.
    let kept = pools[0].take();
    let read = || {
        let mut bytes = 0;
        while let Some(buffer) = mirror.pull().unwrap() {
            bytes += buffer.len();
        }
        bytes
    };
    std::thread::scope(|scope| {
        let readers = [scope.spawn(read), scope.spawn(read)];
        let all = bytes.len().div_ceil(8192) as u64;
        while mirror.served()[1] < all {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(kept);
        let read: usize = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert_eq!((read, mirror.served()), (bytes.len(), [0, all]));
    });
}

#[test]
fn an_error_reaches_the_consumer_before_what_is_queued() {
    let river = RiverSink::new("river", 4, 2);
    river.put(Buffer::heap(8)).unwrap();
    river.fail(Error::Format("bad luck".into()));
    assert!(river.get().unwrap_err().to_string().contains("bad luck"));
    assert!(river.put(Buffer::heap(8)).is_err());
}

fn edge_carries(sink: &dyn Sink, source: &dyn Source) {
    std::thread::scope(|scope| {
        scope.spawn(|| pump(&Numbers::new(0, 50_000, 1), sink).unwrap());
        assert!(numbers_of(source).unwrap().into_iter().eq(0..50_000));
    });
    assert!(source.pull().unwrap().is_none(), "what ran dry stays dry");
    assert_eq!((sink.edge().counts().records, source.edge().counts().records), (50_000, 50_000));
}

#[test]
fn an_edge_over_tcp_carries_everything_once() {
    let _watchdog = watch();
    let (client, server) = tcp_pair();
    let pool = MemPool::new(1, 4096).unwrap();
    edge_carries(&TcpSink::new("out", 1, client), &TcpSource::new("in", 0, server, pool));
}

#[test]
fn an_edge_over_via_carries_everything_once() {
    let _watchdog = watch();
    let (_, sink, source) = via_pair("river-edge", 1);
    edge_carries(&sink, &source);
}

#[test]
fn registered_buffers_leave_from_where_they_lie_and_return_to_their_pool() {
    let _watchdog = watch();
    for window in [None, Some(8192)] {
        let (port, sink, source) = via_pair("river-registered", 3);
        let pool = MemPool::registered(&port, 5, 4096, window).unwrap();
        assert!(pool.is_of(&port) && pool.free() == 5);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..1000u64 {
                    let mut buffer = pool.take();
                    assert!((buffer.room().as_ptr() as usize).is_multiple_of(4096));
                    (0..512).for_each(|k| buffer.push_record(&(512 * n + k).to_be_bytes()));
                    // Whatever part of its memory the payload is.
                    buffer.set_window(8, 4096);
                    sink.put(buffer).unwrap();
                }
                sink.finish().unwrap();
            });
            let numbers = numbers_of(&source).unwrap();
            assert!(numbers.into_iter().eq((0..512_000).filter(|n| n % 512 != 0)));
        });
        assert_eq!(pool.free(), 5, "every send has completed");
    }
}

/// From a disk to another node's disk; the kernel reads into and writes from what the NICs send and receive.
#[test]
fn registered_memory_is_read_into_and_written_from_past_the_page_cache() {
    let _watchdog = watch();
    let folder = TempDir::new("river-registered-disks");
    let (from, to) = (folder.join("from"), folder.join("to"));
    // The last block is a piece of one.
    let bytes: Vec<u8> = (0..100_001u64).flat_map(u64::to_be_bytes).collect();
    std::fs::write(&from, &bytes).unwrap();
    for window in [None, Some(8192)] {
        let (port, sink, source) = via_pair("river-registered-disks", 6);
        let pool = MemPool::registered(&port, 6, 4096, window).unwrap();
        let (volumes, format) = (vec![Volume::open(&from).unwrap()], Arc::new(Fixed(8)));
        let disk =
            DiskSource::new("input", volumes, format, pool.clone(), Direct::On, Partial::Refuse).unwrap();
        let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&to);
        let mut volume = Volume::of_files(vec![(to.clone(), file.unwrap())], u64::MAX);
        volume.use_direct();
        let written = DiskSink::new("output", volume);
        if !disk.is_ahead() || !written.is_ahead() {
            viaduct_kit::skip!("no direct I/O through io_uring in the folder for temporary files");
        }
        std::thread::scope(|scope| {
            scope.spawn(|| pump(&disk, &sink).unwrap());
            pump(&source, &written).unwrap();
        });
        assert_eq!(written.whole().unwrap(), bytes.len() as u64);
        assert!(std::fs::read(&to).unwrap() == bytes, "window {window:?}");
        assert_eq!(pool.free(), 6, "every read and every send has completed");
    }
}

#[test]
fn a_buffer_longer_than_those_of_the_receiver_travels_in_pieces() {
    let _watchdog = watch();
    let (_, sink, source) = via_pair("river-long", 2);
    let bytes: Vec<u8> = (0..100_000u32).map(|n| (n / 3) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for len in [0, 4096, 4097, 100_000] {
                let mut buffer = Buffer::heap(100_000);
                buffer.push_record(&bytes[..len]);
                buffer.set_position(7);
                sink.put(buffer).unwrap();
            }
            sink.finish().unwrap();
        });
        for len in [0, 4096, 4097, 100_000] {
            let buffer = source.pull().unwrap().unwrap();
            assert_eq!((buffer.records(), buffer.position()), (1, Some(7)));
            assert!(buffer.data() == &bytes[..len], "{len}");
        }
        assert!(source.pull().unwrap().is_none());
    });
}

#[test]
fn a_via_edge_has_as_many_credits_as_receives_are_posted() {
    let _watchdog = watch();
    let (_, sink, source) = via_pair("river-credits", 8);
    let buffer = |n: u64| {
        let mut buffer = Buffer::heap(8);
        buffer.push_record(&n.to_be_bytes());
        buffer
    };
    let mut sent = 0;
    while sink.try_put(buffer(sent)).unwrap().is_none() {
        sent += 1;
    }
    assert_eq!(sent, 4);
    let first = source.pull().unwrap().unwrap();
    assert_eq!(first.data(), 0u64.to_be_bytes());
    drop(first);
    while sink.try_put(buffer(sent)).unwrap().is_some() {
        std::thread::yield_now();
    }
}

#[test]
fn a_failure_travels_with_cause_and_node() {
    let _watchdog = watch();
    let lines = |bytes: &'static [u8]| {
        let pool = MemPool::new(1, 4096).unwrap();
        let inputs = vec![("input".into(), Box::new(bytes) as Box<dyn std::io::Read + Send>)];
        StreamSource::new("input", inputs, Arc::new(Fixed(8)), pool, Partial::Refuse)
    };
    let (client, server) = tcp_pair();
    let pool = MemPool::new(1, 4096).unwrap();
    let (tcp_sink, tcp_source) = (TcpSink::new("out", 1, client), TcpSource::new("in", 7, server, pool));
    let (_, via_sink, via_source) = via_pair("river-failure", 1);
    let edges: [(&dyn Sink, &dyn Source, &str); 2] =
        [(&tcp_sink, &tcp_source, "node 7"), (&via_sink, &via_source, "node 0")];
    for (sink, source, node) in edges {
        assert!(matches!(pump(&lines(b"not eight"), sink), Err(Error::Partial { .. })));
        let error = numbers_of(source).unwrap_err().to_string();
        assert!(error.contains(node) && error.contains("offset 8"), "{error}");
    }
}

#[test]
fn a_sender_that_is_gone_is_noticed() {
    let _watchdog = watch();
    let (client, server) = tcp_pair();
    let source = TcpSource::new("in", 3, server, MemPool::new(1, 4096).unwrap());
    drop(client);
    let error = numbers_of(&source).unwrap_err().to_string();
    assert!(error.contains("node 3"), "{error}");
    let (_, sink, source) = via_pair("river-gone", 1);
    drop(sink);
    let error = numbers_of(&source).unwrap_err().to_string();
    assert!(error.contains("node 0"), "{error}");
}
