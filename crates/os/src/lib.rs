//! The only door to Linux: what every other crate of Viaduct asks of the kernel and of the CPU.
//!
//! The design (section 1) keeps system calls and the `unsafe` that goes with them in one place. Two processes that want
//! to reach each other's memory need four things, and each has one answer here:
//!
//! ```text
//!     process A                                                    process B
//!   +-------------+   fdpass: a packet socket in runtime_dir,   +-------------+
//!   |  Channel    |-------- descriptors and credentials --------|  Listener   |     1. to meet
//!   +-------------+                                             +-------------+
//!   |  Segment    |====== one sealed memfd, mapped twice =======|  Segment    |     2. to share
//!   |   copy      |------ payload, last word with release ----->|   (polls)   |     3. to move bytes
//!   |   ring      |------ only if the state says "asleep" ----->|  BellWord   |     4. to wait
//!   +-------------+                                             |  WaitPolicy |
//!                                                               +-------------+
//! ```
//!
//! 1. **Meeting**: [`runtime_dir`] finds a folder that only this user can enter, [`fdpass`] connects and hands over
//!    descriptors, [`process`] says whether the peer lives, [`epoll`] lets one thread watch all of that.
//! 2. **Sharing**: [`segment`] makes memory that a peer can neither shrink nor leave unallocated, within a [`budget`];
//!    [`fork`] says what becomes of it in children.
//! 3. **Moving**: [`copy`] is the only routine that touches payload.
//! 4. **Waiting**: [`wait`] decides between spinning, yielding and sleeping; [`bell`] is how one sleeps and how one
//!    wakes, on a [`futex`] or an [`eventfd`], and [`barrier`] makes waking free when no thread sleeps.
//!
//! A launcher needs a fifth: [`children`] starts processes that cannot outlive it, [`signals`] says what came for them, and
//! [`inherit`] takes over what it left open for them.
//!
//! Programs that move files have a sixth: [`files`] for direct I/O, [`uring`] for many transfers under way, [`arena`] for memory
//! that both can use, and [`prefetch`](mod@prefetch).
//! Distributed shared memory has a seventh: [`fault`], windows of pages whose faults a library serves, and [`differ`], what has
//! changed in a page.
//! What is preloaded into foreign applications uses [`bare`] and nothing else of this crate but [`copy`].
//!
//! Beside them stand [`clock`], [`cpu`], [`random`], [`turn`], a lock for what one thread uses most, and [`farewell`], the
//! end of a process; and every failure is an [`error::OsError`] that names its cause and one way out.
//!
//! What this crate does not know: descriptors of VIA, rings, protocols, providers. Memory that a peer can write is
//! handed out as an address, never as a reference: how to read it safely is the business of the reader.
//!
//! # Example
//!
//! A message from one mapping to another of the same segment, with a sleeper on the other side:
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use viaduct_os::bell::BellWord;
//! use viaduct_os::budget::Budget;
//! use viaduct_os::segment::{Access, Segment};
//! use viaduct_os::wait::{WaitConfig, WaitPolicy};
//! use viaduct_os::{barrier, copy};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! barrier::register();
//! let ours = Segment::create("example", 4096, Budget::process())?;
//! // A peer would get the descriptor through a Channel.
//! let theirs = Segment::open(ours.dup_fd()?, Access::ReadWrite, 1 << 20)?;
//!
//! // The bell at offset 0, the message at 64.
//! // SAFETY: a page is zeroed and aligned, and an all-zero BellWord or AtomicU64 is valid; both allow shared writes.
//! let (bell, word) = unsafe {
//!     (&*theirs.as_ptr().cast::<BellWord>(), &*theirs.as_ptr().add(64).cast::<AtomicU64>())
//! };
//! let receiver = |bell: &BellWord, word: &AtomicU64| {
//!     let look = || Some(word.load(Ordering::Acquire)).filter(|&value| value != 0);
//!     WaitPolicy::new(WaitConfig::default()).wait(None, look, bell)
//! };
//! std::thread::scope(|scope| {
//!     let received = scope.spawn(|| receiver(bell, word));
//!     let message = 42u64.to_ne_bytes();
//!     // SAFETY: the segment has room for 8 bytes at offset 64, and only atomics look at them.
//!     unsafe { copy::copy_release_tail(ours.as_ptr().add(64), message.as_ptr(), 8) };
//!     bell.ring(None);
//!     assert_eq!(received.join().unwrap(), Some(42));
//! });
//! # Ok(())
//! # }
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!("Viaduct stands on memfds, futexes and pidfds: it needs Linux");

pub mod arena;
pub mod bare;
pub mod barrier;
pub mod bell;
pub mod budget;
mod cgroup;
pub mod children;
pub mod clock;
pub mod copy;
pub mod cpu;
mod crowd;
pub mod differ;
pub mod epoll;
pub mod error;
pub mod eventfd;
pub mod farewell;
pub mod fault;
pub mod fdpass;
pub mod files;
pub mod forgotten;
pub mod fork;
pub mod futex;
pub mod inherit;
pub mod knob;
pub mod log;
pub mod memory;
pub mod networks;
pub mod pages;
pub mod point;
pub mod poll;
pub mod prefetch;
pub mod proc_fd;
pub mod process;
pub mod random;
pub mod runtime_dir;
pub mod segment;
pub mod signals;
mod sync;
pub mod turn;
pub mod uring;
pub mod wait;
