//! The engine under the preloaded library: an unmodified program keeps its TCP sockets, and the bytes of those whose
//! other end is under Viaduct, too, move through shared memory.
//!
//! ```text
//!   application A                       agent                        application B
//!   TCP socket (companion) ═══════════ kernel ═════════════════════ TCP socket (companion)
//!     │ claim: the socket itself ──▶ one 4-tuple? ◀── claim: the socket itself │
//!     │ ◀── segment, bells ────────────────────────────── segment, bells ──▶  │
//!   ring A→B  ─────────────────────── memory ──────────────────────▶  ring A→B
//!   ring B→A  ◀────────────────────── memory ───────────────────────  ring B→A
//! ```
//!
//! SOVIA, section 3.4 ("compatibility layer"), with its limitations (section 6) taken away: a socket is shared by parent
//! and child, survives exec, and needs no clean-up at the end, because the kernel's socket stays and says
//! whether the peer lives.
//!
//! - [`table`]: what each descriptor is. [`claim`]: how a socket comes to an endpoint. [`layout`]: what a segment holds.
//! - [`receive`], [`send`](mod@send): each direction starts on TCP and changes to the ring at a recorded offset of the
//!   stream, so that no peer ever sees a byte more. When the peer ends its stream, sending goes back to TCP.
//! - [`rules`], [`learn`]: which connections the user, or their past, keeps from being claimed.
//! - [`back`]: a connection leaves its rings for good and is the kernel's again; [`carry`]: which programs need that;
//!   `relay`: what such a program gets if the peer has ended its stream before.
//! - [`shared`]: connections that several processes hold before their claim.
//! - [`poll`](mod@poll), [`epoll`]: readiness of both kinds. [`descriptors`]: close, dup, fork. [`room`]: how many of them are
//!   ours. [`leave`](mod@leave): calls that a signal handler's longjmp leaves.
//! - `agent` (a feature): what the agent does: it finds the two ends of one connection.
//!
//! Everything but the agent's part runs inside of foreign applications: no allocation, no thread, no handler, no name of
//! libc that the library exports; `viaduct_os::bare` says how. Memory that a peer writes is loaded once and checked.

#[cfg(feature = "agent")]
pub mod agent;
pub mod back;
pub mod carry;
pub mod claim;
mod companion;
pub mod descriptors;
mod endpoint;
pub mod epoll;
pub mod explain;
mod hangup;
pub mod layout;
pub mod learn;
pub mod leave;
pub mod poll;
pub mod raw;
pub mod receive;
mod relay;
pub mod room;
pub mod rules;
pub mod send;
pub mod settings;
pub mod shared;
pub mod splice;
pub mod table;
pub mod wait;
pub mod wire;

pub use descriptors::route;
