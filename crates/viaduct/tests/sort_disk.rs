//! A disk that fails, or gives wrong bits back, while `viaduct sort` reads, spills and writes: a cause, and no half of an output.

use std::process::{Command, Stdio};
use std::time::Duration;

use viaduct_kit::cc::compile_c;
use viaduct_kit::effort::scaled;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;

use crate::launching::signal;
use crate::sort_faults::{names, said};

const VIADUCT: &str = env!("CARGO_BIN_EXE_viaduct");

fn watch() -> Watchdog {
    Watchdog::arm(scaled(Duration::from_secs(120)), "a sort on a broken disk")
}

/// A disk that fails in the middle of a file, under a whole program: reads (`pread`) or writes (`pwrite`) of files with this in
/// their name that reach beyond an offset end with EIO, or waits for the disk (`fsync`); or reads give a wrong bit (`flip`), or
/// find the end of the file (`short`), of which more is told than there is (`longer`). With `stuck` writes do not end, and no file can be without a name.
const BROKEN_DISK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int breaks(const char *call, int fd, size_t len, off64_t offset)
{
    const char *wanted = getenv("BROKEN_CALL"), *name = getenv("BROKEN_NAME"), *from = getenv("BROKEN_FROM");
    char link[64], path[4096];
    if (!wanted || !name || !from || strcmp(call, wanted))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t got = readlink(link, path, sizeof path - 1);
    if (got < 0)
        return 0;
    path[got] = 0;
    return strstr(path, name) && offset + (off64_t)len > atoll(from);
}

int open64(const char *path, int flags, ...)
{
    static int (*next)(const char *, int, ...);
    if (!next)
        next = dlsym(RTLD_NEXT, "open64");
    const char *wanted = getenv("BROKEN_CALL");
    if ((flags & O_TMPFILE) == O_TMPFILE && wanted && !strcmp(wanted, "stuck"))
        return errno = EOPNOTSUPP, -1;
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return next(path, flags, mode);
}

int statx(int fd, const char *path, int flags, unsigned mask, struct statx *told)
{
    static int (*next)(int, const char *, int, unsigned, struct statx *);
    if (!next)
        next = dlsym(RTLD_NEXT, "statx");
    int failed = next(fd, path, flags, mask, told);
    if (!failed && (flags & AT_EMPTY_PATH) && breaks("longer", fd, told->stx_size, 0))
        told->stx_size += 3000000;
    return failed;
}

int fsync(int fd)
{
    static int (*next)(int);
    if (!next)
        next = dlsym(RTLD_NEXT, "fsync");
    return breaks("fsync", fd, 1, 0) ? errno = EIO, -1 : next(fd);
}

int fdatasync(int fd)
{
    return fsync(fd);
}

ssize_t pread64(int fd, void *into, size_t len, off64_t offset)
{
    static ssize_t (*next)(int, void *, size_t, off64_t);
    if (!next)
        next = dlsym(RTLD_NEXT, "pread64");
    if (breaks("pread", fd, len, offset))
        return errno = EIO, -1;
    if (breaks("short", fd, len, offset))
        return 0;
    ssize_t got = next(fd, into, len, offset);
    if (got > 0 && breaks("flip", fd, len, offset))
        ((char *)into)[got / 2] ^= 1;
    return got;
}

ssize_t pwrite64(int fd, const void *from, size_t len, off64_t offset)
{
    static ssize_t (*next)(int, const void *, size_t, off64_t);
    if (!next)
        next = dlsym(RTLD_NEXT, "pwrite64");
    if (breaks("pwrite", fd, len, offset))
        return errno = EIO, -1;
    while (breaks("stuck", fd, len, offset))
        pause();
    return next(fd, from, len, offset);
}
"#;

/// The call that fails, part of the file's name, from which offset on, and the name that is told.
type Fault = (&'static str, &'static str, &'static str, &'static str);

