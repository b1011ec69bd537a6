//! Atomics of the lock word, by a name of their own: the loom model in `crates/providers` includes its source a second time,
//! with a module `sync` beside it that has loom's.

pub(super) use core::sync::atomic::{AtomicU64, Ordering};
