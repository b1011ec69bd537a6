//! Places of buffers: whatever a flow leaves out, divides or runs together, sinks write every byte of it once, and none waits for ever.

mod common;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use common::{Numbers, numbers_of, tcp_pair, via_pair, watch};
use viaduct_kit::tempdir::TempDir;
use viaduct_river::disk::{
    Direct, DiskSink, DiskSource, MirrorSource, Partial, StreamSink, StreamSource, Volume,
};
use viaduct_river::net::{TcpSink, TcpSource};
use viaduct_river::{
    BalanceSink, Buffer, Delimited, Filter, Fixed, MemPool, MergeSource, PartitionSink, RecordFormat,
    RiverSink, Sink, Source, pump, pump_with,
};

/// A sink for a file, past the page cache or not.
fn to_file(path: &Path, direct: bool) -> DiskSink {
    let file = std::fs::File::create(path).unwrap();
    let mut volume = Volume::of_files(vec![(path.to_owned(), file)], u64::MAX);
    if direct {
        volume.use_direct();
    }
    DiskSink::new("out", volume)
}

fn from_file(path: &Path, format: Arc<dyn RecordFormat>, buffers: usize, direct: Direct) -> DiskSource {
    let pool = MemPool::new(buffers, 8192).unwrap();
    let volumes = vec![Volume::open(path).unwrap()];
    DiskSource::new("in", volumes, format, pool, direct, Partial::Refuse).unwrap()
}

/// Numbers of eight bytes in a file.
fn numbers_in(path: &Path) -> Vec<u64> {
    let bytes = std::fs::read(path).unwrap();
    assert!(bytes.len().is_multiple_of(8));
    bytes.chunks_exact(8).map(|number| u64::from_be_bytes(number.try_into().unwrap())).collect()
}

fn write_numbers(path: &Path, numbers: impl Iterator<Item = u64>) {
    std::fs::write(path, numbers.flat_map(u64::to_be_bytes).collect::<Vec<_>>()).unwrap();
}

/// What a stream sink has written, to be looked at.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn sink(&self) -> StreamSink {
        StreamSink::new("stream", Path::new("stream"), Box::new(self.clone()))
    }

    fn numbers(&self) -> Vec<u64> {
        let bytes = self.0.lock().unwrap();
        bytes.chunks_exact(8).map(|number| u64::from_be_bytes(number.try_into().unwrap())).collect()
    }
}

/// Direct reads, and how many buffers there are.
const WAYS: [(Direct, usize); 4] = [(Direct::Off, 1), (Direct::Off, 4), (Direct::On, 1), (Direct::On, 4)];

#[test]
fn partitions_of_a_file_are_files_without_holes() {
    let _watchdog = watch();
    let folder = TempDir::new("places-parts");
    write_numbers(&folder.join("in"), 0..20_000);
    let paths: Vec<PathBuf> = (0..3).map(|n| folder.join(format!("part{n}"))).collect();
    for (direct, buffers) in WAYS {
        let sinks: Vec<_> = paths.iter().map(|path| Arc::new(to_file(path, direct == Direct::On))).collect();
        let rule = |record: &[u8]| usize::from(record[7] % 3);
        let pool = MemPool::new(buffers, 4096).unwrap();
        let parts = PartitionSink::new("parts", Arc::new(Fixed(8)), rule, pool, sinks.clone());
        pump(&from_file(&folder.join("in"), Arc::new(Fixed(8)), buffers, direct), &parts).unwrap();
        for (n, (sink, path)) in sinks.iter().zip(&paths).enumerate() {
            let expected: Vec<u64> = (0..20_000u64).filter(|number| number % 256 % 3 == n as u64).collect();
            assert_eq!(sink.whole().unwrap(), 8 * expected.len() as u64);
            assert!(numbers_in(path) == expected, "part {n}, {direct:?}, {buffers} buffers");
        }
    }
}

