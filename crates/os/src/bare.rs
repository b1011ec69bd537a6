//! The part of this crate that may be loaded into a foreign application: raw system calls, a lock word that survives the
//! death of its owner, a lock of one process, and a page that says whether this is still the process that made it.
//!
//! A library that is preloaded replaces names of libc, `read` and `close` among them. Code that runs below those names
//! must not call them, must not allocate (the application may be inside of its allocator, or in a signal handler), must
//! not keep files open and must not register handlers: a file of the kernel's is opened, read and closed by system calls, where
//! a lock asks whether its owner lives. Everything here keeps to that: the kernel is entered by the
//! instruction itself, and nothing is remembered but what the caller hands in. Two names of libc are called all the same, as they answer from
//! memory: the clock, and the number of the CPU ([`calls::now`] says what follows from that). The rest of this crate does not keep to
//! it; of that only [`copy`](crate::copy) may be used beside this module, after [`copy::detect`](crate::copy::detect).

pub mod calls;
pub mod cancel;
pub mod files;
mod gate;
pub mod local;
pub mod lock;
pub mod signals;
pub mod sockets;
pub mod stack;
pub mod start;
mod sync;
pub mod whoami;

pub use gate::{Errno, syscall};
