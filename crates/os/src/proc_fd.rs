//! Files of other processes, by their descriptors in `/proc`.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, open};

use crate::error::OsError;

/// Opens what a link such as `/proc/PID/fd/N` points to, to be read, if it is an ordinary file. It is looked at before it is
/// opened: opening a pipe may block, and opening a device may do anything.
pub fn open_file(link: &Path) -> Result<OwnedFd, OsError> {
    let found =
        open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|e| OsError::sys("open", e))?;
    let stat = fstat(&found).map_err(|e| OsError::sys("fstat", e))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(OsError::BadSegment("it is no ordinary file"));
    }
    // The very file that was looked at, whatever the link points to by now.
    let same = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    open(same, flags, Mode::empty()).map_err(|e| OsError::sys("open", e))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn link(fd: &impl AsRawFd) -> PathBuf {
        format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn a_pipe_in_the_place_of_a_file_does_not_block() {
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(matches!(open_file(&link(&reader)), Err(OsError::BadSegment(_))));
        assert!(open_file(Path::new("/dev/null")).is_err());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(open_file(&link(&file)).is_ok());
    }
}
