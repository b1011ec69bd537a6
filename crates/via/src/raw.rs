//! The unsafe floor of the model: segments that point into memory (`memory/raw.rs`), and what is found by address.
//!
//! Everything above works with [`Buffer`]s, which own their memory.

use std::sync::atomic::{AtomicU64, Ordering};

use viaduct_os::segment::Segment;

use crate::attributes::MemAttributes;
use crate::buffer::Buffer;
use crate::counters::COUNTS;
use crate::descriptor::{Descriptor, Op, RemoteAddress, Status};
pub use crate::memory::raw::{RawMemory, lend};
use crate::memory::{MemHandle, RegionInfo};
use crate::nic::Nic;

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

// SAFETY: a segment is an address; the caller that posts it promises that it stays valid until the descriptor is back.
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

impl RegionInfo {
    /// A region as the model describes it to a provider.
    ///
    /// # Safety
    /// `base..base + len` is mapped, readable and writable until the region is withdrawn, and lies where `locator` says.
    pub unsafe fn new(
        base: u64,
        len: u64,
        attributes: MemAttributes,
        locator: Option<Locator>,
    ) -> RegionInfo {
        RegionInfo { base, len, attributes, locator }
    }
}

impl Buffer {
    /// The bytes as a slice, if no peer has rights to their memory: what [`Nic::buffer`](crate::Nic::buffer) gives, what is
    /// allocated or registered as [local](MemAttributes::local), and heap memory.
    ///
    /// None for memory that peers may read or write, that other processes share, or into which a receive was not carried
    /// out; [`read`](Self::read) works for all of it. Peers get no rights to a region any more once a slice of it was taken.
    #[inline]
    pub fn slice(&self) -> Option<&[u8]> {
        if !self.gives_slices() {
            return None;
        }
        let (memory, start, len) = self.place();
        // SAFETY: a posted buffer is inside its descriptor; no peer has rights to the region, nor gets them, and the
        // last receive into this buffer, if there was one, succeeded, so that its sender is through with it.
        Some(unsafe { memory.slice(start, len) })
    }

    /// The bytes as a mutable slice, as [`slice`](Self::slice) gives them; None also of bytes that are lent or shared.
    #[inline]
    pub fn slice_mut(&mut self) -> Option<&mut [u8]> {
        if self.is_lent() || !self.gives_slices() {
            return None;
        }
        let (memory, start, len) = self.place();
        // SAFETY: as above; buffers of one region never overlap and this one is borrowed mutably.
        Some(unsafe { memory.slice_mut(start, len) })
    }

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
pub struct WatchWord {
    word: *const AtomicU64,
    tag: u64,
    left: u32,
    /// What was watched has come and was dealt with.
    moved: bool,
}

// SAFETY: the word is an atomic; the caller that makes a watch word promises how long it lives.
unsafe impl Send for WatchWord {}

/// Polls answered by the watch before a full one.
const WATCHED_POLLS: u32 = 128;

impl WatchWord {
    /// Nothing to watch.
    pub const NONE: WatchWord = WatchWord { word: std::ptr::null(), tag: 0, left: 0, moved: false };

    /// Watches `word` for `tag`.
    ///
    /// # Safety
    /// The word stays valid until the endpoint that made the watch is dropped, or polled again.
    #[inline]
    pub unsafe fn new(word: &AtomicU64, tag: u64) -> WatchWord {
        WatchWord { word, tag, left: WATCHED_POLLS, moved: false }
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

// SAFETY: points to atomics; `word` decides when they may be used.
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
    /// `addr..addr+len` stays mapped (and, for receives and reads, writable and used by no other code) until the
    /// descriptor is back.
    ///
    /// # Panics
    /// If the descriptor would pass 4 GiB.
    pub unsafe fn raw_segment(mut self, addr: *mut u8, len: u32, handle: MemHandle) -> Descriptor {
        self.push(RawSegment { addr, len, handle });
        self
    }
}

/// A number that changes when a region is withdrawn or gets other rights, and is never that of another NIC: as long as it stays
/// what it was, so does what was found out about regions. Never 0.
#[inline]
pub fn regions_stamp(nic: &Nic) -> u64 {
    nic.mem.stamp()
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
    /// What its segments have to add up to; None if any length will do.
    pub length: Option<u32>,
}

/// The usual case of [`refill`]: nothing but the number changes, since the same plain send or receive with this one segment
/// was made of the descriptor before. Returns false, and does nothing, if that is not so.
#[inline]
pub fn refill_alike(used: &mut Descriptor, op: Op, segment: RawSegment, context: u64) -> bool {
    let work = used.work_mut();
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

/// What is known to be wrong with it since it was [filled](refill).
pub fn flaw(filled: &Descriptor) -> Status {
    filled.work().flaw
}

/// Makes something else of a descriptor that owns no buffers, without allocating: the post of C libraries, whose
/// programs own descriptors and memory. Segments that stay the same need not be checked again.
///
/// Each segment is taken from the iterator once, and that copy is what is judged and used: it may lie in memory that
/// a peer writes. A segment without a region is a protection error here, since a C program promises nothing about
/// memory that it did not register.
///
/// # Safety
/// As [`Descriptor::raw_segment`], for each of the segments.
///
/// # Panics
/// If the descriptor owns buffers.
#[inline]
pub unsafe fn refill(used: &mut Descriptor, order: &RawOrder, segments: impl Iterator<Item = RawSegment>) {
    assert!(used.buffers().is_empty(), "a descriptor with buffers of its own");
    let work = used.work_mut();
    // Receives and other operations are checked by different rules.
    let mut same = work.op == order.op;
    work.op = order.op;
    work.fence = order.fence;
    work.immediate = order.immediate;
    work.remote = order.remote;
    work.context = order.context;
    work.flaw = order.flaw;
    let (mut count, mut total, mut registered) = (0, 0, true);
    for new in segments {
        match work.segments.get_mut(count) {
            Some(old) if *old == new => {}
            Some(old) => (*old, same) = (new, false),
            None => {
                work.segments.push(new);
                same = false;
            }
        }
        (count, total) = (count + 1, total + u64::from(new.len));
        registered &= new.handle != MemHandle::NONE;
    }
    if work.segments.len() != count {
        work.segments.truncate(count);
        same = false;
    }
    if !same {
        // What does not fit into the word is longer than any VI allows, and comes back as such.
        work.declared = u32::try_from(total).unwrap_or(u32::MAX);
        work.total = work.declared;
        work.stamp = 0;
    }
    if work.flaw == Status::Success && !registered {
        work.flaw = Status::ProtectionError;
    }
    if work.flaw == Status::Success && order.length.is_some_and(|length| u64::from(length) != total) {
        work.flaw = Status::LengthError;
    }
    if work.flaw != Status::Success {
        work.stamp = 0;
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
        assert!(!WatchWord { ..WatchWord::NONE }.is_quiet());
        let word = AtomicU64::new(0);
        // SAFETY: the word outlives the watch.
        let mut watch = unsafe { WatchWord::new(&word, 3) };
        assert!(watch.is_quiet());
        word.store(3 << 48 | 1, Ordering::Relaxed);
        assert!(!watch.is_quiet());
        word.store(0, Ordering::Relaxed);
        assert_eq!((0..2 * WATCHED_POLLS).filter(|_| watch.is_quiet()).count() as u32, WATCHED_POLLS - 2);
    }
}
