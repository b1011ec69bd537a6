//! Pure state machines: values in, decisions out; no memory, network, clock or thread.
//!
//! A node keeps one [`page::Page`] for each page in memory that its processes share. A process locks the entry, asks it
//! what to do, stores it back and carries the decision out; what takes time marks the entry busy until it has ended.

pub mod barrier;
pub mod fault;
pub mod flush;
pub mod home;
pub mod lock;
pub mod page;
pub(crate) mod rules;
