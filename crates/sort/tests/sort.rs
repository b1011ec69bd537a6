//! The sort against independent answers: a plain comparison sort in binary mode, `LC_ALL=C sort` in line mode.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use viaduct_kit::effort;
use viaduct_kit::packages::need_program;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_sort::check::{Check, Checked};
use viaduct_sort::cluster::{self, Links, Node};
use viaduct_sort::generate::{Generator, Style};
use viaduct_sort::{Direct, Input, KeyRange, Progress, Records, Report, Settings, Target, TextKey};

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

fn sort(input: &Path, output: &Path, settings: &Settings) -> Report {
    let input = vec![Input::Path(input.to_owned())];
    viaduct_sort::sort(input, Target::Path(output.to_owned()), settings, &Progress::default()).unwrap()
}

/// The start of a test's random numbers: always the same in a quick run, another in each long one.
fn seed(quick: u64) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = effort::rounds(quick, now.as_nanos() as u64);
    println!("seed {seed}");
    seed
}

fn watch() -> Watchdog {
    Watchdog::arm(effort::scaled(Duration::from_secs(300)), "a sort")
}

#[test]
fn records_of_the_benchmark_are_sorted_in_one_pass_and_in_two() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-passes");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    for generator in [Generator::new(Style::Binary), Generator::skewed(Style::Ascii)] {
        let sum = generator.to_file(0, 220_000, &from, 2).unwrap();
        for (memory, passes) in [(None, 1), (Some(16 << 20), 2)] {
            for direct in [Direct::Off, Direct::On] {
                let settings = Settings { memory, direct, threads: 2, ..Settings::default() };
                let report = sort(&from, &to, &settings);
                assert_eq!((report.passes, report.records, report.records_out), (passes, 220_000, 220_000));
                assert_eq!(report.checksum.as_deref(), Some(&*format!("{sum:x}")));
                let check = Check::default().files(std::slice::from_ref(&to)).unwrap();
                assert_eq!(
                    (check.verdict(), check.records, check.checksum),
                    (Checked::Ordered, 220_000, sum)
                );
                let edges = &report.nodes[0].edges;
                assert!(edges.iter().all(|edge| edge.records == 220_000), "{edges:?}");
                let spill = edges.iter().find(|edge| edge.name == "spill");
                assert_eq!(spill.is_some(), passes == 2);
                if let Some(spill) = spill {
                    assert!(spill.work > 0.0 && spill.data_stall > 0.0, "{spill:?}");
                }
            }
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left behind");
}

#[test]
fn any_records_and_keys_come_out_like_from_a_plain_sort() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-fixed");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let mut random = Random(seed(42));
    for round in 0..effort::rounds(60, 240) as usize {
        let size = [1, 3, 10, 16, 64, 100, 257, 5000][random.below(8) as usize];
        let count = [0, 1, 2, 100, 3000, 20_000][random.below(6) as usize].min(4_000_000 / size);
        let letters = [2, 4, 256][random.below(3) as usize];
        let bytes: Vec<u8> = (0..size * count).map(|_| random.below(letters) as u8).collect();
        std::fs::write(&from, &bytes).unwrap();
        let mut field = || {
            let offset = random.below(size as u64) as usize;
            let len = 1 + random.below((size - offset) as u64) as usize;
            KeyRange { offset, len, descending: random.below(2) == 0 }
        };
        let keys = vec![field(), field()];
        let stable = round % 2 == 0;
        let mut expected: Vec<&[u8]> = bytes.chunks(size).collect();
        expected.sort_by(|a, b| {
            let key = |key: &KeyRange| {
                let range = key.offset..key.offset + key.len;
                let order = a[range.clone()].cmp(&b[range]);
                if key.descending { order.reverse() } else { order }
            };
            let order = key(&keys[0]).then_with(|| key(&keys[1]));
            if stable { order } else { order.then_with(|| a.cmp(b)) }
        });
        let records = Records::Fixed { size, keys: keys.clone() };
        // Every third round in two passes, with partitions that are divided again.
        let partition = (round % 3 == 2).then(|| 1 << (9 + random.below(12)));
        // Of more equal records than a partition holds, only the first stays: the order is that of the keys alone then.
        let unique = stable && round % 4 == 0;
        if unique {
            expected.dedup_by(|a, b| {
                keys.iter().all(|key| {
                    let range = key.offset..key.offset + key.len;
                    a[range.clone()] == b[range]
                })
            });
        }
        let settings =
            Settings { records, stable, unique, partition, threads: 1 + round % 4, ..Settings::default() };
        let settings = Settings { one_bucket: round % 5 == 3, ..settings };
        let report = sort(&from, &to, &settings);
        assert!(
            std::fs::read(&to).unwrap() == expected.concat(),
            "round {round}: {count} of {size}, {keys:?}, {settings:?}"
        );
        assert_eq!(report.passes, if partition.is_some() { 2 } else { 1 });
    }
}

