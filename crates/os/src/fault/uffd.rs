//! The engine that changes page tables only: userfaultfd, whose faults come as SIGBUS to the thread that made them.
//!
//! A closed page has no entry in the page table; its memory stays in the segment. A readable one is write-protected. The
//! descriptor is asked for in the mode that ordinary users may have: faults of the program, not of the kernel on its behalf.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::Protection;
use super::engine::{Engine, EngineKind, Pages};
use crate::error::OsError;
use crate::segment::page_size;

const API: u64 = 0xAA;
const USER_MODE_ONLY: libc::c_int = 1;
const FEATURE_SIGBUS: u64 = 1 << 7;
const FEATURE_MINOR_SHMEM: u64 = 1 << 10;
const FEATURE_WP_SHMEM: u64 = 1 << 12;
const REGISTER_MISSING: u64 = 1;
const REGISTER_WP: u64 = 1 << 1;
const REGISTER_MINOR: u64 = 1 << 2;
const CONTINUE_WP: u64 = 1 << 1;
const PROTECT: u64 = 1;

/// Numbers of ioctl: direction, size, type 0xAA, number.
const IOCTL_API: u64 = 0xC018_AA3F;
const IOCTL_REGISTER: u64 = 0xC020_AA00;
const IOCTL_WRITEPROTECT: u64 = 0xC018_AA06;
const IOCTL_CONTINUE: u64 = 0xC020_AA07;

#[repr(C)]
struct ApiArgument {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct RangeArgument {
    start: u64,
    len: u64,
    mode: u64,
    /// What the kernel answers: allowed calls, or bytes mapped.
    answer: i64,
}

/// A userfaultfd with one mapping registered.
#[derive(Debug)]
pub(super) struct Uffd {
    fd: OwnedFd,
}

impl Uffd {
    /// Opens a descriptor, registers all pages and tries them: they are closed, and the kernel can do what is needed.
    pub(super) fn start(pages: Pages) -> Result<Uffd, OsError> {
        let flags = libc::O_CLOEXEC | USER_MODE_ONLY;
        // SAFETY: the call takes flags and makes a descriptor.
        let raw = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if raw < 0 {
            return Err(OsError::sys("userfaultfd", io::Error::last_os_error()));
        }
        // SAFETY: a descriptor that was just made and belongs to nothing else.
        let uffd = Uffd { fd: unsafe { OwnedFd::from_raw_fd(raw as libc::c_int) } };
        let features = FEATURE_SIGBUS | FEATURE_MINOR_SHMEM | FEATURE_WP_SHMEM;
        let mut api = ApiArgument { api: API, features, ioctls: 0 };
        uffd.ioctl("ioctl(UFFDIO_API)", IOCTL_API, (&raw mut api).cast())?;
        let (start, len) = (pages.at as u64, pages.len as u64);
        let mode = REGISTER_MISSING | REGISTER_WP | REGISTER_MINOR;
        let mut range = RangeArgument { start, len, mode, answer: 0 };
        uffd.ioctl("ioctl(UFFDIO_REGISTER)", IOCTL_REGISTER, (&raw mut range).cast())?;
        uffd.probe(pages)?;
        Ok(uffd)
    }

    /// Maps the first page read-only and closes it again. No feature bit says whether a kernel maps pages write-protected:
    /// those from 5.19 on have all the bits that are asked for, those before 6.4 answer EINVAL at a program's first load.
    fn probe(&self, pages: Pages) -> Result<(), OsError> {
        let first = Pages { len: page_size(), ..pages };
        let tried =
            self.protect(first, Protection::Read).and_then(|()| self.protect(first, Protection::Closed));
        tried.map_err(|error| match error {
            OsError::Sys { source, .. } if source.raw_os_error() == Some(libc::EINVAL) => OsError::sys(
                "ioctl(UFFDIO_CONTINUE) of userfaultfd for a read-only page, which Linux has from 6.4 on,",
                source,
            ),
            other => other,
        })
    }

    /// Maps the pages of a range that are not mapped yet.
    fn map(&self, start: u64, len: u64, mode: u64) -> Result<(), OsError> {
        let page = page_size() as u64;
        let mut at = start;
        while at < start + len {
            let mut range = RangeArgument { start: at, len: start + len - at, mode, answer: 0 };
            match self.ioctl("ioctl(UFFDIO_CONTINUE)", IOCTL_CONTINUE, (&raw mut range).cast()) {
                Ok(()) => return Ok(()),
                Err(error) => match error.raw_os_error() {
                    // Some were mapped before one that is mapped already.
                    Some(libc::EAGAIN) if range.answer > 0 => at += range.answer as u64,
                    Some(libc::EAGAIN) => {}
                    Some(libc::EEXIST) => at += page + range.answer.max(0) as u64,
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn ioctl(&self, call: &'static str, number: u64, argument: *mut libc::c_void) -> Result<(), OsError> {
        // SAFETY: each caller gives the structure that belongs to the number, on its own stack.
        match unsafe { libc::ioctl(self.fd.as_raw_fd(), number as libc::Ioctl, argument) } {
            -1 => Err(OsError::sys(call, io::Error::last_os_error())),
            _ => Ok(()),
        }
    }
}

impl Engine for Uffd {
    fn kind(&self) -> EngineKind {
        EngineKind::Uffd
    }

    fn protect(&self, pages: Pages, protection: Protection) -> Result<(), OsError> {
        let mode = match protection {
            Protection::Closed => return close(pages.at, pages.len),
            Protection::Read => CONTINUE_WP,
            Protection::Write => 0,
        };
        pages.touch();
        self.map(pages.at as u64, pages.len as u64, mode)?;
        // Pages that were mapped before have the protection of then.
        let mode = if protection == Protection::Read { PROTECT } else { 0 };
        let mut range = RangeArgument { start: pages.at as u64, len: pages.len as u64, mode, answer: 0 };
        self.ioctl("ioctl(UFFDIO_WRITEPROTECT)", IOCTL_WRITEPROTECT, (&raw mut range).cast())
    }
}

/// Takes the entries of a range out of the page table; its memory stays in the segment.
fn close(at: usize, len: usize) -> Result<(), OsError> {
    // SAFETY: a range of a mapping of the window, which gives its memory out as an address only; shared memory keeps its
    // content.
    match unsafe { libc::madvise(at as *mut libc::c_void, len, libc::MADV_DONTNEED) } {
        0 => Ok(()),
        _ => Err(OsError::sys("madvise", io::Error::last_os_error())),
    }
}
