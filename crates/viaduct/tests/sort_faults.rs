//! What goes wrong with disks and pipes while `viaduct sort` runs: a cause, and no half of an output.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::ptr::null_mut;
use std::time::Duration;

use viaduct_kit::effort::{self, scaled};
use viaduct_kit::packages::{need_program, skip};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;

use crate::launching::signal;

const VIADUCT: &str = env!("CARGO_BIN_EXE_viaduct");

fn watch() -> Watchdog {
    Watchdog::arm(scaled(Duration::from_secs(120)), "a sort that fails")
}

/// What is in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What a program said on standard error.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// An input that gives these records and then an error of the disk: memory of this process, of which the kernel reads no more
/// where the file that is mapped has ended.
fn breaking_off(records: &Path) -> File {
    let file = File::open(records).unwrap();
    let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
    assert!(length > 0 && length.is_multiple_of(4096), "whole pages");
    let (read, private) = (libc::PROT_READ, libc::MAP_PRIVATE);
    // SAFETY: a new mapping at an address that the kernel chooses; it is read by the kernel alone.
    let place = unsafe { libc::mmap(null_mut(), 2 * length, read, private, file.as_raw_fd(), 0) };
    assert_ne!(place, libc::MAP_FAILED);
    let mut memory = File::open("/proc/self/mem").unwrap();
    memory.seek(SeekFrom::Start(place as u64)).unwrap();
    memory
}

/// Runs a script in whose folder `small` a file system of so many MB is mounted, and lists what is there in the end. `None` where
/// that is not allowed.
fn on_a_disk_of(megabytes: u32, folder: &Path, script: &str) -> Option<Output> {
    let unshare = need_program("unshare", "util-linux")?;
    std::fs::create_dir_all(folder.join("small")).unwrap();
    let mount = format!("mount -t tmpfs -o size={megabytes}m none small || exit 77");
    let script = format!("{mount}; {script}; code=$?; ls -A small >&2; exit $code");
    let mut command = Command::new(unshare);
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).current_dir(folder);
    let output = command.stdin(Stdio::null()).output().unwrap();
    if output.status.code() == Some(77) || said(&output).contains("unshare failed") {
        skip("file systems cannot be mounted in a user namespace here");
        return None;
    }
    Some(output)
}

#[test]
fn a_full_disk_is_found_before_and_while_it_is_written() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-full");
    let made =
        Command::new(VIADUCT).args(["sort", "gen", "200K", "-o", "in"]).current_dir(folder.path()).status();
    assert!(made.unwrap().success());
    // Before: the length is known. While: a pipe has none. Temporary files: known, and not.
    let cases = [
        (3, format!("{VIADUCT} sort in -o small/out"), "reserving space for", "small/out"),
        (3, format!("cat in | {VIADUCT} sort --memory 16M --tmp . -o small/out"), "writing", "small/out"),
        (
            3,
            format!("cat in | {VIADUCT} sort --memory 16M --direct on --tmp . -o small/out"),
            "writing",
            "small/out",
        ),
        (3, format!("cat in | {VIADUCT} sort --memory 1G -o small/out"), "reserving space for", "small/out"),
        (3, format!("{VIADUCT} sort in -o out --memory 16M --tmp small"), "temporary space wanted", "--tmp"),
        // Either fits alone.
        (30, format!("{VIADUCT} sort in -o small/out --memory 16M"), "temporary space wanted", "--tmp"),
        // More than is certain to come, and less than comes.
        (12, format!("cat in | {VIADUCT} sort --memory 16M --tmp small -o out"), "writing", "small"),
        (3, format!("{VIADUCT} sort --nodes 2 in -o small/out"), "reserving space for", "small/out"),
        (3, format!("{VIADUCT} sort --nodes 2 in -o small/out.%r"), "reserving space for", "small/out."),
        // There is room for what each of the nodes spills, and none for what both do.
        (12, format!("{VIADUCT} sort --nodes 2 --memory 16M --tmp small in -o out"), "writing", "small"),
        // Two folders of one disk have its room together.
        (
            12,
            format!(
                "mkdir small/a small/b; {VIADUCT} sort in -o out --memory 16M --tmp small/a --tmp small/b; \
                 code=$?; rmdir small/a small/b; (exit $code)"
            ),
            "19 MB of temporary space wanted",
            "--tmp",
        ),
    ];
    for (size, script, what, name) in cases {
        let Some(output) = on_a_disk_of(size, folder.path(), &script) else { return };
        assert_eq!(output.status.code(), Some(2), "{script}: {}", said(&output));
        let text = said(&output);
        assert!(text.contains(what) && text.contains(name), "{script}: {text}");
        // What is on the small disk is listed last: nothing.
        let last = text.lines().last().unwrap();
        assert!(last.contains(what) || last.contains("ending the job"), "{script}: {text}");
        assert_eq!(names(folder.path()), ["in", "small"], "{script}");
    }
}

