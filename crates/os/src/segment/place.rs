//! Sparse segments, and further mappings of a segment where the caller wants them.
//!
//! Design, section 2.4: shared memory is allocated in full, but for the frames and twins of a distributed shared memory, of
//! which most is never touched. A sparse segment has the seals of any other; its pages come with the first touch, and a
//! touch for which the machine has no memory ends the process (SIGBUS, or the kernel's out-of-memory killer). The
//! caller that makes one answers for how much of it is touched: the byte budget does not count it.
//!
//! A second mapping of one memory is a [`Segment`] of its own: one alias whose pages are protected as the application is
//! to see them, at the address that all processes have agreed on, and one through which the library always reads and writes.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate};
use rustix::io::Errno;

use super::memfd::{Holes, check, map, memfd, page_size};
use super::{Access, Segment, not_mapped, whole_pages};
use crate::error::OsError;
use crate::fdpass::close_apart;
use crate::point::point;

impl Segment {
    /// Creates a segment of at least `len` bytes, whole pages, that takes memory where it is touched. It charges no budget.
    ///
    /// # Errors
    /// [`OsError::Fds`], [`OsError::NoMemory`] if there is no address space for it.
    pub fn create_sparse(name: &str, len: usize) -> Result<Segment, OsError> {
        let len = whole_pages(len)?;
        let fd = memfd(name)?;
        ftruncate(&fd, len as u64).map_err(|e| OsError::sys("ftruncate", e))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&fd, seals).map_err(|e| OsError::sys("fcntl(F_ADD_SEALS)", e))?;
        point("segment.sparse");
        let addr = map(&fd, len, Access::ReadWrite, None).map_err(|e| OsError::sys("mmap", e))?;
        let mut segment = Segment::finish(addr, len, Access::ReadWrite, Arc::new(fd), None)?;
        segment.sparse = true;
        Ok(segment)
    }

    /// Maps a descriptor that came from a peer of one's own user, as [`open`](Segment::open) does, whether or not its pages
    /// are all there.
    ///
    /// # Errors
    /// As [`open`](Segment::open), but for memory that is sparse.
    pub fn open_sparse(fd: OwnedFd, access: Access, max_len: usize) -> Result<Segment, OsError> {
        let len = match check(fd.as_fd(), max_len, Holes::Allowed) {
            Ok(len) => len,
            Err(e) => {
                close_apart(vec![fd]);
                return Err(e);
            }
        };
        let addr = map(&fd, len, access, None).map_err(not_mapped)?;
        let mut segment = Segment::finish(addr, len, access, Arc::new(fd), None)?;
        segment.sparse = true;
        Ok(segment)
    }

    /// Whether its memory is taken where it is touched.
    pub fn is_sparse(&self) -> bool {
        self.sparse
    }

    /// A second mapping of the same memory, anywhere.
    ///
    /// # Errors
    /// [`OsError::BadSegment`] if the descriptor was dropped, or the memory may only be read and is to be written.
    pub fn map_again(&self, access: Access) -> Result<Segment, OsError> {
        self.another(access, None)
    }

    /// A second mapping of the same memory at this address, where nothing may be mapped yet: no mapping is replaced.
    ///
    /// # Errors
    /// [`OsError::BadPlace`] if a part of the range is in use, or `addr` is not the start of a page; else as
    /// [`map_again`](Self::map_again).
    pub fn map_at(&self, addr: usize, access: Access) -> Result<Segment, OsError> {
        let refuse = |why| OsError::BadPlace { addr, len: self.len, why };
        if addr == 0 || !addr.is_multiple_of(page_size()) {
            return Err(refuse("that is not the start of a page"));
        }
        match self.another(access, Some(addr)) {
            Err(OsError::Sys { source, .. })
                if source.raw_os_error() == Some(Errno::EXIST.raw_os_error()) =>
            {
                Err(refuse("a part of it is in use"))
            }
            other => other,
        }
    }

    /// Gives pages of a sparse segment back to the machine, in every mapping of it. They read as zeroes then.
    ///
    /// # Errors
    /// [`OsError::BadSegment`] if it is not sparse, the range is not whole pages of it, or its descriptor was dropped.
    pub fn punch(&self, range: Range<usize>) -> Result<(), OsError> {
        let page = page_size();
        let pages = range.start.is_multiple_of(page) && range.end.is_multiple_of(page);
        if !self.sparse || !pages || range.start > range.end || range.end > self.len {
            return Err(OsError::BadSegment("only whole pages of a sparse one can be given back"));
        }
        if range.is_empty() {
            return Ok(());
        }
        let fd = self.fd().ok_or(DROPPED)?;
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match fallocate(fd, how, range.start as u64, range.len() as u64) {
                Err(Errno::INTR) => {}
                other => return other.map_err(|e| OsError::sys("fallocate", e)),
            }
        }
    }

    fn another(&self, access: Access, at: Option<usize>) -> Result<Segment, OsError> {
        let fd = self.fd.clone().ok_or(DROPPED)?;
        let addr = map(&fd, self.len, access, at).map_err(not_mapped)?;
        let mut segment = Segment::finish(addr, self.len, access, fd, self.charge.clone())?;
        segment.sparse = self.sparse;
        Ok(segment)
    }
}

const DROPPED: OsError = OsError::BadSegment("its descriptor was dropped already");
