//! The system calls under [`super::Segment`]: making, checking and mapping memfds.
//!
//! Split from the type so that the rule for a peer's descriptor (notes on reliability, section 4, rule 1) stands in one
//! place, [`check`]. Nothing here owns a mapping.

use std::ffi::c_void;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

use rustix::fs::{FallocateFlags, FileType, MemfdFlags, SealFlags};
use rustix::fs::{fallocate, fcntl_get_seals, fstat, fstatfs, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::Access;
use crate::error::OsError;

/// The size of a page.
pub fn page_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    // SAFETY: sysconf has no preconditions.
    *SIZE.get_or_init(|| usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096))
}

/// A new memfd that can be sealed and never executed.
pub(super) fn memfd(name: &str) -> Result<OwnedFd, OsError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // A name longer than the kernel takes is cut: it only decorates /proc.
    let name: String = name.chars().filter(|&c| c != '\0').take(60).collect();
    match memfd_create(&*name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(&*name, flags), // before Linux 6.3
        other => other,
    }
    .map_err(|e| OsError::sys("memfd_create", e))
}

/// Gives all its pages to the file now, so that no later access can fail for want of memory.
pub(super) fn allocate(fd: &OwnedFd, len: u64) -> Result<(), OsError> {
    loop {
        match fallocate(fd, FallocateFlags::empty(), 0, len) {
            Err(Errno::INTR) => {} // the kernel undid the part it had done
            other => return other.map_err(|e| OsError::sys("fallocate", e)),
        }
    }
}

/// Whether a descriptor is of a file of tmpfs, as memfds are. One of huge pages is not: a hole punched into it may find no
/// page to fill it with, and then an access faults.
pub(super) fn is_plain_memory(fd: BorrowedFd<'_>) -> bool {
    // TMPFS_MAGIC, whose type differs between architectures.
    fstatfs(fd).is_ok_and(|s| s.f_type == 0x0102_1994)
}

/// Whether a peer's memory may have pages that were never allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holes {
    /// They are given at the first touch, and that may fail for want of memory.
    Allowed,
    /// All pages are there.
    Refused,
}

/// Checks a peer's descriptor; its length if the peer cannot make a mapping of it fault.
pub(super) fn check(fd: BorrowedFd<'_>, max_len: usize, holes: Holes) -> Result<usize, OsError> {
    let need = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let seals = fcntl_get_seals(fd).map_err(|_| OsError::BadSegment("it is no memfd"))?;
    if !seals.contains(need) {
        return Err(OsError::BadSegment("it is not sealed against resizing"));
    }
    if !is_plain_memory(fd) {
        return Err(OsError::BadSegment("it is no memory of tmpfs"));
    }
    // The seals hold from here on, so what is true of the size now stays true.
    let stat = fstat(fd).map_err(|e| OsError::sys("fstat", e))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(OsError::BadSegment("it is no regular file"));
    }
    let len = usize::try_from(stat.st_size).unwrap_or(0);
    if len == 0 || len > max_len {
        return Err(OsError::BadSegment("its length is out of bounds"));
    }
    if !len.is_multiple_of(page_size()) {
        return Err(OsError::BadSegment("its length is not whole pages"));
    }
    let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
    if holes == Holes::Refused && blocks.saturating_mul(512) < len as u64 {
        return Err(OsError::BadSegment("its memory is not allocated in full"));
    }
    Ok(len)
}

/// The protection of pages mapped with `access`.
pub(super) fn prot(access: Access) -> ProtFlags {
    match access {
        Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        Access::ReadOnly => ProtFlags::READ,
    }
}

/// Maps the whole file, shared: anywhere, or at this address, which is then free ([`Errno::EXIST`] if not).
pub(super) fn map(fd: &OwnedFd, len: usize, access: Access, at: Option<usize>) -> Result<NonNull<u8>, Errno> {
    let (wanted, flags) = match at {
        Some(at) => (at as *mut c_void, MapFlags::SHARED | MapFlags::FIXED_NOREPLACE),
        None => (null_mut(), MapFlags::SHARED),
    };
    // SAFETY: a new mapping, at an address of the kernel's choice or where nothing is mapped, touches no memory that exists.
    let addr = unsafe { mmap(wanted, len, prot(access), flags, fd, 0) }?;
    if at.is_some() && addr != wanted {
        // Kernels before 4.17 take the address for a hint.
        // SAFETY: the mapping was made just now, and its address is known here alone.
        unsafe { munmap(addr, len) }?;
        return Err(Errno::EXIST);
    }
    NonNull::new(addr.cast()).ok_or(Errno::NOMEM)
}
