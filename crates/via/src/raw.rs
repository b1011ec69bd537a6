//! The unsafe floor of the model: memory as address and length, and segments that point into it.
//!
//! Everything above works with [`Buffer`]s, which own their memory. Memory here may be written at any
//! time by a peer (DESIGN 2.3), so it is only touched through the copy routine of `os` or through atomics; a plain
//! `&[u8]` exists behind `unsafe` alone.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use viaduct_os::segment::Segment;

use crate::buffer::Buffer;
use crate::counters::COUNTS;
use crate::descriptor::{Descriptor, Op, RemoteAddress, Status};
use crate::memory::MemHandle;

/// One piece of local memory in a descriptor, as the provider sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSegment {
    /// Where the bytes are.
    pub addr: *mut u8,
    /// How many.
    pub len: u32,
    /// The region they belong to, or [`MemHandle::NONE`] for memory that is registered on demand.
    pub handle: MemHandle,
}

// SAFETY: a segment is an address; whoever posts it promises that it stays valid until the descriptor is back.
unsafe impl Send for RawSegment {}
// SAFETY: as above; nothing is dereferenced through a shared reference.
unsafe impl Sync for RawSegment {}

/// Where directly shareable memory lies, in the provider's own terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locator {
    /// Number of the slab (a shared segment) within the NIC.
    pub slab: u32,
    /// Offset of the first byte within it.
    pub offset: u64,
}

/// Memory that stays where it is until dropped.
pub struct RawMemory {
    ptr: *mut u8,
    len: usize,
    owner: Owner,
}

enum Owner {
    /// A boxed slice given to us; freed as one.
    Heap,
    /// Somebody else frees it once this is dropped.
    Shared(#[allow(dead_code)] Arc<dyn Any + Send + Sync>),
    /// The caller of an unsafe function promised that it outlives us.
    Borrowed,
    /// A slice of somebody's who waits until this is dropped, and which nobody may write to.
    Lent(#[allow(dead_code)] Arc<()>),
}

// SAFETY: the memory is plain bytes, reached only through copies and atomics; the owner is Send and Sync.
unsafe impl Send for RawMemory {}
// SAFETY: as above; concurrent copies may tear but touch nothing outside the range.
unsafe impl Sync for RawMemory {}

impl RawMemory {
    /// Takes over ordinary heap memory.
    pub fn from_heap(bytes: Vec<u8>) -> RawMemory {
        let len = bytes.len();
        let ptr = Box::into_raw(bytes.into_boxed_slice()).cast::<u8>();
        RawMemory { ptr, len, owner: Owner::Heap }
    }

    /// Memory kept alive by `owner`.
    ///
    /// # Safety
    /// `ptr..ptr+len` is mapped, readable and writable for as long as `owner` lives, and used by nobody else in this
    /// process as a Rust reference.
    pub unsafe fn from_shared(ptr: *mut u8, len: usize, owner: Arc<dyn Any + Send + Sync>) -> RawMemory {
        RawMemory { ptr, len, owner: Owner::Shared(owner) }
    }

    /// Memory that the caller keeps alive.
    ///
    /// # Safety
    /// `ptr..ptr+len` stays mapped, readable and writable until the value and everything posted from it is gone.
    pub unsafe fn borrowed(ptr: *mut u8, len: usize) -> RawMemory {
        RawMemory { ptr, len, owner: Owner::Borrowed }
    }

    /// Whether it is a slice of somebody's that can only be read.
    pub fn is_lent(&self) -> bool {
        matches!(self.owner, Owner::Lent(_))
    }

    /// First address.
    #[inline]
    pub fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Gives heap memory back as a vector, or the memory itself if it is not heap memory.
    pub fn into_heap(self) -> Result<Vec<u8>, RawMemory> {
        if !matches!(self.owner, Owner::Heap) {
            return Err(self);
        }
        let (ptr, len) = (self.ptr, self.len);
        std::mem::forget(self);
        // SAFETY: made by from_heap from a boxed slice of this length, and not dropped (forgotten above).
        Ok(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(ptr, len)) }.into_vec())
    }

