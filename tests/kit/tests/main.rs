//! The tests of the kit in one binary, but the one that counts allocations.

mod children;
mod leaks;
mod limits;
mod no_heap_count;
mod skips;