#[test]
fn a_disk_that_fails_in_the_middle_of_a_file_is_named() {
    let Some(disk) = compile_c(BROKEN_DISK, &["-shared", "-fPIC", "-ldl"]) else { return };
    let _watchdog = watch();
    let folder = TempDir::new("sort-disk");
    let made = Command::new(VIADUCT)
        .args(["sort", "gen", "200K", "-a", "-o", "in"])
        .current_dir(folder.path())
        .status();
    assert!(made.unwrap().success());
    // Half of the input; the output, which has no name yet; what was spilled.
    let (input, hidden) = (("pread", "/in", "10000000", "in"), "/#");
    let cases: [(&[&str], Fault); 11] = [
        (&["in", "-o", "out"], input),
        (&["in", "-o", "out", "--checksum", "off", "--parallel", "1"], input),
        (&["in", "-o", "out", "--lines"], input),
        (&["in", "-o", "out", "--memory", "16M"], input),
        (&["in", "-o", "out", "--lines", "--memory", "16M"], input),
        (&["in", "-o", "out", "--nodes", "2"], input),
        (&["in", "-o", "out"], ("pwrite", hidden, "10000000", "out")),
        (&["in", "-o", "out", "--memory", "16M"], ("pread", hidden, "5000000", "")),
        (&["in", "-o", "out", "--nodes", "2"], ("pwrite", hidden, "10000000", "out")),
        (&["in", "-o", "out", "--fsync"], ("fsync", hidden, "0", "out")),
        (&["in", "-o", "out", "--fsync", "--nodes", "2"], ("fsync", hidden, "0", "out")),
    ];
    for (args, (call, name, from, told)) in cases {
        let mut command = Command::new(VIADUCT);
        command.arg("sort").args(args).current_dir(folder.path()).stdin(Stdio::null());
        command.env("LD_PRELOAD", disk.path()).env("BROKEN_CALL", call);
        command.env("BROKEN_NAME", name).env("BROKEN_FROM", from);
        let output = command.output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}, {call}: {said}");
        assert!(said.contains("Input/output error") && said.contains(told), "{args:?}, {call}: {said}");
        assert!(call != "pread" || said.contains("reading"), "{args:?}, {call}: {said}");
        assert_eq!(names(folder.path()), ["in"], "{args:?}, {call}");
    }
    // With the disk in order, and without waiting for it where that was not asked for.
    for (args, call) in [(&["--fsync"][..], "none"), (&["--fsync", "--nodes", "2"], "none"), (&[], "fsync")] {
        let mut command = Command::new(VIADUCT);
        command.args(["sort", "in", "-o", "out"]).args(args).current_dir(folder.path()).stdin(Stdio::null());
        command.env("LD_PRELOAD", disk.path()).env("BROKEN_CALL", call);
        let output = command.env("BROKEN_NAME", hidden).env("BROKEN_FROM", "0").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", said(&output));
        assert_eq!(std::fs::metadata(folder.join("out")).unwrap().len(), 20_000_000);
    }
}

#[test]
fn an_input_that_becomes_shorter_while_it_is_sorted_is_named() {
    let Some(disk) = compile_c(BROKEN_DISK, &["-shared", "-fPIC", "-ldl"]) else { return };
    let _watchdog = watch();
    let folder = TempDir::new("sort-short");
    let made = Command::new(VIADUCT)
        .args(["sort", "gen", "200K", "-a", "-o", "in"])
        .current_dir(folder.path())
        .status();
    assert!(made.unwrap().success());
    // Reads through io_uring are no calls: there the file says that it is longer than it is.
    let direct = ["--direct", "on", "--parallel", "3"];
    let cases: [(&[&str], &str); 5] = [
        (&[], "short"),
        (&["--memory", "16M"], "short"),
        (&["--lines"], "short"),
        (&["--nodes", "2"], "short"),
        (&direct, "longer"),
    ];
    for (more, call) in cases {
        let mut command = Command::new(VIADUCT);
        command.args(["sort", "in", "-o", "out"]).args(more).current_dir(folder.path());
        command.env("LD_PRELOAD", disk.path()).env("BROKEN_CALL", call).stdin(Stdio::null());
        let output = command.env("BROKEN_NAME", "/in").env("BROKEN_FROM", "10000000").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", said(&output));
        assert!(
            said(&output).contains("shorter") && said(&output).contains("in"),
            "{more:?}: {}",
            said(&output)
        );
        assert_eq!(names(folder.path()), ["in"], "{more:?}");
    }
}

#[test]
fn an_interrupted_generator_leaves_no_hidden_name() {
    let Some(disk) = compile_c(BROKEN_DISK, &["-shared", "-fPIC", "-ldl"]) else { return };
    let _watchdog = watch();
    for (name, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let folder = TempDir::new("sort-gen-stuck");
        let mut command = Command::new(VIADUCT);
        command.args(["sort", "gen", "200K", "-o", "records"]).current_dir(folder.path());
        command.env("LD_PRELOAD", disk.path()).env("BROKEN_CALL", "stuck");
        command.env("BROKEN_NAME", "/.records").env("BROKEN_FROM", "0");
        let mut child = command.stdin(Stdio::null()).spawn().unwrap();
        while names(folder.path()).is_empty() {
            assert_eq!(child.try_wait().unwrap(), None);
            std::thread::sleep(Duration::from_millis(5));
        }
        signal(child.id(), name);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
    }
}

/// What the checksum is there for: a disk that gives back something else than it was given, and says nothing.
#[test]
fn a_disk_that_gives_wrong_bits_back_is_found_out() {
    let Some(disk) = compile_c(BROKEN_DISK, &["-shared", "-fPIC", "-ldl"]) else { return };
    let _watchdog = watch();
    let folder = TempDir::new("sort-flip");
    let made =
        Command::new(VIADUCT).args(["sort", "gen", "200K", "-o", "in"]).current_dir(folder.path()).status();
    assert!(made.unwrap().success());
    let sort = |more: &[&str], call: &str| {
        let mut command = Command::new(VIADUCT);
        command.args(["sort", "in", "-o", "out", "--memory", "16M"]).args(more).current_dir(folder.path());
        command.env("LD_PRELOAD", disk.path()).env("BROKEN_CALL", call);
        // Spills have no name.
        command.env("BROKEN_NAME", "/#").env("BROKEN_FROM", "5000000").stdin(Stdio::null()).output().unwrap()
    };
    for more in [&[][..], &["--nodes", "2"]] {
        let output = sort(more, "flip");
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", said(&output));
        assert!(said(&output).contains("the proof failed"), "{more:?}: {}", said(&output));
        assert_eq!(names(folder.path()), ["in"], "{more:?}");
    }
    let output = sort(&[], "none");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}
