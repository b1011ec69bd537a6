//! A global allocator that counts, to prove that a path does not touch the heap.
//!
//! The test binary installs it once; counts are kept per thread, so other tests of the same binary do not disturb:
//!
//! ```
//! use viaduct_kit::alloc::{CountingAlloc, allocations_during};
//!
//! #[global_allocator]
//! static ALLOC: CountingAlloc = CountingAlloc;
//!
//! fn main() {
//!     assert_eq!(allocations_during(|| 1 + 1), 0);
//!     assert_eq!(allocations_during(|| Box::new(1)), 1);
//! }
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    // Constant and without destructor, so that reaching it never allocates and works until the thread's very end.
    static HERE: Cell<HeapUse> = const { Cell::new(HeapUse { allocations: 0, frees: 0, bytes: 0 }) };
}

static EVERYWHERE: AtomicU64 = AtomicU64::new(0);

/// The system's allocator with counters. Name it `#[global_allocator]` in the test binary.
#[derive(Debug)]
pub struct CountingAlloc;

/// Calls into the heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapUse {
    /// Allocations; growing or shrinking one counts as one.
    pub allocations: u64,
    /// Blocks given back.
    pub frees: u64,
    /// Bytes asked for.
    pub bytes: u64,
}

/// The number of allocations this thread makes while `work` runs. What `work` returns is dropped after counting.
///
/// # Panics
///
/// If the binary did not install [`CountingAlloc`]: a count that is always 0 would prove nothing.
pub fn allocations_during<R>(work: impl FnOnce() -> R) -> u64 {
    heap_use_during(work).allocations
}

/// Like [`allocations_during`], with frees and bytes.
///
/// # Panics
///
/// If the binary did not install [`CountingAlloc`].
pub fn heap_use_during<R>(work: impl FnOnce() -> R) -> HeapUse {
    assert_installed();
    let before = HERE.get();
    let result = black_box(work());
    let after = HERE.get();
    drop(result);
    HeapUse {
        allocations: after.allocations - before.allocations,
        frees: after.frees - before.frees,
        bytes: after.bytes - before.bytes,
    }
}

/// The number of allocations that all threads together make while `work` runs.
///
/// # Panics
///
/// If the binary did not install [`CountingAlloc`].
pub fn allocations_everywhere_during<R>(work: impl FnOnce() -> R) -> u64 {
    assert_installed();
    let before = EVERYWHERE.load(Ordering::SeqCst);
    let result = black_box(work());
    let after = EVERYWHERE.load(Ordering::SeqCst);
    drop(result);
    after - before
}

fn assert_installed() {
    let before = HERE.get().allocations;
    drop(black_box(Box::new(0_u64)));
    let counted = HERE.get().allocations > before;
    assert!(counted, "CountingAlloc is not this binary's #[global_allocator], so nothing is counted");
}

fn count_allocation(bytes: usize) {
    EVERYWHERE.fetch_add(1, Ordering::Relaxed);
    let seen = HERE.get();
    HERE.set(HeapUse { allocations: seen.allocations + 1, bytes: seen.bytes + bytes as u64, ..seen });
}

fn count_free() {
    let seen = HERE.get();
    HERE.set(HeapUse { frees: seen.frees + 1, ..seen });
}

// SAFETY: every call is handed to the system's allocator unchanged; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_allocation(size);
        // SAFETY: the caller keeps the contract of `realloc`, and the block came from the system's allocator.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count_free();
        // SAFETY: the caller keeps the contract of `dealloc`, and the block came from the system's allocator.
        unsafe { System.dealloc(block, layout) }
    }
}
