//! In a binary without the counting allocator, counting fails instead of proving nothing.

use viaduct_kit::alloc::allocations_during;

#[test]
#[should_panic(expected = "not this binary's #[global_allocator]")]
fn counting_without_counter_is_refused() {
    allocations_during(|| Box::new(1));
}