#[test]
fn a_pipe_needs_no_more_room_than_what_comes() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-room");
    let made =
        Command::new(VIADUCT).args(["sort", "gen", "200K", "-o", "in"]).current_dir(folder.path()).status();
    assert!(made.unwrap().success());
    // Its length is not known: it is taken for many times what was read until memory was full.
    let script = format!(
        "cat in | {VIADUCT} sort --memory 16M --tmp small -o small/out && {VIADUCT} sort check small/out"
    );
    let Some(output) = on_a_disk_of(50, folder.path(), &script) else { return };
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("Records: 200000"), "{}", said(&output));
}

/// Each has much to send that the other does not take any more.
#[test]
fn nodes_that_fail_at_once_in_the_middle_do_not_wait_for_each_other() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-both");
    let made =
        Command::new(VIADUCT).args(["sort", "gen", "1M", "-o", "in"]).current_dir(folder.path()).status();
    assert!(made.unwrap().success());
    for transport in ["shm", "tcp"] {
        // There is room for what each spills alone.
        let script = format!(
            "{VIADUCT} sort --nodes 2 --transport {transport} --memory 16M --direct off --tmp small in -o out"
        );
        let Some(output) = on_a_disk_of(50, folder.path(), &script) else { return };
        assert_eq!(output.status.code(), Some(2), "{transport}: {}", said(&output));
        assert!(said(&output).contains("writing small"), "{transport}: {}", said(&output));
        assert_eq!(names(folder.path()), ["in", "small"], "{transport}");
    }
}

#[test]
fn folders_of_temporary_files_share_what_is_spilled() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-folders");
    std::fs::create_dir(folder.join("large")).unwrap();
    let made =
        Command::new(VIADUCT).args(["sort", "gen", "200K", "-o", "in"]).current_dir(folder.path()).status();
    assert!(made.unwrap().success());
    // Neither alone would do for one: the small one has no room for all of the 20 MB.
    let script = format!(
        "{VIADUCT} sort in -o out --memory 16M --tmp small --tmp large && {VIADUCT} sort check out && ls -A large"
    );
    let Some(output) = on_a_disk_of(14, folder.path(), &script) else { return };
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("Records: 200000"), "{}", said(&output));
    assert!(said(&output).ends_with("SUCCESS - all records are in order\n") && output.stdout.is_empty());
    let script = format!("{VIADUCT} sort in -o out --memory 16M --tmp small");
    let Some(output) = on_a_disk_of(14, folder.path(), &script) else { return };
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

#[test]
fn an_input_that_cannot_be_read_is_named() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-unreadable");
    let mut command = Command::new(VIADUCT);
    command.args(["sort", "--lines", "-o", "out"]).current_dir(folder.path());
    // Reading a folder fails.
    let answer = command.stdin(std::fs::File::open(folder.path()).unwrap()).output().unwrap();
    assert_eq!(answer.status.code(), Some(2));
    assert!(said(&answer).contains("reading standard input: Is a directory"), "{}", said(&answer));
    assert!(names(folder.path()).is_empty());
}

#[test]
fn an_error_in_the_middle_of_an_input_is_named() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-error");
    let records = folder.join("records");
    let made = Command::new(VIADUCT).args(["sort", "gen", "1024", "-o"]).arg(&records).status();
    assert!(made.unwrap().success());
    for options in [&[][..], &["--lines"], &["--memory", "16M", "--direct", "off"], &["--checksum", "off"]] {
        let mut command = Command::new(VIADUCT);
        command.arg("sort").args(options).args(["-o", "out"]).current_dir(folder.path());
        let output = command.stdin(breaking_off(&records)).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains("reading") && said.contains("Input/output error"), "{options:?}: {said}");
        assert_eq!(names(folder.path()), ["records"], "{options:?}");
    }
}

