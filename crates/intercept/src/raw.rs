//! The one place of this crate where addresses become accesses: mapped segments, and the vectors of callers.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use viaduct_os::bare::{Errno, syscall};
use viaduct_os::copy;

use crate::layout::{HEADER, Header, RING, SEGMENT, pieces};
use crate::learn::PLACES;

/// Buffers of a caller, as readv and its kin take them.
#[derive(Clone, Copy, Debug)]
pub struct Buffers<'a>(&'a [libc::iovec]);

/// Vectors for one call of the kernel's: more than these take another call.
const MOST_VECTORS: usize = 16;

impl<'a> Buffers<'a> {
    /// # Safety
    /// Each vector names memory that is valid for what the call does with it, reads or writes, as long as this lives.
    pub unsafe fn new(vectors: &'a [libc::iovec]) -> Buffers<'a> {
        Buffers(vectors)
    }

    /// Bytes in all of them.
    pub fn total(self) -> usize {
        self.0.iter().fold(0, |sum, vector| usize::saturating_add(sum, vector.iov_len))
    }

    /// Receives from a socket behind the first `skip` bytes, at most `most`.
    pub(crate) fn receive(self, fd: i32, skip: usize, most: usize, flags: i32) -> Result<usize, Errno> {
        self.message(libc::SYS_recvmsg, fd, skip, most, flags)
    }

    /// Sends what comes after the first `skip` bytes, at most `most`.
    pub(crate) fn send(self, fd: i32, skip: usize, most: usize, flags: i32) -> Result<usize, Errno> {
        self.message(libc::SYS_sendmsg, fd, skip, most, flags)
    }

    fn message(self, call: i64, fd: i32, skip: usize, most: usize, flags: i32) -> Result<usize, Errno> {
        let mut window = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MOST_VECTORS];
        let mut count = 0;
        self.each(skip, most, |base, len| {
            let room = count < MOST_VECTORS;
            if room {
                window[count] = libc::iovec { iov_base: base.cast(), iov_len: len };
                count += 1;
            }
            room
        });
        let message = [0, 0, window.as_ptr() as usize, count, 0, 0, 0];
        let args = [fd as usize, message.as_ptr() as usize, flags as usize, 0, 0, 0];
        // SAFETY: the message is a msghdr without name and control part; its vectors are parts of the caller's.
        unsafe { syscall(call, args) }
    }

    /// Calls `with` for each piece behind the first `skip` bytes, `most` in all, until it says no.
    #[inline]
    fn each(self, mut skip: usize, mut most: usize, mut with: impl FnMut(*mut u8, usize) -> bool) {
        for vector in self.0 {
            if most == 0 {
                return;
            }
            if skip >= vector.iov_len {
                skip -= vector.iov_len;
                continue;
            }
            let len = (vector.iov_len - skip).min(most);
            if !with(vector.iov_base.cast::<u8>().wrapping_add(skip), len) {
                return;
            }
            (skip, most) = (0, most - len);
        }
    }
}

/// One buffer of our own.
pub(crate) struct Piece<'a>([libc::iovec; 1], std::marker::PhantomData<&'a mut [u8]>);

impl<'a> Piece<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Piece<'a> {
        let vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        Piece([vector], std::marker::PhantomData)
    }

    pub(crate) fn buffers(&self) -> Buffers<'_> {
        // SAFETY: the vector names a slice that is borrowed, for reads and writes, as long as this lives.
        unsafe { Buffers::new(&self.0) }
    }
}

/// How far ahead of small messages lines are asked for, in bytes.
const AHEAD: usize = 512;

/// A mapped segment.
#[derive(Clone, Copy, Debug)]
pub struct View(*mut u8);

impl View {
    /// The words.
    #[inline]
    pub fn header(self) -> &'static Header {
        // SAFETY: a view points to a mapping of SEGMENT bytes that starts at a page; the words are atomics, valid whatever
        // a peer writes. The mapping stays while a call may use it (see `Mapping::unmap`).
        unsafe { &*self.0.cast::<Header>() }
    }

    fn data(self, direction: usize) -> *mut u8 {
        self.0.wrapping_add(HEADER + (direction & 1) * RING as usize)
    }

    /// Copies `len` bytes of the buffers, behind the first `skip`, to a position of a ring. At most a ring's length. `far` if another
    /// CPU will read them.
    #[inline]
    pub fn put(self, to: (usize, u64), buffers: Buffers<'_>, skip: usize, len: usize, far: bool) {
        let (direction, mut at) = to;
        buffers.each(skip, len.min(RING as usize), |base, len| {
            let mut from = base;
            for (offset, part) in pieces(at, len as u64) {
                // SAFETY: pieces lie in the ring, whose bytes only copies look at; the caller's buffer is valid for reads.
                unsafe {
                    let to = self.data(direction).add(offset);
                    if far { copy::copy_over(to, from, part) } else { copy::copy(to, from, part) }
                };
                from = from.wrapping_add(part);
            }
            at = at.wrapping_add(len as u64);
            true
        });
        if len <= AHEAD {
            // A lap ago the receiver had the lines that the next small messages need.
            let next = at.wrapping_add(AHEAD as u64) & (RING - 1);
            copy::own(self.data(direction).wrapping_add(next as usize), 1);
        }
    }

    /// Gives `len` bytes from a position of a ring on to the kernel, by a socket and without waiting: how many it took.
    pub(crate) fn send(self, direction: usize, position: u64, len: u64, fd: i32) -> Result<usize, Errno> {
        let vector = pieces(position, len.min(RING)).map(|(offset, len)| libc::iovec {
            iov_base: self.data(direction).wrapping_add(offset).cast(),
            iov_len: len,
        });
        // SAFETY: pieces lie in the ring, which stays mapped for the time of the call; the kernel alone reads the bytes.
        let buffers = unsafe { Buffers::new(&vector) };
        buffers.send(fd, 0, usize::MAX, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    }

    /// Copies `len` bytes from a position of a ring to the buffers, behind the first `skip`. At most a ring's length.
    #[inline]
    pub fn take(self, direction: usize, position: u64, buffers: Buffers<'_>, skip: usize, len: usize) {
        let mut at = position;
        buffers.each(skip, len.min(RING as usize), |base, len| {
            let mut to = base;
            for (offset, part) in pieces(at, len as u64) {
                // SAFETY: pieces lie in the ring; the caller's buffer is valid for writes.
                unsafe { copy::copy(to, self.data(direction).add(offset), part) };
                to = to.wrapping_add(part);
            }
            at = at.wrapping_add(len as u64);
            true
        });
    }
}