    /// Copies out of the memory.
    ///
    /// # Panics
    /// If the range lies outside.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        // SAFETY: source range checked; the destination is an exclusive slice of the same length.
        unsafe { viaduct_os::copy::copy(into.as_mut_ptr(), self.ptr.add(offset), into.len()) }
    }

    /// Copies into the memory.
    ///
    /// # Panics
    /// If the range lies outside.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        self.check_writable();
        // SAFETY: destination range checked, and not lent; the source is a valid slice of the same length.
        unsafe { viaduct_os::copy::copy(self.ptr.add(offset), from.as_ptr(), from.len()) }
    }

    /// The memory as atomic bytes.
    pub fn atomics(&self) -> &[AtomicU8] {
        self.check_writable();
        // SAFETY: valid for len bytes while self lives; AtomicU8 has the layout of u8 and allows outside writers.
        unsafe { std::slice::from_raw_parts(self.ptr.cast::<AtomicU8>(), self.len) }
    }

    /// An aligned 64-bit word as an atomic.
    ///
    /// # Panics
    /// If it lies outside or is not aligned to 8 bytes.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        self.check(offset, 8);
        self.check_writable();
        let p = self.ptr.wrapping_add(offset);
        assert!((p as usize).is_multiple_of(8), "word not aligned to 8 bytes");
        // SAFETY: in range and aligned as just checked.
        unsafe { &*p.cast::<AtomicU64>() }
    }

    /// The memory as a slice.
    ///
    /// # Safety
    /// Nobody, no peer and no posted descriptor, writes the range while the slice lives.
    pub unsafe fn slice(&self, offset: usize, len: usize) -> &[u8] {
        self.check(offset, len);
        // SAFETY: in range; no writer by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.ptr.add(offset), len) }
    }

    /// The memory as a mutable slice.
    ///
    /// # Safety
    /// Nobody else, no peer and no posted descriptor, touches the range while the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn slice_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        self.check(offset, len);
        self.check_writable();
        // SAFETY: in range; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(offset), len) }
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        assert!(offset <= self.len && len <= self.len - offset, "range outside the memory");
    }

    #[inline]
    fn check_writable(&self) {
        assert!(!self.is_lent(), "lent memory is only read");
    }
}

/// Lends bytes to whoever sends from them while `work` runs, as a buffer that need not be registered, and returns once
/// all of it was given back: by a `work` that waits for its sends, that is at once. What still has a part of the buffer then,
/// or keeps it for ever, is waited for; a panic of `work` waits as well.
///
/// The buffer can be sent and written to remote memory. It can be neither received into nor written to.
pub fn lend<R>(bytes: &[u8], work: impl FnOnce(Buffer) -> R) -> R {
    let back = Back(Arc::new(()));
    let (ptr, owner) = (bytes.as_ptr().cast_mut(), Owner::Lent(back.0.clone()));
    let memory = RawMemory { ptr, len: bytes.len(), owner };
    work(Buffer::unregistered(memory))
}

/// Waits until whatever was lent is given back.
struct Back(Arc<()>);

impl Drop for Back {
    fn drop(&mut self) {
        let mut turns = 0u32;
        while Arc::strong_count(&self.0) > 1 {
            turns += 1;
            match turns {
                0..100 => std::hint::spin_loop(),
                100..200 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
        }
        // Whoever gave it back on another thread was through with it.
        std::sync::atomic::fence(Ordering::Acquire);
    }
}

impl Drop for RawMemory {
    fn drop(&mut self) {
        if matches!(self.owner, Owner::Heap) {
            // SAFETY: made by from_heap from a boxed slice of this length, dropped once.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.ptr, self.len)) });
        }
    }
}

impl fmt::Debug for RawMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawMemory({:p}, {} bytes)", self.ptr, self.len)
    }
}

impl Buffer {
    /// The bytes as a slice.
    ///
    /// # Safety
    /// No peer writes the buffer by RDMA while the slice lives.
    pub unsafe fn as_slice(&self) -> &[u8] {
        let (memory, start, len) = self.place();
        // SAFETY: a posted buffer is inside its descriptor, so only peers could write; the caller says none does.
        unsafe { memory.slice(start, len) }
    }

    /// The bytes as a mutable slice.
    ///
    /// # Safety
    /// No peer reads or writes the buffer by RDMA while the slice lives.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        let (memory, start, len) = self.place();
        // SAFETY: buffers of one region never overlap and this one is borrowed mutably; peers by the caller's promise.
        unsafe { memory.slice_mut(start, len) }
    }
}

