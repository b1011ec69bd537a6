//! The counting allocator counts this thread's calls, and only those.

use std::hint::black_box;
use std::thread;

use viaduct_kit::alloc::{CountingAlloc, allocations_during, allocations_everywhere_during, heap_use_during};

#[global_allocator]
static ALLOC: CountingAlloc = CountingAlloc;

#[test]
fn work_without_the_heap_counts_nothing() {
    let mut numbers = [3, 1, 2];
    let used = heap_use_during(|| numbers.sort_unstable());
    assert_eq!((used.allocations, used.frees, used.bytes), (0, 0, 0));
}

#[test]
fn each_call_is_counted() {
    let used = heap_use_during(|| {
        let mut bytes: Vec<u8> = Vec::with_capacity(10);
        bytes.reserve_exact(black_box(100));
        bytes
    });
    assert_eq!((used.allocations, used.frees, used.bytes), (2, 0, 110));
    assert_eq!(heap_use_during(|| drop(black_box(Box::new(7_u32)))).frees, 1);
    assert_eq!(allocations_during(|| black_box(vec![0_u8; 32])), 1);
}

#[test]
fn other_threads_count_only_everywhere() {
    let work = || {
        let worker = thread::spawn(|| (0..1000).for_each(|number| drop(black_box(Box::new(number)))));
        worker.join().unwrap();
    };
    assert!(allocations_during(work) < 100);
    assert!(allocations_everywhere_during(work) >= 1000);
}