static SCORES: AtomicUsize = AtomicUsize::new(0);

/// Makes the page in which this process and its children keep what they learn.
pub(crate) fn share_scores() {
    if SCORES.load(Ordering::Acquire) != 0 {
        return;
    }
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    let len = size_of::<[AtomicU32; PLACES]>();
    // SAFETY: a new mapping that replaces none.
    let at = unsafe { syscall(libc::SYS_mmap, [0, len, access as usize, flags as usize, usize::MAX, 0]) };
    if let Ok(at) = at {
        SCORES.store(at, Ordering::Release); // of two threads one leaves a page behind that no one uses
    }
}

/// That page, if it was made.
pub(crate) fn shared_scores() -> Option<&'static [AtomicU32; PLACES]> {
    let at = SCORES.load(Ordering::Acquire);
    // SAFETY: a mapping of that size, which stays; zeros and any other numbers are valid.
    (at != 0).then(|| unsafe { &*std::ptr::with_exposed_provenance(at) })
}

/// Where a segment is mapped, or nothing.
#[derive(Debug, Default)]
pub(crate) struct Mapping(AtomicUsize);

impl Mapping {
    pub(crate) const fn none() -> Mapping {
        Mapping(AtomicUsize::new(0))
    }

    /// Maps a segment. What was mapped here before must have been unmapped.
    pub(crate) fn map(&self, fd: i32) -> Result<(), Errno> {
        let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let args = [0, SEGMENT, access, libc::MAP_SHARED as usize, fd as usize, 0];
        // SAFETY: a new mapping that replaces none.
        let at = unsafe { syscall(libc::SYS_mmap, args) }?;
        self.0.store(at, Ordering::Release);
        Ok(())
    }

    #[inline]
    pub(crate) fn view(&self) -> Option<View> {
        let at = self.0.load(Ordering::Acquire);
        (at != 0).then(|| View(std::ptr::with_exposed_provenance_mut(at)))
    }

    /// Unmaps it, long after the last descriptor was closed: no call is inside any more.
    pub(crate) fn unmap(&self) {
        let at = self.0.swap(0, Ordering::AcqRel);
        if at != 0 {
            // SAFETY: our own mapping, which no view of a call under way uses.
            let _ = unsafe { syscall(libc::SYS_munmap, [at, SEGMENT, 0, 0, 0, 0]) };
        }
    }
}

/// Looks whether a socket has a byte, without taking it or waiting for it; 0 is the end.
pub(crate) fn peek(fd: i32) -> Result<usize, Errno> {
    let mut byte = 0u8;
    let vector = [libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 }];
    // SAFETY: the vector names a local that outlives the call.
    let buffers = unsafe { Buffers::new(&vector) };
    buffers.receive(fd, 0, 1, libc::MSG_PEEK | libc::MSG_DONTWAIT)
}

/// Entries for one call of poll: on the stack if they are few, else in pages of their own. It is freed by hand: a thread that is
/// cancelled while it polls must meet no destructor.
#[expect(clippy::large_enum_variant, reason = "it stands on the stack, where nothing is allocated")]
#[derive(Debug)]
pub enum Scratch {
    /// So many.
    Few(usize, [libc::pollfd; FEW]),
    /// So many, and where they are.
    Many(usize, usize),
}

const FEW: usize = 128;
const ENTRY: libc::pollfd = libc::pollfd { fd: -1, events: 0, revents: 0 };

impl Scratch {
    /// So many that wait for nothing; `None` if there is no memory for them.
    pub fn new(len: usize) -> Option<Scratch> {
        if len <= FEW {
            return Some(Scratch::Few(len, [ENTRY; FEW]));
        }
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let bytes = len.checked_mul(size_of::<libc::pollfd>())?;
        // SAFETY: a new mapping that replaces none.
        let at =
            unsafe { syscall(libc::SYS_mmap, [0, bytes, access as usize, flags as usize, usize::MAX, 0]) };
        at.ok().map(|at| Scratch::Many(len, at))
    }

    /// All of them.
    pub fn entries(&mut self) -> &mut [libc::pollfd] {
        match self {
            Scratch::Few(len, entries) => &mut entries[..*len],
            // SAFETY: our own pages, long enough and aligned; zeros are valid entries.
            Scratch::Many(len, at) => unsafe {
                std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(*at), *len)
            },
        }
    }

    /// Gives pages back. Those of a cancelled thread stay.
    pub fn free(self) {
        if let Scratch::Many(len, at) = self {
            // SAFETY: our own pages, which no one uses any more.
            let _ = unsafe { syscall(libc::SYS_munmap, [at, len * size_of::<libc::pollfd>(), 0, 0, 0, 0]) };
        }
    }
}