#[test]
fn equal_keys_keep_their_order_in_two_passes_and_fill_no_memory() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-equal");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    // All keys equal, then three values: partitions of equal records larger than the memory.
    for values in [1u32, 3] {
        let bytes: Vec<u8> = (0..200_000u32)
            .flat_map(|n| {
                let mut record = [0u8; 100];
                record[0] = (n.wrapping_mul(2654435761) >> 16) as u8 % values as u8;
                record[96..].copy_from_slice(&n.to_be_bytes());
                record
            })
            .collect();
        std::fs::write(&from, &bytes).unwrap();
        let mut expected: Vec<&[u8]> = bytes.chunks(100).collect();
        expected.sort_by_key(|record| record[0]);
        for stable in [true, false] {
            // Numbers grow with the input, so both orders are the same.
            let settings = Settings { memory: Some(16 << 20), stable, threads: 2, ..Settings::default() };
            let report = sort(&from, &to, &settings);
            assert_eq!(report.passes, 2);
            assert!(std::fs::read(&to).unwrap() == expected.concat(), "{values} values, stable {stable}");
        }
        // Of each value the first record of the input.
        let settings = Settings { memory: Some(16 << 20), unique: true, threads: 2, ..Settings::default() };
        let keys = vec![KeyRange { offset: 0, len: 1, descending: false }];
        let settings = Settings { records: Records::Fixed { size: 100, keys }, ..settings };
        let report = sort(&from, &to, &settings);
        assert_eq!((report.passes, report.records, report.records_out), (2, 200_000, u64::from(values)));
        expected.dedup_by_key(|record| record[0]);
        assert!(std::fs::read(&to).unwrap() == expected.concat(), "{values} values, unique");
    }
}

/// Text with fields, numbers, blanks, empty lines, long common beginnings and a few long lines.
fn text(random: &mut Random, lines: usize, mark: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..lines {
        match random.below(12) {
            0 => {}
            1 => bytes.extend(format!("{}", random.below(2000) as i64 - 1000).into_bytes()),
            2 => bytes.extend(format!(" {}.{}:x", random.below(50), random.below(1000)).into_bytes()),
            3 => bytes.extend(format!("http://www.example.org/path/{}", random.below(300)).into_bytes()),
            4 => bytes.extend((0..random.below(2000)).map(|n| b'a' + (n % 3) as u8)),
            6 => bytes.extend(format!("dos {}\r", random.below(40)).into_bytes()),
            // Not 128: GNU sort up to 9.1 at least takes that byte for a mark between the digits of a number, also where the locale
            // has none.
            5 => bytes.extend(
                (0..random.below(30)).map(|_| random.below(256) as u8).filter(|&b| b != mark && b != 128),
            ),
            _ => {
                let word = |random: &mut Random| {
                    (0..random.below(6)).map(|_| b"ab01:. \t-"[random.below(9) as usize]).collect::<Vec<_>>()
                };
                for _ in 0..random.below(4) {
                    bytes.extend(word(random));
                    bytes.push(b' ');
                }
            }
        }
        bytes.push(mark);
    }
    // Often the last line has no end.
    if random.below(2) == 0 {
        bytes.pop();
    }
    bytes
}

