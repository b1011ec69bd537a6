//! Files and streams as ends of flows: every byte once, in whole records, with pools of any size.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_river::disk::{Direct, DiskSink, DiskSource, Output, Partial, StreamSink, StreamSource, Volume};
use viaduct_river::{Delimited, Error, Fixed, MemPool, Prefixed, RecordFormat, Sink, Source, pump_with};

/// Lines of odd lengths, some empty, some longer than any buffer of a test.
fn lines(seed: u64, total: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::new();
    while bytes.len() < total {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let kind = state >> 60;
        let len = if kind == 0 { (state >> 40) as usize % 30_000 } else { (state >> 40) as usize % 60 };
        bytes.extend((0..len).map(|n| b'a' + ((state >> (n % 30)) % 26) as u8));
        bytes.push(b'\n');
    }
    bytes
}

fn read_all(source: &dyn Source, format: &dyn RecordFormat) -> Result<Vec<u8>, Error> {
    let mut all = Vec::new();
    while let Some(buffer) = source.pull()? {
        assert_eq!(
            viaduct_river::records(format, buffer.data()).map(<[u8]>::len).sum::<usize>(),
            buffer.len()
        );
        assert_eq!(buffer.records(), format.count(buffer.data()));
        all.extend_from_slice(buffer.data());
    }
    Ok(all)
}

fn source(path: &Path, format: Arc<dyn RecordFormat>, pool: (usize, usize), direct: Direct) -> DiskSource {
    let pool = MemPool::new(pool.0, pool.1).unwrap();
    let volumes = vec![Volume::open(path).unwrap()];
    DiskSource::new("input", volumes, format, pool, direct, Partial::Refuse).unwrap()
}

#[test]
fn lines_come_whole_and_in_order_whatever_the_chunks() {
    let _watchdog = Watchdog::arm(Duration::from_secs(60), "a flow");
    let folder = TempDir::new("river-lines");
    let path = folder.path().join("lines");
    let format = Arc::new(Delimited(b'\n'));
    for (seed, total) in [(1, 0), (2, 1), (3, 4096), (4, 100_000), (5, 300_000), (6, 7_000)] {
        let bytes = lines(seed, total);
        std::fs::write(&path, &bytes).unwrap();
        for room in [8192, 16_384, 100_000] {
            for direct in [Direct::Off, Direct::On] {
                for count in [1, 5] {
                    let source = source(&path, format.clone(), (count, room), direct);
                    let got = read_all(&source, &*format).unwrap();
                    assert!(got == bytes, "seed {seed}, room {room}, {direct:?}, {count} buffers");
                    let counts = source.edge().counts();
                    assert_eq!((counts.bytes, counts.records), (bytes.len() as u64, format.count(&bytes)));
                }
            }
        }
    }
}

#[test]
fn a_last_line_without_end_gets_one() {
    let folder = TempDir::new("river-last");
    let path = folder.path().join("lines");
    let format = Arc::new(Delimited(b'\n'));
    for len in [1, 3583, 3584, 3585, 7168, 8192, 20_000] {
        let mut bytes = vec![b'x'; len];
        std::fs::write(&path, &bytes).unwrap();
        bytes.push(b'\n');
        let source = source(&path, format.clone(), (2, 8192), Direct::Off);
        assert!(read_all(&source, &*format).unwrap() == bytes, "{len}");
    }
}

