//! Atomics of ring, doorbells and directory, by a name of their own: the loom models (`tests/loom_*.rs`) include those
//! sources a second time, with a module `sync` beside them that has loom's.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