#[test]
fn partitions_go_through_queues_and_over_edges_to_files() {
    let _watchdog = watch();
    let folder = TempDir::new("places-queues");
    write_numbers(&folder.join("in"), 0..20_000);
    let (client, server) = tcp_pair();
    let (_, via, via_source) = via_pair("places-queues", 1);
    let queue = Arc::new(RiverSink::new("queue", 1, 1));
    let ends: Vec<(Arc<dyn Sink>, Arc<dyn Source>)> = vec![
        (queue.clone(), queue),
        (Arc::new(via), Arc::new(via_source)),
        (
            Arc::new(TcpSink::new("out", 1, client)),
            Arc::new(TcpSource::new("in", 0, server, MemPool::new(1, 4096).unwrap())),
        ),
    ];
    let (sinks, sources): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let rule = |record: &[u8]| usize::from(record[7] % 3);
    let pool = MemPool::new(1, 4096).unwrap();
    let parts = PartitionSink::new("parts", Arc::new(Fixed(8)), rule, pool, sinks);
    std::thread::scope(|scope| {
        let input = from_file(&folder.join("in"), Arc::new(Fixed(8)), 1, Direct::Off);
        scope.spawn(move || pump(&input, &parts).unwrap());
        for (n, source) in sources.iter().enumerate() {
            let path = folder.join(format!("part{n}"));
            scope.spawn(move || {
                let sink = to_file(&path, n == 1);
                pump(&**source, &sink).unwrap();
                let expected: Vec<u64> =
                    (0..20_000u64).filter(|number| number % 256 % 3 == n as u64).collect();
                assert_eq!(sink.whole().unwrap(), 8 * expected.len() as u64);
                assert!(numbers_in(&path) == expected, "part {n}");
            });
        }
    });
}

#[test]
fn a_filter_fills_a_file_or_a_stream_without_gaps() {
    let _watchdog = watch();
    let folder = TempDir::new("places-filter");
    let (path, out) = (folder.join("in"), folder.join("out"));
    write_numbers(&path, 0..20_000);
    // Whole buffers are left out, too.
    let wanted = |number: u64| number % 7 == 3 && !(5000..9000).contains(&number);
    let expected: Vec<u64> = (0..20_000).filter(|number| wanted(*number)).collect();
    for (direct, buffers) in WAYS {
        let filter = || {
            let source = from_file(&path, Arc::new(Fixed(8)), buffers, direct);
            Filter::new("some", source, Arc::new(Fixed(8)), move |record: &[u8]| {
                wanted(u64::from_be_bytes(record.try_into().unwrap()))
            })
        };
        let sink = to_file(&out, direct == Direct::On);
        pump(&filter(), &sink).unwrap();
        assert_eq!(sink.whole().unwrap(), 8 * expected.len() as u64);
        assert!(numbers_in(&out) == expected, "{direct:?}, {buffers} buffers");
        let stream = Written::default();
        pump(&filter(), &stream.sink()).unwrap();
        assert!(stream.numbers() == expected, "{direct:?}, {buffers} buffers");
        // Threads side by side give up the order, and nothing else.
        let (sink, stream) = (to_file(&out, direct == Direct::On), Written::default());
        pump_with(3, &filter(), &sink).unwrap();
        pump_with(3, &filter(), &stream.sink()).unwrap();
        for mut got in [numbers_in(&out), stream.numbers()] {
            got.sort_unstable();
            assert!(got == expected, "{direct:?}, {buffers} buffers");
        }
    }
}

#[test]
fn several_sources_run_together_in_a_queue() {
    let _watchdog = watch();
    let folder = TempDir::new("places-together");
    let paths = [0, 1, 2].map(|n| folder.join(format!("in{n}")));
    for (n, path) in (0..).zip(&paths) {
        write_numbers(path, 10_000 * n..10_000 * n + 3000 + n);
    }
    let queue = RiverSink::new("queue", 1, 3);
    let sink = to_file(&folder.join("out"), false);
    std::thread::scope(|scope| {
        for path in &paths {
            let source = from_file(path, Arc::new(Fixed(8)), 1, Direct::Off);
            let queue = &queue;
            scope.spawn(move || pump(&source, queue).unwrap());
        }
        pump(&queue, &sink).unwrap();
    });
    assert_eq!(sink.whole().unwrap(), 8 * 9003);
    let mut got = numbers_in(&folder.join("out"));
    got.sort_unstable();
    assert!(got.into_iter().eq((0..3u64).flat_map(|n| 10_000 * n..10_000 * n + 3000 + n)));
}