#[test]
fn records_of_one_size_are_read_by_threads_and_written_back() {
    let _watchdog = Watchdog::arm(Duration::from_secs(60), "a flow");
    let folder = TempDir::new("river-fixed");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    for size in [1, 7, 100, 4096, 5000] {
        let bytes: Vec<u8> = (0..size * 777).map(|n| (n * 31 / 8) as u8).collect();
        std::fs::write(&from, &bytes).unwrap();
        let ways =
            [(Direct::Off, 1, true), (Direct::On, 1, true), (Direct::On, 12, true), (Direct::On, 2, false)];
        for (direct, buffers, rings) in ways {
            let mut source = source(&from, Arc::new(Fixed(size)), (buffers, 40_000), direct);
            if !rings {
                source = source.by_threads();
                assert!(!source.is_ahead());
            }
            assert_eq!(source.len(), bytes.len() as u64);
            let output = Output::create(&to).unwrap();
            output.reserve(bytes.len() as u64).unwrap();
            let mut volume = Volume::of_files(vec![(to.clone(), output.file().unwrap())], u64::MAX);
            if direct == Direct::On {
                volume.use_direct();
            }
            let sink =
                if rings { DiskSink::new("output", volume) } else { DiskSink::by_threads("output", volume) };
            pump_with(3, &source, &sink).unwrap();
            output.commit(bytes.len() as u64).unwrap();
            assert!(std::fs::read(&to).unwrap() == bytes, "{size} bytes a record, {direct:?}, rings {rings}");
            assert_eq!(sink.edge().counts().records, 777);
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left beside the result");
}

#[test]
fn a_cut_record_is_named_or_dropped() {
    let folder = TempDir::new("river-cut");
    let path = folder.path().join("cut");
    std::fs::write(&path, [1; 250]).unwrap();
    let open = |partial| {
        let volumes = vec![Volume::open(&path).unwrap()];
        let pool = MemPool::new(1, 4096).unwrap();
        DiskSource::new("input", volumes, Arc::new(Fixed(100)), pool, Direct::Off, partial)
    };
    let error = open(Partial::Refuse).unwrap_err();
    assert!(matches!(error, Error::Partial { offset: 200, rest: 50, size: 100, .. }), "{error}");
    assert_eq!(read_all(&open(Partial::Drop).unwrap(), &Fixed(100)).unwrap().len(), 200);
}

#[test]
fn an_output_that_is_not_committed_leaves_nothing_and_the_old_file_stays() {
    let folder = TempDir::new("river-output");
    let path = folder.path().join("result");
    std::fs::write(&path, "old").unwrap();
    let output = Output::create(&path).unwrap();
    std::io::Write::write_all(&mut output.file().unwrap(), b"half").unwrap();
    drop(output);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let error = Output::create(&folder.path().join("no/such/folder")).unwrap_err();
    assert!(error.to_string().contains("no/such/folder"), "{error}");
}

viaduct_kit::isolated! {
    /// Another thread of a process that ends may be about to give its output a name.
    fn an_output_that_was_abandoned_gets_no_name() {
        let folder = TempDir::new("river-abandoned");
        let output = Output::create(&folder.path().join("nameless")).unwrap();
        let mut named = Output::create(&folder.path().join("named")).unwrap();
        assert!(named.way(true).unwrap().exists());
        viaduct_river::disk::abandon_outputs();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "its hidden name is gone");
        assert!(output.commit(0).is_err());
        assert!(named.commit(0).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn streams_are_read_whole_and_written_in_order() {
    let _watchdog = Watchdog::arm(Duration::from_secs(60), "a flow");
    let bytes = lines(9, 200_000);
    let (one, two) = bytes.split_at(bytes.len() / 2);
    let input = |name: &str, bytes: &[u8]| -> (PathBuf, Box<dyn Read + Send>) {
        (name.into(), Box::new(std::io::Cursor::new(bytes.to_vec())))
    };
    let format = Arc::new(Delimited(b'\n'));
    let pool = MemPool::new(4, 8192).unwrap();
    let inputs = vec![input("one", one), input("two", two)];
    let source = StreamSource::new("input", inputs, format.clone(), pool, Partial::Refuse);
    let folder = TempDir::new("river-stream");
    let path = folder.path().join("out");
    let file = std::fs::File::create(&path).unwrap();
    let sink = StreamSink::new("output", &path, Box::new(file));
    pump_with(3, &source, &sink).unwrap();
    let mut expected = one.to_vec();
    expected.push(b'\n');
    expected.extend_from_slice(two);
    let expected = if one.ends_with(b"\n") { bytes.clone() } else { expected };
    assert!(std::fs::read(&path).unwrap() == expected);

    let mut chained = Vec::new();
    for n in 0..500u32 {
        chained.extend((n * 37 % 9000).to_le_bytes());
        chained.extend(vec![n as u8; (n * 37 % 9000) as usize]);
    }
    let pool = MemPool::new(1, 4096).unwrap();
    let source =
        StreamSource::new("c", vec![input("c", &chained)], Arc::new(Prefixed), pool, Partial::Refuse);
    assert!(read_all(&source, &Prefixed).unwrap() == chained);
}

#[test]
fn stripes_in_several_folders_are_written_and_read_past_the_cache() {
    let _watchdog = Watchdog::arm(Duration::from_secs(60), "a flow");
    let folder = TempDir::new("river-stripes");
    let bytes: Vec<u8> = (0..3_000_100u32).map(|n| (n / 3) as u8).collect();
    let from = folder.path().join("from");
    std::fs::write(&from, &bytes).unwrap();
    let paths: Vec<_> = (0..3).map(|n| folder.path().join(format!("disk{n}/stripe"))).collect();
    for rings in [true, false] {
        let create = |path: &std::path::PathBuf| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            (
                path.clone(),
                std::fs::File::options()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(path)
                    .unwrap(),
            )
        };
        let mut volume = Volume::of_files(paths.iter().map(create).collect(), 64 << 10);
        volume.use_direct();
        let sink = if rings { DiskSink::new("out", volume) } else { DiskSink::by_threads("out", volume) };
        // Buffers that are no multiple of a stripe lie over its seams.
        pump_with(2, &source(&from, Arc::new(Fixed(100)), (1, 110_000), Direct::On), &sink).unwrap();
        drop(sink);
        let striped = Volume::open_striped(&paths, 64 << 10).unwrap();
        let pool = MemPool::new(4, 100_000).unwrap();
        let format = Arc::new(Fixed(100));
        let source = DiskSource::new("in", vec![striped], format, pool, Direct::On, Partial::Refuse).unwrap();
        assert!(read_all(&source, &Fixed(100)).unwrap() == bytes, "rings {rings}");
        paths.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
}

#[test]
fn a_write_that_fails_under_way_is_told_by_name() {
    let _watchdog = Watchdog::arm(Duration::from_secs(60), "a flow");
    let folder = TempDir::new("river-readonly");
    let path = folder.path().join("read-only");
    std::fs::write(&path, [0; 8192]).unwrap();
    // Often: the failure has to be known by the time that the end is.
    for _ in 0..100 {
        let file = std::fs::File::open(&path).unwrap();
        let mut volume = Volume::of_files(vec![(path.clone(), file)], u64::MAX);
        volume.use_direct();
        let sink = DiskSink::new("output", volume);
        let pool = MemPool::new(1, 8192).unwrap();
        let mut buffer = pool.take();
        buffer.set_window(0, 8192);
        let told = sink.put(buffer).and_then(|()| sink.finish()).unwrap_err().to_string();
        assert!(told.contains("read-only"), "{told}");
        assert_eq!(pool.take().capacity(), 8192, "the buffer is back in its pool");
    }
}

#[test]
fn a_read_that_fails_in_the_middle_is_told_by_name() {
    let folder = TempDir::new("river-eio");
    let good = folder.path().join("good");
    std::fs::write(&good, vec![7; 64 << 10]).unwrap();
    // Every second stripe lies at the start of this process's memory, where nothing is mapped: the kernel says EIO.
    let bad = PathBuf::from("/proc/self/mem");
    for direct in [Direct::Off, Direct::On] {
        let volume = Volume::open_striped(&[good.clone(), bad.clone()], 16 << 10).unwrap();
        let pool = MemPool::new(2, 16 << 10).unwrap();
        let format = Arc::new(Fixed(8));
        let source = DiskSource::new("input", vec![volume], format, pool, direct, Partial::Refuse).unwrap();
        assert_eq!(source.pull().unwrap().expect("the first stripe").len(), 16 << 10);
        let error = source.pull().unwrap_err().to_string();
        assert!(error.contains("/proc/self/mem") && error.contains("Input/output error"), "{error}");
        // The third stripe is good; another thread that pulls is not to read on for nothing.
        assert_eq!(source.pull().unwrap_err().to_string(), error);
    }
}

#[test]
fn a_file_cut_while_it_is_read_ahead_is_told_to_every_thread() {
    let _watchdog = Watchdog::arm(Duration::from_secs(60), "a flow");
    let folder = TempDir::new("river-cut-ahead");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    // The bytes end in the middle, at the start and at the end of the chunks that are under way.
    for left in [0, 4096, 300_000, 999_424] {
        std::fs::write(&from, vec![7; 1_000_000]).unwrap();
        let source = source(&from, Arc::new(Fixed(100)), (12, 102_400), Direct::On);
        if !source.is_ahead() {
            viaduct_kit::skip!("no direct reads through io_uring in the folder for temporary files");
        }
        std::fs::File::options().write(true).open(&from).unwrap().set_len(left).unwrap();
        let sink = StreamSink::new("output", &to, Box::new(std::io::sink()));
        let told = pump_with(3, &source, &sink).unwrap_err().to_string();
        assert!(told.contains("became shorter") && told.contains("from"), "{left}: {told}");
        assert_eq!(
            source.pull().unwrap_err().to_string(),
            told,
            "{left}: the threads that come later hear it, too"
        );
    }
}

#[test]
fn a_sink_that_has_failed_takes_nothing_more() {
    let folder = TempDir::new("river-failed-sink");
    let path = folder.path().join("out");
    let pool = MemPool::new(1, 4096).unwrap();
    for direct in [false, true] {
        let file = std::fs::File::create(&path).unwrap();
        let mut volume = Volume::of_files(vec![(path.clone(), file)], u64::MAX);
        if direct {
            volume.use_direct();
        }
        let sink = DiskSink::new("output", volume);
        sink.fail(Error::Stopped);
        let mut buffer = pool.take();
        buffer.set_window(0, 4096);
        assert!(matches!(sink.put(buffer), Err(Error::Stopped)), "direct {direct}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    }
}
