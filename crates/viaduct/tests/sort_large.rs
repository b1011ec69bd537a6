//! `viaduct sort` of much more than its memory holds: it comes to its end, and the bound is kept.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use viaduct_kit::effort::{self, scaled};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;

use crate::sort_faults::said;

fn watch() -> Watchdog {
    Watchdog::arm(scaled(Duration::from_secs(300)), "a sort of much")
}

fn sort(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    command.arg("sort").args(args).current_dir(folder).stdin(Stdio::null());
    command
}

/// The most memory that a sort had, in bytes. It has to succeed.
#[allow(clippy::zombie_processes, reason = "wait4 waits for it, and tells the peak")]
fn peak(mut command: Command) -> u64 {
    let child = command.spawn().unwrap();
    let mut status = 0;
    // SAFETY: zero is a value of every field.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both places are valid for writing; the child is this process's, and nothing else waits for it.
    let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    assert_eq!((waited, status), (child.id() as i32, 0));
    usage.ru_maxrss as u64 * 1024
}

#[test]
fn nodes_with_more_partitions_than_buffers_come_to_an_end() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-many");
    let count = effort::rounds(300_000, 6_000_000).to_string();
    let made = sort(folder.path(), &["gen", &count, "-c", "-o", "in"]).output().unwrap();
    let done = sort(folder.path(), &["--nodes", "3", "--memory", "16M", "in", "-o", "out"]).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    let check = sort(folder.path(), &["check", "out"]).output().unwrap();
    assert!(check.status.success() && said(&check).contains(said(&made).trim()), "{}", said(&check));
}

#[test]
fn the_bound_of_memory_holds_for_records() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-records");
    let megabytes = effort::rounds(200, 1000);
    let made = sort(folder.path(), &["gen", &(megabytes * 10_000).to_string(), "-s", "-o", "in"]).status();
    assert!(made.unwrap().success());
    assert!(sort(folder.path(), &["gen", "2", "-o", "few"]).status().unwrap().success());
    let program = peak(sort(folder.path(), &["few", "-o", "out"]));
    for direct in ["off", "on"] {
        let all = peak(sort(folder.path(), &["--memory", "64M", "--direct", direct, "in", "-o", "out"]));
        let used = all.saturating_sub(program);
        assert!(
            used <= 64 << 20,
            "{direct}: {} MB beside the {} MB of the program",
            used >> 20,
            program >> 20
        );
        let check = sort(folder.path(), &["check", "out"]).output().unwrap();
        assert!(check.status.success(), "{direct}: {}", said(&check));
        assert_eq!(std::fs::metadata(folder.join("out")).unwrap().len(), megabytes * 1_000_000);
    }
}

#[test]
fn the_bound_of_memory_holds_for_a_pipe() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-piped");
    let mut random = 1u64;
    let mut letter = || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        b'a' + (random >> 33) as u8 % 26
    };
    // What is read first says nothing of the many that follow, which are one partition: as large as memory allows.
    let mut file = std::io::BufWriter::new(std::fs::File::create(folder.join("in")).unwrap());
    for n in 0..76 << 10 {
        let mut line: Vec<u8> = (0..1023).map(|_| letter()).collect();
        if n >= 40 << 10 {
            line[..4].copy_from_slice(b"ffff");
        }
        line.push(b'\n');
        file.write_all(&line).unwrap();
    }
    file.into_inner().unwrap();
    let piped = |name: &str, args: &[&str]| {
        let mut cat = Command::new("cat").arg(folder.join(name)).stdout(Stdio::piped()).spawn().unwrap();
        let mut command = sort(folder.path(), args);
        command.stdin(cat.stdout.take().unwrap());
        let peak = peak(command);
        assert!(cat.wait().unwrap().success());
        peak
    };
    std::fs::write(folder.join("few"), "b\na\n").unwrap();
    let program = piped("few", &["--lines", "-o", "out"]);
    let all = piped("in", &["--lines", "--memory", "64M", "--parallel", "1", "-o", "out"]);
    let used = all.saturating_sub(program);
    assert!(used <= 64 << 20, "{} MB beside the {} MB of the program", used >> 20, program >> 20);
    let ordered = sort(folder.path(), &["--lines", "-C", "out"]).status().unwrap();
    assert!(ordered.success());
    assert_eq!(std::fs::metadata(folder.join("out")).unwrap().len(), (76 << 10) * 1024);
}

#[test]
fn the_bound_of_memory_holds_for_lines_of_very_different_lengths() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-bound");
    let mut random = 1u64;
    let mut letter = |low: u8| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        low + (random >> 33) as u8 % 13
    };
    // As many bytes of lines of three letters as of lines of a thousand, which all sort behind them.
    let mut file = std::io::BufWriter::new(std::fs::File::create(folder.join("in")).unwrap());
    for _ in 0..40 << 10 {
        let mut bytes: Vec<u8> =
            (0..256).flat_map(|_| [letter(b'a'), letter(b'a'), letter(b'a'), b'\n']).collect();
        bytes.extend((0..1023).map(|_| letter(b'n')));
        bytes.push(b'\n');
        file.write_all(&bytes).unwrap();
    }
    file.into_inner().unwrap().sync_data().unwrap();
    std::fs::write(folder.join("few"), "b\na\n").unwrap();
    let program = peak(sort(folder.path(), &["--lines", "few", "-o", "out"]));
    let all =
        peak(sort(folder.path(), &["--lines", "--memory", "64M", "--parallel", "2", "in", "-o", "out"]));
    let used = all.saturating_sub(program);
    assert!(used <= 64 << 20, "{} MB beside the {} MB of the program", used >> 20, program >> 20);
    let ordered = sort(folder.path(), &["--lines", "-C", "out"]).status().unwrap();
    assert!(ordered.success());
    assert_eq!(std::fs::metadata(folder.join("out")).unwrap().len(), (40 << 10) * 2048);
}