/// The kernel gives no length for files of its own.
#[test]
fn a_file_that_does_not_tell_its_length_is_sorted_whole() {
    let _watchdog = watch();
    let mut lines: Vec<String> =
        std::fs::read_to_string("/proc/self/limits").unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    let output = Command::new(VIADUCT).args(["sort", "--lines", "/proc/self/limits"]).output().unwrap();
    let sorted = String::from_utf8(output.stdout).unwrap();
    assert_eq!(sorted.lines().count(), lines.len());
    assert!(sorted.lines().is_sorted());
}

/// A sort that reads a pipe beyond its memory, and the end to feed it by.
fn spilling(folder: &Path, args: &[&str]) -> (std::process::Child, std::fs::File) {
    assert!(Command::new("mkfifo").arg(folder.join("fifo")).status().unwrap().success());
    let mut command = Command::new(VIADUCT);
    command.args(["sort", "--lines", "fifo", "--memory", "16M"]).args(args).current_dir(folder);
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = std::fs::OpenOptions::new().write(true).open(folder.join("fifo")).unwrap();
    for n in 0..320u32 {
        let line = [b'a' + (n * 7 % 26) as u8; 1 << 16];
        pipe.write_all(&line).unwrap();
        pipe.write_all(b"\n").unwrap();
    }
    (child, pipe)
}

#[test]
fn an_interrupted_sort_leaves_nothing_and_says_so_by_its_status() {
    let _watchdog = watch();
    for (name, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let folder = TempDir::new("sort-interrupt");
        let (child, pipe) = spilling(folder.path(), &["-o", "out"]);
        signal(child.id(), name);
        // The pipe stays open: the sort does not wait for its end.
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert_eq!(names(folder.path()), ["fifo"]);
        drop(pipe);
    }
}

/// While it starts, reads, spills, sorts, writes and gives the output its name: a little later each time, until one is done.
#[test]
fn a_sort_that_is_interrupted_at_any_moment_leaves_nothing_or_all() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-moments");
    let run = |args: &[&str]| {
        let mut command = Command::new(VIADUCT);
        command.arg("sort").args(args).current_dir(folder.path()).stdin(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let count = if effort::full() { "1M" } else { "300K" };
    assert!(run(&["gen", count, "-o", "in"]).wait().unwrap().success());
    assert!(run(&["in", "-o", "out"]).wait().unwrap().success());
    let (input, out) = (folder.join("in"), folder.join("out"));
    let expected = std::fs::read(&out).unwrap();
    std::fs::remove_file(&out).unwrap();
    let (step, part) = (Duration::from_millis(effort::rounds(15, 4)), effort::rounds(6, 24) as u32);
    for memory in ["16M", "1G"] {
        let (mut caught, mut delay) = (0, Duration::ZERO);
        for (round, name) in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].into_iter().cycle().enumerate() {
            let child = run(&["in", "-o", "out", "--memory", memory]);
            std::thread::sleep(delay);
            delay += step + delay / part;
            signal(child.id(), name);
            let output = child.wait_with_output().unwrap();
            let case =
                format!("{memory}, round {round}, signal {name}: {:?}, {}", output.status, said(&output));
            let is_done = output.status.success();
            // A process that does not look for signals yet is ended by the kernel.
            let is_ended = output.status.code() == Some(128 + name) || output.status.signal() == Some(name);
            assert!(is_done || is_ended, "{case}");
            if names(folder.path()) == ["in", "out"] {
                assert!(std::fs::read(&out).unwrap() == expected, "{case}");
                std::fs::remove_file(&out).unwrap();
            } else {
                assert!(!is_done, "{case}");
                assert_eq!(names(folder.path()), ["in"], "{case}");
            }
            if is_done {
                break;
            }
            caught += u32::from(output.status.code().is_some());
        }
        assert!(caught > 0, "not one was caught with {memory}");
    }
    assert_eq!(std::fs::metadata(&input).unwrap().len(), expected.len() as u64);
}

#[test]
fn a_folder_of_temporary_files_that_is_removed_does_no_harm() {
    let _watchdog = watch();
    let folder = TempDir::new("sort-gone");
    std::fs::create_dir(folder.path().join("tmp")).unwrap();
    let (child, pipe) = spilling(folder.path(), &["-o", "out", "--tmp", "tmp"]);
    // The files in it have no names.
    let removed = std::fs::remove_dir(folder.path().join("tmp"));
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    if removed.is_ok() && !output.status.success() {
        // It was gone before the sort needed it.
        assert!(said(&output).contains("tmp"), "{}", said(&output));
        assert_eq!(names(folder.path()), ["fifo"]);
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(std::fs::metadata(folder.path().join("out")).unwrap().len(), 320 * ((1 << 16) + 1));
}