/// A mapped segment as 64-bit atomics. A segment mapped read only must only be loaded from.
#[inline]
pub(crate) fn words(segment: &Segment) -> &[AtomicU64] {
    // SAFETY: a segment is mapped, page aligned, for its whole length while it lives; atomics allow outside writers.
    unsafe { std::slice::from_raw_parts(segment.as_ptr().cast::<AtomicU64>(), segment.len() / 8) }
}

/// A fixed number of places, a power of two, named by a running index.
#[derive(Debug)]
pub(crate) struct Places<T> {
    places: Box<[T]>,
    mask: u32,
}

impl<T> Places<T> {
    /// At least `count` places.
    pub(crate) fn new(count: usize, make: impl FnMut() -> T) -> Places<T> {
        let count = count.next_power_of_two().max(1);
        let mask = u32::try_from(count - 1).expect("less than four thousand million places");
        let places: Box<[T]> = std::iter::repeat_with(make).take(count).collect();
        Places { places, mask }
    }

    #[inline]
    pub(crate) fn at(&self, index: u32) -> &T {
        // SAFETY: the mask is the number of places less one, and that number a power of two.
        unsafe { self.places.get_unchecked((index & self.mask) as usize) }
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut T {
        // SAFETY: as above.
        unsafe { self.places.get_unchecked_mut((index & self.mask) as usize) }
    }
}

/// A word to watch: as long as its upper 16 bits are not `tag`, polling an endpoint would find nothing.
///
/// It lets a spinning program look for a message with one load instead of a call into the provider. What the word does
/// not show, such as the peer's end, is found out by the full poll that happens every so often.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    word: *const AtomicU64,
    tag: u64,
    left: u32,
    /// What was watched has come and was dealt with.
    moved: bool,
}

// SAFETY: the word is an atomic; whoever makes a Watch promises how long it lives.
unsafe impl Send for Watch {}

/// Polls answered by the watch before a full one.
const WATCHED_POLLS: u32 = 128;

impl Watch {
    /// Nothing to watch.
    pub const NONE: Watch = Watch { word: std::ptr::null(), tag: 0, left: 0, moved: false };

    /// Watches `word` for `tag`.
    ///
    /// # Safety
    /// The word stays valid until the endpoint that made the watch is dropped, or polled again.
    #[inline]
    pub unsafe fn new(word: &AtomicU64, tag: u64) -> Watch {
        Watch { word, tag, left: WATCHED_POLLS, moved: false }
    }

    /// What was watched has come and was dealt with; something else is to be watched.
    #[inline]
    pub(crate) fn moved(&mut self) {
        (self.left, self.moved) = (0, true);
    }

    #[inline]
    pub(crate) fn has_moved(&self) -> bool {
        self.moved
    }

    /// Whether a poll would find nothing.
    #[inline]
    pub(crate) fn is_quiet(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        // SAFETY: left > 0 only in a watch made by `new`, and the VI forgets it when it is polled or unbound.
        let word = unsafe { &*self.word };
        word.load(Ordering::Relaxed) >> 48 != self.tag
    }
}

/// The counters of a NIC, by address: found once, so that counting costs a load and a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts(*const [AtomicU64; COUNTS]);

// SAFETY: points to atomics; who may use it is decided by `word`.
unsafe impl Send for Counts {}
// SAFETY: as above.
unsafe impl Sync for Counts {}

impl Counts {
    pub(crate) fn new(words: &[AtomicU64; COUNTS]) -> Counts {
        Counts(words)
    }

    /// One of the words. `keeper` is what keeps them alive.
    #[inline]
    pub(crate) fn word<'a, T>(&self, index: usize, _keeper: &'a T) -> &'a AtomicU64 {
        // SAFETY: a CounterSlot holds the address together with the slot that owns the words, and passes that slot.
        let words = unsafe { &*self.0 };
        &words[index]
    }
}

impl Descriptor {
    /// One of the buffers as a mutable slice.
    ///
    /// # Panics
    /// If there is no such buffer.
    ///
    /// # Safety
    /// No peer reads or writes the buffer by RDMA while the slice lives.
    pub unsafe fn as_mut_slice(&mut self, buffer: usize) -> &mut [u8] {
        // SAFETY: by the caller's promise.
        unsafe { self.buffer_mut(buffer).as_mut_slice() }
    }