#[test]
fn consumers_of_a_balance_have_files_without_holes_or_one_together() {
    let _watchdog = watch();
    let folder = TempDir::new("places-balance");
    write_numbers(&folder.join("in"), 0..20_000);
    for together in [false, true] {
        let queues = [0, 1].map(|_| Arc::new(RiverSink::new("queue", 1, 1)));
        let mut balance =
            BalanceSink::new("balance", queues.iter().map(|queue| queue.clone() as Arc<dyn Sink>).collect());
        if together {
            balance = balance.keeping_places();
        }
        let names = if together { ["one", "one"] } else { ["zero", "one"] };
        let files = names.map(|name| folder.join(name));
        let one = Arc::new(to_file(&files[1], false));
        let sinks = [if together { one.clone() } else { Arc::new(to_file(&files[0], false)) }, one];
        std::thread::scope(|scope| {
            let source = from_file(&folder.join("in"), Arc::new(Fixed(8)), 1, Direct::Off);
            scope.spawn(move || pump(&source, &balance).unwrap());
            for (queue, sink) in queues.iter().zip(&sinks) {
                scope.spawn(move || pump(&**queue, &**sink).unwrap());
            }
        });
        if together {
            assert_eq!(sinks[0].whole().unwrap(), 8 * 20_000);
            assert!(numbers_in(&files[0]).into_iter().eq(0..20_000));
            continue;
        }
        let lens = sinks.each_ref().map(|sink| sink.whole().unwrap());
        assert_eq!(lens[0] + lens[1], 8 * 20_000);
        let mut got = files.map(|path| numbers_in(&path)).concat();
        got.sort_unstable();
        assert!(got.into_iter().eq(0..20_000));
    }
}

#[test]
fn two_flows_into_one_file_are_refused_unless_it_appends() {
    let _watchdog = watch();
    let folder = TempDir::new("places-taken");
    write_numbers(&folder.join("in"), 0..5000);
    let source = || from_file(&folder.join("in"), Arc::new(Fixed(8)), 1, Direct::Off);
    let stream = Written::default();
    let sinks: [Box<dyn Sink>; 2] = [Box::new(to_file(&folder.join("out"), false)), Box::new(stream.sink())];
    for sink in sinks {
        pump(&source(), &*sink).unwrap();
        let told = pump(&source(), &*sink).unwrap_err().to_string();
        assert!(told.contains("two buffers belong at offset 0") && told.contains("hint"), "{told}");
    }
    let (sink, stream) = (to_file(&folder.join("out"), false).appending(), Written::default());
    let all = stream.sink().appending();
    for _ in 0..2 {
        pump(&source(), &sink).unwrap();
        pump(&source(), &all).unwrap();
    }
    assert_eq!(sink.whole().unwrap(), 8 * 10_000);
    for got in [numbers_in(&folder.join("out")), stream.numbers()] {
        assert!(got.into_iter().eq((0..5000).chain(0..5000)));
    }
}

#[test]
fn a_part_of_a_file_says_its_place_in_the_whole() {
    let _watchdog = watch();
    let folder = TempDir::new("places-part");
    let (path, out) = (folder.join("in"), folder.join("out"));
    write_numbers(&path, 0..9000);
    for (direct, buffers) in WAYS {
        let part = |n| from_file(&path, Arc::new(Fixed(8)), buffers, direct).part(n, 3);
        let sink = to_file(&out, false);
        pump(&part(2), &sink).unwrap();
        let told = sink.whole().unwrap_err().to_string();
        assert!(told.contains("nothing came for the bytes from 0"), "{told}");
        pump(&part(0), &sink).unwrap();
        pump(&part(1), &sink).unwrap();
        assert_eq!(sink.whole().unwrap(), 72_000);
        assert!(numbers_in(&out).into_iter().eq(0..9000), "{direct:?}, {buffers} buffers");
        // A part alone is a stream of its own.
        let stream = Written::default();
        let last = stream.sink().appending();
        pump(&part(1), &last).unwrap();
        pump(&part(2), &last).unwrap();
        let got = stream.numbers();
        assert!(got.len() < 9000 && got.iter().copied().eq(9000 - got.len() as u64..9000));
    }
}

