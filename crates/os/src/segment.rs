//! Shared memory: sealed memfds and their mappings.
//!
//! Design, section 2.4, and the notes on reliability, section 4, rule 1: no names (nothing is left behind after a kill),
//! allocated in full (no SIGBUS when memory is short), sealed against resizing (no SIGBUS when a peer truncates), and
//! checked by the receiver before it maps. What a segment holds is up to the layers above, and the content is
//! never stable: a peer writes at any time, so there is no `&[u8]` here, only an address.
//!
//! Sparse segments, and second mappings at an address of the caller's choice, are in `place.rs`.

mod memfd;
mod place;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use rustix::fs::{SealFlags, fcntl_add_seals, ftruncate};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::mm::{Advice, madvise, munmap};

use crate::budget::{Budget, Charge, check_available};
use crate::error::OsError;
use crate::fdpass::close_apart;
use crate::fork::{self, Registration};
use crate::point::point;
pub use memfd::page_size;
use memfd::{Holes, allocate, check, map, memfd, prot};

/// How a peer's segment is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads and stores.
    ReadWrite,
    /// Loads only; a store faults.
    ReadOnly,
}

/// A mapping of a sealed memfd and, until it is dropped, its descriptor.
///
/// In a forked child the mapping is gone (the address is a hole) unless [`private_in_child`](Self::private_in_child)
/// or [`share_with_children`](Self::share_with_children) was called.
#[derive(Debug)]
pub struct Segment {
    addr: NonNull<u8>,
    len: usize,
    access: Access,
    /// Shared with the fork registry, which needs it after [`Segment::drop_fd`].
    fd: Option<Arc<OwnedFd>>,
    child: Mutex<InChild>,
    generation: u32,
    /// Pages are there once they were touched.
    sparse: bool,
    /// Shared by all mappings of the memory: it is in use until the last is gone.
    charge: Option<Arc<Charge>>,
}

// SAFETY: the mapping stays where it is whichever thread uses the value, and only an address is handed out.
unsafe impl Send for Segment {}
// SAFETY: as above; the methods that take `&self` use a lock or system calls that any thread may make.
unsafe impl Sync for Segment {}

impl Segment {
    /// Creates a segment of at least `len` zero bytes, whole pages. `name` shows up in /proc only.
    ///
    /// # Errors
    /// [`OsError::Budget`] before anything is allocated; [`OsError::Fds`], [`OsError::NoMemory`], [`OsError::NoSpace`].
    pub fn create(name: &str, len: usize, budget: &Budget) -> Result<Segment, OsError> {
        Segment::make(name, len, budget, false)
    }