    /// Adds memory that the descriptor does not own: the raw post under the safe interface, for C libraries.
    ///
    /// # Safety
    /// `addr..addr+len` stays mapped (and, for receives and reads, writable and used by nobody else) until the
    /// descriptor is back.
    ///
    /// # Panics
    /// If the descriptor would pass 4 GiB.
    pub unsafe fn raw_segment(mut self, addr: *mut u8, len: u32, handle: MemHandle) -> Descriptor {
        self.push(RawSegment { addr, len, handle });
        self
    }
}

/// What a descriptor of a C program says, apart from its segments.
#[derive(Clone, Copy, Debug)]
pub struct RawOrder {
    /// What to do.
    pub op: Op,
    /// Wait for earlier reads on this VI first.
    pub fence: bool,
    /// Immediate data to send.
    pub immediate: Option<u32>,
    /// The remote place, for RDMA.
    pub remote: RemoteAddress,
    /// The number that comes back.
    pub context: u64,
    /// What is wrong with it, if anything; it then comes back so in its turn.
    pub flaw: Status,
}

impl Descriptor {
    /// The usual case of [`refill`](Self::refill): nothing but the number changes, since the same plain send or receive
    /// with this one segment was made of it before. False if that is not so; then nothing was done.
    #[inline]
    pub fn refill_alike(&mut self, op: Op, segment: RawSegment, context: u64) -> bool {
        let work = self.work_mut();
        let alike = work.op == op
            && work.segments.as_slice() == [segment]
            && work.flaw == Status::Success
            && work.immediate.is_none()
            && !work.fence;
        if alike {
            work.context = context;
        }
        alike
    }

    /// Makes something else of a descriptor that owns no buffers, without allocating: the post of C libraries, whose
    /// programs own descriptors and memory. Segments that stay the same need not be checked again.
    ///
    /// # Safety
    /// As [`raw_segment`](Self::raw_segment), for each of the segments.
    ///
    /// # Panics
    /// If the descriptor owns buffers.
    #[inline]
    pub unsafe fn refill(&mut self, order: &RawOrder, segments: impl Iterator<Item = RawSegment> + Clone) {
        assert!(self.buffers().is_empty(), "a descriptor with buffers of its own");
        let work = self.work_mut();
        work.op = order.op;
        work.fence = order.fence;
        work.immediate = order.immediate;
        work.remote = order.remote;
        work.context = order.context;
        work.flaw = order.flaw;
        let mut old = work.segments.iter();
        let same =
            segments.clone().all(|new| old.next().is_some_and(|old| *old == new)) && old.next().is_none();
        if !same {
            work.segments.clear();
            work.segments.extend(segments);
            let total = work.segments.iter().map(|s| u64::from(s.len)).sum::<u64>();
            // What does not fit into the word is longer than any VI allows, and comes back as such.
            work.total = u32::try_from(total).unwrap_or(u32::MAX);
            work.stamp = 0;
        }
        if order.flaw != Status::Success {
            work.stamp = 0;
        }
    }
}

/// Adds to the 64-bit word at `addr` and gives the old value.
///
/// # Safety
/// `addr` is mapped, writable and aligned to 8 bytes.
pub unsafe fn fetch_add(addr: *mut u8, value: u64) -> u64 {
    // SAFETY: by the caller's promise.
    unsafe { &*addr.cast::<AtomicU64>() }.fetch_add(value, Ordering::AcqRel)
}

