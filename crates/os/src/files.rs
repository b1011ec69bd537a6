//! What disk-to-disk programs ask of files beyond the standard library: direct I/O, space, residence in the page cache.
//!
//! Direct I/O bypasses the page cache: offset, length and memory must be multiples of [`BLOCK`]. File systems that do
//! not offer it answer EINVAL at open or at the first transfer; callers then use the ordinary descriptor.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::OsError;

/// Alignment that direct I/O asks of offset, length and memory.
pub const BLOCK: usize = 4096;

/// Flag of `open` for a file without a name in the folder that is opened.
pub const O_TMPFILE: i32 = libc::O_TMPFILE;

/// Gives a file that was opened without a name one; fails if the name is taken.
pub fn name_file(file: std::os::fd::RawFd, name: &Path) -> io::Result<()> {
    let own = format!("/proc/self/fd/{file}");
    let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
    Ok(rustix::fs::linkat(rustix::fs::CWD, own, rustix::fs::CWD, name, follow)?)
}

/// Opens an existing file a second time for direct I/O; `None` where the file system does not offer it.
pub fn open_direct(path: &Path, write: bool) -> Option<File> {
    OpenOptions::new().read(!write).write(write).custom_flags(libc::O_DIRECT).open(path).ok()
}

/// Opens what an open descriptor refers to a second time for direct I/O, also if it has no name.
pub fn reopen_direct(file: &File) -> Option<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // SAFETY: a plain call that reads the flags of an open descriptor.
    let mode = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) } & libc::O_ACCMODE;
    let mut options = OpenOptions::new();
    options.read(mode != libc::O_WRONLY).write(mode != libc::O_RDONLY);
    options.custom_flags(libc::O_DIRECT).open(path).ok()
}

/// A file without a name in `folder`, which vanishes with its last descriptor.
pub fn temporary(folder: &Path) -> io::Result<File> {
    let nameless =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(folder);
    match nameless {
        Ok(file) => Ok(file),
        // Not every file system has files without names.
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) =>
        {
            let path = folder.join(format!(".viaduct-{:016x}", crate::random::u64()));
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        }
        Err(error) => Err(error),
    }
}

/// Reserves `len` bytes on disk. File systems without reservation accept silently.
pub fn reserve(file: &File, len: u64) -> Result<(), OsError> {
    if len == 0 {
        return Ok(());
    }
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS | rustix::io::Errno::INVAL) => Ok(()),
        Err(error) => Err(OsError::sys("fallocate", error)),
    }
}

/// Bytes that an ordinary user can still write on the file system that holds `path`.
pub fn free_space(path: &Path) -> Result<u64, OsError> {
    let stat = rustix::fs::statvfs(path).map_err(|error| OsError::sys("statvfs", error))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// How much of a file is in the page cache, from 0 to 1; `None` if the kernel does not say (before Linux 6.5).
pub fn resident(file: &File) -> Option<f64> {
    #[repr(C)]
    struct Range {
        offset: u64,
        len: u64,
    }
    const SYS_CACHESTAT: libc::c_long = 451;
    let len = file.metadata().ok()?.len();
    if len == 0 {
        return Some(1.0);
    }
    let range = Range { offset: 0, len };
    // Pages: cached, dirty, under write-back, evicted, evicted of late.
    let mut pages = [0u64; 5];
    // SAFETY: the kernel reads one range and writes five counters; both live across the call.
    let answer = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &range, pages.as_mut_ptr(), 0) };
    (answer == 0).then(|| (pages[0] as f64 / len.div_ceil(4096) as f64).min(1.0))
}

/// Bytes of memory that programs can still have: of the machine and of the control group, the lesser.
pub fn available_memory() -> u64 {
    memory_of("MemAvailable:")
}

/// Bytes of memory that there are: of the machine and of the control group, the lesser.
pub fn total_memory() -> u64 {
    memory_of("MemTotal:")
}

fn memory_of(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    let machine = kib.map_or(1 << 30, |kib| kib << 10);
    crate::cgroup::memory_limit().map_or(machine, |limit| limit.min(machine))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_temporary_file_holds_bytes_and_has_no_name() {
        let folder = std::env::temp_dir();
        let file = temporary(&folder).unwrap();
        reserve(&file, 8192).unwrap();
        file.write_all_at(b"hello", 100).unwrap();
        let mut back = [0; 5];
        file.read_exact_at(&mut back, 100).unwrap();
        assert_eq!(&back, b"hello");
        assert!(resident(&file).is_none_or(|share| share > 0.0));
        // Some file systems refuse direct I/O; then there is simply none.
        if let Some(direct) = reopen_direct(&file) {
            assert_eq!(direct.metadata().unwrap().len(), 8192);
        }
    }

    #[test]
    fn space_and_memory_are_known() {
        assert!(free_space(&std::env::temp_dir()).unwrap() > 0);
        assert!(available_memory() > 1 << 20);
        assert!(free_space(Path::new("/nonexistent/place")).is_err());
    }
}
