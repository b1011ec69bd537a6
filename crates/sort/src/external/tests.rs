//! Partitions: each writer goes on by itself, and each partition fits into memory whatever its records are.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use viaduct_kit::effort::scaled;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_river::{Buffer, Delimited, Edge};

use super::*;
use crate::order::AnyOrder;
use crate::sort::Records;

/// Lines in buffers; what runs before each buffer is said.
struct Lines<F> {
    next: Mutex<std::vec::IntoIter<Vec<u8>>>,
    before: F,
    edge: Edge,
}

fn lines<F: Fn(usize) + Send + Sync>(buffers: Vec<Vec<u8>>, before: F) -> Lines<F> {
    Lines { next: Mutex::new(buffers.into_iter()), before, edge: Edge::new("lines") }
}

impl<F: Fn(usize) + Send + Sync> Source for Lines<F> {
    fn pull(&self) -> Result<Option<Buffer>, viaduct_river::Error> {
        let mut next = self.next.lock().unwrap();
        (self.before)(next.len());
        Ok(next.next().map(|bytes| {
            let mut buffer = Buffer::heap(bytes.len());
            buffer.push_record(&bytes);
            buffer.set_records(bytes.iter().filter(|&&byte| byte == b'\n').count() as u64);
            buffer
        }))
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}

fn with_external(memory: u64, test: impl FnOnce(&External<'_, crate::text::TextOrder>, &Arc<Store>)) {
    let _watchdog = Watchdog::arm(scaled(Duration::from_secs(60)), "partitions");
    let folder = TempDir::new("sort-parts");
    let records = Records::Text { mark: b'\n', keys: vec![], tab: None, reverse: false };
    let settings = Settings { records, memory: Some(memory), threads: 2, ..Settings::default() };
    let Ok(AnyOrder::Text(order)) = settings.order() else { panic!("text has an order of its own") };
    let format: Arc<dyn RecordFormat> = Arc::new(Delimited(b'\n'));
    let folders = vec![folder.path().to_owned()];
    let store = Arc::new(Store::new(&folders, 0, settings.direct).unwrap());
    let progress = Progress::default();
    let (settings, format, progress) = (&settings, &format, &progress);
    test(
        &External { order: &order, format, settings, progress, folders, room: 1 << 20, input: None },
        &store,
    );
}

#[test]
fn a_writer_goes_on_while_another_keeps_its_buffers() {
    // More partitions than the memory has buffers for, with two writers.
    let words: Vec<Vec<u8>> = (0..400).map(|n| format!("{n:04}\n").into_bytes()).collect();
    let all = words.concat();
    let (divided, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let wait = |what: &AtomicBool| {
        while !what.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    // The first has begun every partition when it pulls again, and then stands still until the other has come to its end.
    let first = lines(vec![all.clone()], |left| {
        if left == 0 {
            divided.store(true, Ordering::Relaxed);
            wait(&done);
        }
    });
    let second = lines(vec![all.clone(); 3], |left| match left {
        3 => wait(&divided),
        0 => done.store(true, Ordering::Relaxed),
        _ => {}
    });
    with_external(16 << 20, |external, store| {
        let splitters = Splitters::new(words, 400, external.order);
        let (parts, _) = external.distribute(&[&first, &second], &splitters, store, true).unwrap();
        assert_eq!(parts.iter().map(|part| part.records).sum::<u64>(), 1600);
    });
}

#[test]
fn partitions_of_short_lines_fit_into_memory_beside_those_of_long_ones() {
    let mut state = 1u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    // As many bytes of lines of 3 to 5 bytes as of lines of a thousand, which begin with what sorts behind.
    let mut buffers = Vec::new();
    for n in 0..24 {
        let mut bytes = Vec::new();
        while bytes.len() < 1 << 20 {
            let (len, low) = if n % 2 == 0 { (2 + random(3), b'a') } else { (999, b'n') };
            bytes.extend((0..len).map(|_| low + random(13) as u8));
            bytes.push(b'\n');
        }
        buffers.push(bytes);
    }
    let count = |bytes: &Vec<u8>| bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
    let all = (buffers.iter().map(count).sum::<u64>(), buffers.iter().map(|b| b.len() as u64).sum::<u64>());
    let sample: Vec<Vec<u8>> = buffers
        .iter()
        .flat_map(|bytes| bytes.split_inclusive(|&byte| byte == b'\n').step_by(97).map(<[u8]>::to_vec))
        .collect();
    with_external(16 << 20, |external, store| {
        let wanted = external.partitions(cost(all.1, all.1 / 50), external.fanout(1));
        let splitters = Splitters::new(sample, wanted, external.order);
        let (parts, _) = external.distribute(&[&lines(buffers, |_| {})], &splitters, store, true).unwrap();
        let parts = external.divide_large(parts, store).unwrap();
        let sum = parts.iter().fold((0, 0), |sum, part| (sum.0 + part.records, sum.1 + part.bytes));
        assert_eq!(sum, all);
        for part in &parts {
            let fits = cost(part.bytes, part.records) <= external.usable();
            assert!(fits || part.equal, "{} bytes, {} records", part.bytes, part.records);
        }
    });
}