/// Swaps the 64-bit word at `addr` if it equals `expected` and gives the old value.
///
/// # Safety
/// `addr` is mapped, writable and aligned to 8 bytes.
pub unsafe fn compare_swap(addr: *mut u8, expected: u64, new: u64) -> u64 {
    // SAFETY: by the caller's promise.
    let word = unsafe { &*addr.cast::<AtomicU64>() };
    match word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(old) | Err(old) => old,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heap_memory_is_used_in_every_way_and_given_back() {
        let memory = RawMemory::from_heap((0..64).collect());
        let mut out = [0; 5];
        memory.read(59, &mut out);
        assert_eq!(out, [59, 60, 61, 62, 63]);
        memory.write(1, &[9; 3]);
        assert_eq!(memory.atomics()[3].load(Ordering::Relaxed), 9);
        let aligned = memory.ptr().align_offset(8);
        memory.word(aligned).store(7, Ordering::Relaxed);
        // SAFETY: the word is aligned and inside, and nobody else has the memory.
        unsafe {
            assert_eq!(fetch_add(memory.ptr().add(aligned), 1), 7);
            assert_eq!(compare_swap(memory.ptr().add(aligned), 8, 5), 8);
            assert_eq!(memory.slice(aligned, 8), 5u64.to_ne_bytes());
            memory.slice_mut(63, 1)[0] = 1;
        }
        assert_eq!(memory.into_heap().unwrap()[63], 1);
        drop(RawMemory::from_heap(vec![1]));
    }

    #[test]
    fn memory_of_others_is_not_freed() {
        let owner: Arc<dyn Any + Send + Sync> = Arc::new(());
        let mut bytes = [0u8; 16];
        // SAFETY: the array outlives both, and nobody else has it.
        let (shared, borrowed) = unsafe {
            (
                RawMemory::from_shared(bytes.as_mut_ptr(), 16, owner.clone()),
                RawMemory::borrowed(bytes.as_mut_ptr(), 16),
            )
        };
        drop(borrowed);
        assert_eq!(Arc::strong_count(&owner), 2);
        assert!(shared.into_heap().is_err());
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    #[test]
    fn lent_memory_is_waited_for_and_only_read() {
        let bytes: Vec<u8> = (0..64).collect();
        let kept = std::sync::Mutex::new(None);
        let (taken, done) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while taken.load(Ordering::Acquire) == 0 {
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_millis(5));
                let buffer: Buffer = kept.lock().unwrap().take().unwrap();
                assert_eq!(buffer.to_vec(3), [8, 9, 10]);
                done.store(1, Ordering::Release);
                drop(buffer);
            });
            lend(&bytes, |buffer| {
                assert!(buffer.is_lent());
                *kept.lock().unwrap() = Some(buffer.split_at(8).1);
                taken.store(1, Ordering::Release);
            });
            assert_eq!(done.load(Ordering::Acquire), 1, "came back before it was given back");
        });
        type Use = fn(Buffer);
        let uses: [Use; 5] = [
            |mut b| b.write(0, &[1]),
            |b| _ = b.atomics(),
            |b| _ = b.word(0),
            |b| drop(Descriptor::recv(b)),
            |b| drop(Descriptor::new(crate::Op::RdmaRead).segment(b)),
        ];
        for (n, wrong) in uses.into_iter().enumerate() {
            let caught = std::panic::catch_unwind(|| lend(&bytes, wrong));
            assert!(caught.is_err(), "{n}: lent memory was taken to be written to");
        }
        assert!(lend(&bytes, |b| Descriptor::send(b).into_buffer().into_vec().is_err()));
    }

    #[test]
    #[should_panic(expected = "outside the memory")]
    fn a_word_past_the_end_is_refused() {
        let memory = RawMemory::from_heap(vec![0; 12]);
        let _ = memory.word(8);
    }

    #[test]
    fn places_are_found_by_a_running_index() {
        let mut n = 0;
        let mut places = Places::new(3, || {
            n += 1;
            n
        });
        *places.at_mut(u32::MAX) = 9;
        assert_eq!([0, 1, 2, 3, 4, 7].map(|i| *places.at(i)), [1, 2, 3, 9, 1, 9]);
    }

    #[test]
    fn a_watch_sees_its_tag_and_tires() {
        assert!(!Watch { ..Watch::NONE }.is_quiet());
        let word = AtomicU64::new(0);
        // SAFETY: the word outlives the watch.
        let mut watch = unsafe { Watch::new(&word, 3) };
        assert!(watch.is_quiet());
        word.store(3 << 48 | 1, Ordering::Relaxed);
        assert!(!watch.is_quiet());
        word.store(0, Ordering::Relaxed);
        assert_eq!((0..2 * WATCHED_POLLS).filter(|_| watch.is_quiet()).count() as u32, WATCHED_POLLS - 2);
    }
}