    /// Creates a segment that only this mapping can ever write: peers can map it for reading only.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_read_only_for_peers(name: &str, len: usize, budget: &Budget) -> Result<Segment, OsError> {
        Segment::make(name, len, budget, true)
    }

    /// Maps a descriptor that came from a peer, after checking that the peer cannot make the mapping fault.
    ///
    /// # Errors
    /// [`OsError::BadSegment`] if it is not a memfd of ordinary pages, not sealed, empty, longer than `max_len`, not whole pages or sparse.
    pub fn open(fd: OwnedFd, access: Access, max_len: usize) -> Result<Segment, OsError> {
        let len = match check(fd.as_fd(), max_len, Holes::Refused) {
            Ok(len) => len,
            Err(e) => {
                close_apart(vec![fd]);
                return Err(e);
            }
        };
        point("segment.checked");
        let addr = map(&fd, len, access, None).map_err(not_mapped)?;
        Segment::finish(addr, len, access, Arc::new(fd), None)
    }

    /// Whether a peer's descriptor is of memory at all, and so harmless to close. [`open`](Self::open) checks the rest.
    pub fn is_one(fd: BorrowedFd<'_>) -> bool {
        memfd::is_plain_memory(fd)
    }

    /// The first byte. Valid for [`len`](Self::len) bytes until the segment is dropped; never null.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.addr.as_ptr()
    }

    /// Length in bytes, a multiple of the page size.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a segment is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// How it is mapped.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The descriptor, to be passed to a peer, unless it was dropped.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_deref().map(AsFd::as_fd)
    }

    /// Closes the descriptor and keeps the mapping: thousands of segments then cost no descriptors.
    pub fn drop_fd(&mut self) {
        self.fd = None;
    }

    /// A second descriptor of the same memory.
    ///
    /// # Errors
    /// The kernel's, or `NotFound` if the descriptor was dropped.
    pub fn dup_fd(&self) -> io::Result<OwnedFd> {
        let fd = self.fd().ok_or(io::ErrorKind::NotFound)?;
        Ok(fcntl_dupfd_cloexec(fd, 0)?)
    }

    /// From now on a forked child finds a private copy-on-write mapping at the same address.
    ///
    /// Pages that neither side has written since the fork are still one: the child sees what the parent (or a peer)
    /// writes to a page until it writes to that page itself.
    ///
    /// # Errors
    /// [`OsError::BadSegment`] if the descriptor was dropped before.
    pub fn private_in_child(&self) -> Result<(), OsError> {
        let fd = self.fd.as_ref().ok_or(OsError::BadSegment("its descriptor was dropped already"))?;
        let at = self.addr.as_ptr() as usize;
        // Both before the lock: a fork by another thread that hits us here must not find it held for long.
        let registration = fork::private_in_child(at, self.len, prot(self.access), Arc::clone(fd));
        self.advise(Advice::LinuxDoFork)?;
        let before = std::mem::replace(&mut *self.child(), InChild::Private(registration));
        drop(before); // a second call leaves one registration
        Ok(())
    }

    /// Makes sure that a forked child finds memory at the address: [private](Self::private_in_child), unless it was said
    /// what the child gets.
    ///
    /// # Errors
    /// As [`private_in_child`](Self::private_in_child).
    pub fn keep_in_child(&self) -> Result<(), OsError> {
        let gone = matches!(*self.child(), InChild::Gone);
        if gone { self.private_in_child() } else { Ok(()) }
    }

    /// From now on a forked child shares the memory. For tests and for children that stay part of the protocol.
    ///
    /// # Errors
    /// The kernel's.
    pub fn share_with_children(&self) -> Result<(), OsError> {
        self.advise(Advice::LinuxDoFork)?;
        *self.child() = InChild::Shared;
        Ok(())
    }

    fn make(name: &str, len: usize, budget: &Budget, read_only: bool) -> Result<Segment, OsError> {
        let len = whole_pages(len)?;
        let charge = budget.charge(len as u64)?;
        check_available(len as u64)?;
        let fd = memfd(name)?;
        ftruncate(&fd, len as u64).map_err(|e| OsError::sys("ftruncate", e))?;
        point("segment.made");
        allocate(&fd, len as u64)?;
        point("segment.allocated");
        let seal = |seals| fcntl_add_seals(&fd, seals).map_err(|e| OsError::sys("fcntl(F_ADD_SEALS)", e));
        seal(SealFlags::SHRINK | SealFlags::GROW)?;
        // Our own mapping must exist before the seal that forbids new writable ones.
        let addr = map(&fd, len, Access::ReadWrite, None).map_err(|e| OsError::sys("mmap", e))?;
        let segment = Segment::finish(addr, len, Access::ReadWrite, Arc::new(fd), Some(Arc::new(charge)))?;
        let last = if read_only { SealFlags::FUTURE_WRITE | SealFlags::SEAL } else { SealFlags::SEAL };
        let fd = segment.fd.as_ref().expect("it was just put there");
        fcntl_add_seals(fd, last).map_err(|e| OsError::sys("fcntl(F_ADD_SEALS)", e))?;
        point("segment.sealed");
        Ok(segment)
    }

    fn finish(
        addr: NonNull<u8>,
        len: usize,
        access: Access,
        fd: Arc<OwnedFd>,
        charge: Option<Arc<Charge>>,
    ) -> Result<Segment, OsError> {
        let segment = Segment {
            addr,
            len,
            access,
            fd: Some(fd),
            child: Mutex::new(InChild::Gone),
            generation: fork::generation(),
            sparse: false,
            charge,
        };
        segment.advise(Advice::LinuxDontFork)?; // on error the half-made segment unmaps itself
        Ok(segment)
    }

    fn advise(&self, advice: Advice) -> Result<(), OsError> {
        // SAFETY: the range is this segment's own mapping, and the two advices used change nothing but what a child
        // of fork inherits.
        unsafe { madvise(self.addr.as_ptr().cast(), self.len, advice) }
            .map_err(|e| OsError::sys("madvise", e))
    }

    fn child(&self) -> std::sync::MutexGuard<'_, InChild> {
        self.child.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // First out of the registry: no child may re-map an address that is about to be free.
        let child = self.child.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        let child = std::mem::replace(child, InChild::Gone);
        let gone = matches!(child, InChild::Gone) && self.generation != fork::generation();
        drop(child);
        if !gone {
            // SAFETY: the mapping is this value's own and nothing hands out references into it. In a child where the
            // kernel left it out the address may belong to another mapping by now: `gone` excludes that.
            let _ = unsafe { munmap(self.addr.as_ptr().cast(), self.len) };
        }
    }
}

/// A length in whole pages, at least one, that fits the address space.
fn whole_pages(len: usize) -> Result<usize, OsError> {
    let len = len.max(1).checked_next_multiple_of(page_size()).filter(|&len| len <= isize::MAX as usize);
    len.ok_or(OsError::BadSegment("its length does not fit the address space"))
}

/// Why a segment could not be mapped.
fn not_mapped(error: Errno) -> OsError {
    match error {
        Errno::PERM | Errno::ACCESS => OsError::BadSegment("it may only be read"),
        e => OsError::sys("mmap", e),
    }
}

/// What becomes of the mapping in a forked child.
#[derive(Debug)]
enum InChild {
    Gone,
    Private(#[expect(dead_code, reason = "held for its destructor")] Registration),
    Shared,
}
