//! Atomics of the bell, by a name of their own: the loom models of `crates/providers` include its source a second time,
//! with a module `sync` beside it that has loom's.

pub(crate) use std::sync::atomic::{AtomicU32, Ordering};
