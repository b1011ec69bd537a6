//! Page faults of a program as events of a library: windows whose pages are closed, readable or writable.
//!
//! For distributed shared memory (the Cashmere paper, section 2.1): the virtual memory system tells which pages a program
//! touches. A [`Window`] is a second mapping of a [`Segment`](crate::segment::Segment), protected page by page by one of two engines (behind one trait); [`serve`]
//! catches the faults in it and hands them to a function, on a stack of their own. Faults elsewhere go to the handlers
//! that were there before. [`promised`] names sparse memory, whose faults mean that the machine has none left.
//!
//! The function runs inside a signal handler, wherever the program was: it must not allocate, print, or take a lock that the
//! interrupted code could hold.

mod engine;
mod handler;
mod mprotect;
mod uffd;

pub use engine::{EngineKind, Window};
pub use handler::{Access, Catch, Lacking, Promised, Serving, Stack, promised, serve};

/// What a program may do with pages of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// Nothing: every touch is a fault.
    Closed,
    /// Load: a store is a fault.
    Read,
    /// Load and store.
    Write,
}
