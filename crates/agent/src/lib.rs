//! The agent: one process for each user and host that does things there on the owner's behalf (Catapult's node side in
//! Millennium Sort, section 3.1; what it does is a *role*, and launching is the first).
//!
//! ```text
//!   launcher                                            host
//!   bootstrap ── ssh, once ──▶ join ──▶ serve            the agent: Unix socket (same user), TCP (pinned keys)
//!   reach ══════ Noise IK ════▶ link ── first message ──▶ fork: a worker runs the role, the agent guards it
//! ```
//!
//! Callers that get in: over the Unix socket, processes of the same user, by the kernel's word; over the network, owners of a
//! key that was brought in over ssh, or of a ticket by such an owner. Both ends know the other's key before the first byte
//! (`docs/protocols/catapult.md`). An
//! agent leaves when nothing has happened for a while.

#![forbid(unsafe_code)]

pub mod bootstrap;
pub mod error;
pub mod identity;
pub mod knobs;
pub mod known;
pub mod link;
pub mod local;
pub mod meet;
pub mod serve;
pub mod session;
pub mod ticket;

pub use error::Error;
pub use identity::{Identity, PublicKey};
pub use link::Link;
pub use ticket::Ticket;
