//! Faults: peers that are killed, stopped, hostile or forked, and resources that run out.
//!
//! The notes on reliability (section 5) state a contract; each suite here holds the shared-memory provider to a part:
//!
//! ```text
//!   tests/kill.rs       a peer ends at every named step        no call blocks for ever, every descriptor comes back
//!   tests/outlive.rs    a sender ends after its send completed the message arrives
//!   tests/stop.rs       a peer stops and goes on               stopped is not dead
//!   tests/hostile.rs    a peer writes garbage                  a clean error, and no other peer is concerned
//!   tests/handshake.rs  strangers at the socket                the same, before there is a connection
//!   tests/crowd.rs      too many at the socket                 a client that means it gets through
//!   tests/notes.rs      strangers after the handshake          the same
//!   tests/fork.rs       a process forks in the middle          the parent's pages, the parent's connections
//!   tests/limits.rs     descriptors and memory run out         a typed error, and it works again after relief
//!   tests/mapping.rs    a peer's segment cannot be mapped      the same
//!   tests/folders.rs    the run-time folder is full, foreign   the same
//!   tests/channel.rs    control messages find no room          they wait and go on
//!   tests/notices.rs    a peer dies, however one waits         the wait ends
//!   tests/realtime.rs   an owner spins under SCHED_FIFO        it gives way to the threads it waits for
//!   tests/idle.rs       nothing happens                        no CPU
//!   tests/data_path.rs  post and poll                          no system call, no allocation
//!   tests/many.rs       a thousand connections                 they fit
//! ```
//!
//! A [`session`] goes through a [`plan`] in which every way of the provider is used; an [`actor`] is a child process
//! that does the same and meets its fate at a point (`viaduct_os::point`); a [`sweep`] does so for every point there
//! is, and prints its totals.
//!
//! ```no_run
//! use viaduct_faults::node::Mode;
//! use viaduct_faults::plan::Role;
//!
//! viaduct_faults::sweep::sweep(Mode::Direct, Role::Client);
//! ```

pub mod actor;
pub mod door;
pub mod footprint;
pub mod forking;
pub mod frozen;
pub mod heard;
pub mod ledger;
pub mod lingering;
pub mod node;
pub mod plan;
pub mod scribbler;
pub mod session;
mod steps;
pub mod sweep;
