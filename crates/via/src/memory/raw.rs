//! Memory as address and length, with its owner: taken over, shared, borrowed by promise, or lent for a while.
//!
//! A peer may write it at any time (DESIGN 2.3), so it is only touched through the copy routine of `os` or through atomics;
//! a plain slice of it exists behind `unsafe` alone. What is lent can only be read.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::buffer::Buffer;

/// Memory that stays where it is until dropped.
pub struct RawMemory {
    ptr: *mut u8,
    len: usize,
    owner: Owner,
}

enum Owner {
    /// A boxed slice given to us; freed as one.
    Heap,
    /// Another owner frees it once this is dropped.
    Shared(#[allow(dead_code)] Arc<dyn Any + Send + Sync>),
    /// The caller of an unsafe function promised that it outlives us.
    Borrowed,
    /// A slice of a caller that waits until this is dropped; it is only read.
    Lent(#[allow(dead_code)] Arc<()>),
    /// Bytes that other code reads too.
    ReadOnly(#[allow(dead_code)] Arc<[u8]>),
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

    /// Bytes that are shared with other code, and only read.
    pub fn from_arc(bytes: Arc<[u8]>) -> RawMemory {
        RawMemory { ptr: bytes.as_ptr().cast_mut(), len: bytes.len(), owner: Owner::ReadOnly(bytes) }
    }

    /// Memory kept alive by `owner`.
    ///
    /// # Safety
    /// `ptr..ptr+len` is mapped, readable and writable for as long as `owner` lives, and no other code of this
    /// process has a Rust reference to it.
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

    /// Whether it is a slice that was [lent](lend), or shared by an `Arc`, and can only be read.
    pub fn is_lent(&self) -> bool {
        matches!(self.owner, Owner::Lent(_) | Owner::ReadOnly(_))
    }

    /// Whether no other process can write it, and no other code of this process does.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.owner, Owner::Heap | Owner::Lent(_) | Owner::ReadOnly(_))
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
    ///
    /// # Errors
    /// The memory, if it is not of the heap.
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
    /// No thread, no peer and no posted descriptor writes the range while the slice lives.
    pub unsafe fn slice(&self, offset: usize, len: usize) -> &[u8] {
        self.check(offset, len);
        // SAFETY: in range; no writer by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.ptr.add(offset), len) }
    }

    /// The memory as a mutable slice.
    ///
    /// # Safety
    /// No other thread, no peer and no posted descriptor touches the range while the slice lives.
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

/// Lends bytes to the sends that `work` posts while it runs, as a buffer that need not be registered, and returns once
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
        // A thread that gave it back was through with it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::Descriptor;
    use crate::raw::{compare_swap, fetch_add};

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
        // SAFETY: the word is aligned and inside, and no other code has the memory.
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
        // SAFETY: the array outlives both, and no other code has it.
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
}