fn gnu(path: &Path, words: &[&str]) -> Vec<u8> {
    let mut command = Command::new("sort");
    let output = command.args(words).arg(path).env("LC_ALL", "C").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn lines_come_out_like_from_gnu_sort() {
    if need_program("sort", "coreutils").is_none() {
        return;
    }
    let _watchdog = watch();
    let folder = TempDir::new("sort-lines");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let mut random = Random(seed(7));
    let key = |first: usize, last: Option<usize>, numeric: bool, reverse: bool| TextKey {
        first_field: first - 1,
        last_field: last.map(|last| last - 1),
        ..TextKey::whole(numeric, reverse)
    };
    for round in 0..effort::rounds(40, 160) as usize {
        let mark = if round % 5 == 4 { 0 } else { b'\n' };
        let lines = [0, 1, 5, 500, 20_000][random.below(5) as usize];
        std::fs::write(&from, text(&mut random, lines, mark)).unwrap();
        let (stable, unique, reverse) = (random.below(2) == 0, random.below(3) == 0, random.below(3) == 0);
        let (keys, words): (Vec<TextKey>, Vec<&str>) = match random.below(6) {
            0 | 1 => (vec![], vec![]),
            2 => (vec![TextKey::whole(true, reverse)], vec!["-n"]),
            3 => (vec![key(2, Some(2), false, reverse)], vec!["-k2,2"]),
            4 => (vec![key(2, None, true, false), key(1, Some(1), false, true)], vec!["-k2n", "-k1,1r"]),
            _ => (vec![key(1, Some(2), true, true)], vec!["-k1,2nr"]),
        };
        let tab = (random.below(2) == 0).then_some(b':');
        let mut words = words;
        for (on, word) in
            [(stable, "-s"), (unique, "-u"), (reverse, "-r"), (mark == 0, "-z"), (tab.is_some(), "-t:")]
        {
            if on {
                words.push(word);
            }
        }
        let records = Records::Text { mark, keys, tab, reverse };
        let threads = 1 + round % 4;
        let partition = (round % 3 == 2).then(|| 1 << (9 + random.below(12)));
        let settings = Settings { records, stable, unique, threads, partition, ..Settings::default() };
        let report = sort(&from, &to, &settings);
        let expected = gnu(&from, &words);
        assert!(std::fs::read(&to).unwrap() == expected, "round {round}: {lines} lines, {words:?}");
        assert_eq!(report.bytes_out, expected.len() as u64);
        // From a stream into a stream.
        let piped = folder.path().join("piped");
        let stream = Cursor::new(std::fs::read(&from).unwrap());
        let input = Input::Stream(PathBuf::from("stream"), Box::new(stream));
        let target = Target::Stream(piped.clone(), Box::new(std::fs::File::create(&piped).unwrap()));
        viaduct_sort::sort(vec![input], target, &settings, &Progress::default()).unwrap();
        assert!(std::fs::read(&piped).unwrap() == expected, "round {round} by streams: {words:?}");
    }
}

#[test]
fn lines_larger_than_memory_come_out_like_from_gnu_sort() {
    if need_program("sort", "coreutils").is_none() {
        return;
    }
    let _watchdog = watch();
    let folder = TempDir::new("sort-large");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let mut bytes = text(&mut Random(3), 200_000, b'\n');
    bytes.push(b'\n');
    // One line that no buffer and no block holds.
    bytes.extend(vec![b'm'; 3 << 20]);
    bytes.push(b'\n');
    bytes.extend(text(&mut Random(4), 10_000, b'\n'));
    std::fs::write(&from, &bytes).unwrap();
    for (unique, words) in [(false, &[][..]), (true, &["-u"])] {
        let records = Records::Text { mark: b'\n', keys: vec![], tab: None, reverse: false };
        let settings =
            Settings { records, unique, memory: Some(16 << 20), threads: 2, ..Settings::default() };
        let report = sort(&from, &to, &settings);
        assert_eq!(report.passes, 2);
        let expected = gnu(&from, words);
        assert!(std::fs::read(&to).unwrap() == expected, "{words:?}");
        let input = Input::Stream(PathBuf::from("stream"), Box::new(std::fs::File::open(&from).unwrap()));
        let target = Target::Path(to.clone());
        let report = viaduct_sort::sort(vec![input], target, &settings, &Progress::default()).unwrap();
        assert_eq!(report.passes, 2);
        assert!(std::fs::read(&to).unwrap() == expected, "stream {words:?}");
    }
}

#[test]
fn sorted_inputs_merge_like_those_of_gnu_sort() {
    if need_program("sort", "coreutils").is_none() {
        return;
    }
    let _watchdog = watch();
    let folder = TempDir::new("sort-merge");
    let to = folder.path().join("to");
    let mut random = Random(11);
    for round in 0..12 {
        let mut words = vec!["-m"];
        let (unique, numeric) = (round % 2 == 1, round % 3 == 1);
        words.extend(unique.then_some("-u"));
        words.extend(numeric.then_some("-n"));
        let keys = if numeric { vec![TextKey::whole(true, false)] } else { vec![] };
        let records = Records::Text { mark: b'\n', keys, tab: None, reverse: false };
        let settings =
            Settings { records, unique, merge: true, memory: Some(16 << 20), ..Settings::default() };
        let parts: Vec<PathBuf> = (0..1 + round % 5)
            .map(|n| {
                let (raw, part) = (folder.path().join("raw"), folder.path().join(format!("part{n}")));
                let lines = [0, 3, 4000][random.below(3) as usize];
                let mut bytes = text(&mut random, lines, b'\n');
                if round == 5 {
                    bytes.extend(vec![b'q'; 2 << 20]);
                }
                std::fs::write(&raw, bytes).unwrap();
                std::fs::write(&part, gnu(&raw, &words[1..])).unwrap();
                part
            })
            .collect();
        let inputs = parts.iter().cloned().map(Input::Path).collect();
        let report =
            viaduct_sort::sort(inputs, Target::Path(to.clone()), &settings, &Progress::default()).unwrap();
        let names: Vec<&str> =
            words.iter().copied().chain(parts.iter().map(|p| p.to_str().unwrap())).collect();
        let (last, words) = names.split_last().unwrap();
        assert!(std::fs::read(&to).unwrap() == gnu(Path::new(last), words), "round {round}");
        assert_eq!(report.nodes[0].edges.len(), parts.len() + 1);
    }
    let (bad, good) = (folder.path().join("bad"), folder.path().join("good"));
    std::fs::write(&bad, "b\na\n").unwrap();
    std::fs::write(&good, "a\nb\n").unwrap();
    std::fs::remove_file(&to).unwrap();
    let records = Records::Text { mark: b'\n', keys: vec![], tab: None, reverse: false };
    let settings = Settings { records, merge: true, ..Settings::default() };
    let inputs = vec![Input::Path(good), Input::Path(bad)];
    let error = viaduct_sort::sort(inputs, Target::Path(to.clone()), &settings, &Progress::default());
    assert!(error.unwrap_err().to_string().contains("not in order at `a`"));
    assert!(!to.exists());
}

#[test]
fn a_sort_that_is_stopped_while_threads_wait_for_their_turn_ends() {
    struct Stopper(std::sync::Arc<Progress>);

    impl std::io::Write for Stopper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.stop();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let _watchdog = watch();
    let folder = TempDir::new("sort-stop");
    let from = folder.path().join("from");
    Generator::new(Style::Binary).to_file(0, 220_000, &from, 2).unwrap();
    for memory in [None, Some(16 << 20)] {
        let progress = std::sync::Arc::new(Progress::default());
        let target = Target::Stream("nowhere".into(), Box::new(Stopper(progress.clone())));
        let settings = Settings { memory, threads: 3, ..Settings::default() };
        let error =
            viaduct_sort::sort(vec![Input::Path(from.clone())], target, &settings, &progress).unwrap_err();
        assert!(error.is_stopped(), "{error}");
    }
}

#[test]
fn the_overhead_of_a_node_has_what_went_before_it() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-overhead");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    Generator::new(Style::Binary).to_file(0, 1000, &from, 1).unwrap();
    let mut job = viaduct_job::Job::join(&|_| None).unwrap();
    let links = Links::Tcp(job.token().unwrap());
    let [since, joined, opened] = [100, 20, 3].map(Duration::from_secs);
    let transport = "tcp".to_owned();
    let node = Node { job: &mut job, links, transport, window: None, since, joined, opened };
    let (settings, progress) = (Settings::default(), Progress::default());
    let report = cluster::sort(node, &[from], &to, &settings, &progress).unwrap().expect("that of node 0");
    let (overhead, phases) = (report.nodes[0].overhead, report.nodes[0].phases);
    assert!(overhead.launch >= 100.0 && overhead.barrier >= 20.0 && overhead.connect >= 3.0, "{overhead:?}");
    assert!(phases.overhead >= 123.0 && report.seconds >= phases.overhead, "{phases:?}");
    let named = overhead.launch + overhead.barrier + overhead.connect + overhead.memory + overhead.sample;
    assert!((0.8..1.01).contains(&(named / phases.overhead)), "{overhead:?}");
}

#[test]
fn lines_that_are_shorter_than_a_sample_says_take_two_passes() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-misled");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    // Long lines at the sixteen places that are looked at, and short ones all between.
    let (len, piece) = (12 << 20, 64 << 10);
    let mut bytes = Vec::with_capacity(len);
    let mut random = Random(5);
    while bytes.len() < len {
        let line = if bytes.len() % (len / 16) < piece { 1024 } else { 4 };
        bytes.extend((1..line).map(|_| b'a' + random.below(26) as u8));
        bytes.push(b'\n');
    }
    std::fs::write(&from, &bytes).unwrap();
    let records = Records::Text { mark: b'\n', keys: vec![], tab: None, reverse: false };
    let sorted = |memory: u64| {
        let settings =
            Settings { records: records.clone(), memory: Some(memory), threads: 1, ..Settings::default() };
        (sort(&from, &to, &settings), std::fs::read(&to).unwrap())
    };
    let (large, expected) = sorted(1 << 30);
    let (small, got) = sorted(32 << 20);
    assert_eq!((large.passes, small.passes), (1, 2));
    assert!(got == expected && got.len() == bytes.len());
    assert_eq!((small.records, small.records_out), (large.records, large.records));
}