#[test]
fn lines_of_files_that_lack_their_last_end_do_not_overlap() {
    let _watchdog = watch();
    let folder = TempDir::new("places-lines");
    let giant = [&[b'x'; 60_000][..], b"\nshort"].concat();
    let texts: [&[u8]; 4] = [b"one\ntwo", b"", &giant, b"end\n"];
    let paths: Vec<PathBuf> = (0..4).map(|n| folder.join(format!("{n}"))).collect();
    paths.iter().zip(texts).for_each(|(path, text)| std::fs::write(path, text).unwrap());
    let expected = [b"one\ntwo\n", &giant[..], b"\nend\n"].concat();
    for (direct, buffers) in WAYS {
        for threads in [1, 3] {
            let source = || {
                let volumes = paths.iter().map(|path| Volume::open(path).unwrap()).collect();
                let pool = MemPool::new(buffers, 8192).unwrap();
                let format = Arc::new(Delimited(b'\n'));
                DiskSource::new("in", volumes, format, pool, direct, Partial::Refuse).unwrap()
            };
            let (sink, stream) = (to_file(&folder.join("out"), false), Written::default());
            pump_with(threads, &source(), &sink).unwrap();
            pump_with(threads, &source(), &stream.sink()).unwrap();
            assert_eq!(sink.whole().unwrap(), expected.len() as u64);
            assert!(std::fs::read(folder.join("out")).unwrap() == expected, "{direct:?}, {buffers} buffers");
            assert!(*stream.0.lock().unwrap() == expected, "{direct:?}, {buffers} buffers");
        }
    }
}

#[test]
fn buffers_without_places_are_appended_and_a_merge_gives_new_ones() {
    let _watchdog = watch();
    let folder = TempDir::new("places-merge");
    let (sink, stream) = (to_file(&folder.join("out"), true), Written::default());
    pump(&Numbers::new(0, 5000, 1), &sink).unwrap();
    pump(&Numbers::new(5000, 7000, 1), &sink).unwrap();
    assert_eq!(sink.whole().unwrap(), 8 * 7000);
    assert!(numbers_in(&folder.join("out")).into_iter().eq(0..7000));
    let mut placed = Buffer::heap(8);
    placed.push_record(&[0; 8]);
    placed.set_position(56_000);
    let told = sink.put(placed).unwrap_err().to_string();
    assert!(told.contains("some buffers say where they belong"), "{told}");
    // Three threads pull from one merge, and the stream is in order again.
    let inputs = (0..3).map(|n| Arc::new(Numbers::new(n, 9000, 3)) as Arc<dyn Source>).collect();
    let pool = MemPool::new(1, 4096).unwrap();
    let format = Arc::new(Fixed(8));
    let merged = MergeSource::new("merged", inputs, format, |a: &[u8], b: &[u8]| a.cmp(b), pool);
    pump_with(3, &merged, &stream.sink()).unwrap();
    assert!(stream.numbers().into_iter().eq(0..9000));
}

#[test]
fn threads_that_read_two_copies_with_a_buffer_each_write_a_stream_in_order() {
    let _watchdog = watch();
    let folder = TempDir::new("places-mirror");
    let paths = [0, 1].map(|n| folder.join(format!("copy{n}")));
    paths.iter().for_each(|path| write_numbers(path, 0..40_000));
    for lost in [false, true] {
        let copies = paths.each_ref().map(|path| from_file(path, Arc::new(Fixed(8)), 1, Direct::Off));
        let mirror = MirrorSource::new("mirror", copies).unwrap();
        if lost {
            std::fs::File::options().write(true).open(&paths[1]).unwrap().set_len(10_000).unwrap();
        }
        let stream = Written::default();
        pump_with(4, &mirror, &stream.sink()).unwrap();
        assert!(stream.numbers().into_iter().eq(0..40_000), "a copy that lost its end: {lost}");
    }
}

#[test]
fn a_pipe_is_filtered_over_an_edge_into_a_stream() {
    let _watchdog = watch();
    let bytes: Vec<u8> = (0..20_000u64).flat_map(u64::to_be_bytes).collect();
    let input: Vec<(PathBuf, Box<dyn Read + Send>)> =
        vec![("pipe".into(), Box::new(std::io::Cursor::new(bytes)))];
    let pool = MemPool::new(1, 4096).unwrap();
    let source = StreamSource::new("pipe", input, Arc::new(Fixed(8)), pool, Partial::Refuse);
    let even = Filter::new("even", source, Arc::new(Fixed(8)), |record: &[u8]| record[7].is_multiple_of(2));
    let (_, sink, far) = via_pair("places-pipe", 1);
    let stream = Written::default();
    std::thread::scope(|scope| {
        scope.spawn(|| pump(&even, &sink).unwrap());
        pump(&far, &stream.sink()).unwrap();
    });
    assert!(stream.numbers().into_iter().eq((0..20_000).step_by(2)));
    assert!(numbers_of(&far).unwrap().is_empty());
}
