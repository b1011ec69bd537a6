//! The protocol between ranks, pure: calls and packets in, packets and finished requests out (section 4.1 of the thesis).
//!
//! ```text
//!   eager         sender ── EAGER, bytes ──▶ receiver            up to the eager limit, while the receiver has room for it
//!   in pieces     sender ── EAGER, MORE, … ▶ receiver            longer than a packet, and not longer than the limit
//!   rendezvous    sender ── START ─────────▶ receiver            a longer message, or one that finds no room
//!                        ◀─────────── REPLY                      when a receive takes it
//!                        ── DATA, DATA, … ─▶                     through posted receives
//!   pulled        sender ── START, place ──▶ receiver            a longer message that the receiver can read where it is
//!                        ◀───── (RDMA read), ACK                 the sender does nothing for it
//!   synchronous   sender ── EAGER ─────────▶ receiver
//!                        ◀───────────── ACK                      when a receive takes it
//! ```
//!
//! Each packet uses up one receive that the other end has posted ([`flow`]), and each eager byte room that the receiver has
//! for messages without a receive. Both come back with packets the other way, so what a rank keeps for a sender that runs
//! ahead is bounded: the posted receives, the room, and an envelope for each of the sender's own requests.
//!
//! [`Core`] is one rank. It moves bytes between spans and packets and knows nothing of NICs: the engine is its [`Port`],
//! in tests a simulated network is.

pub mod core;
pub mod flow;
pub mod packet;
mod peer;
mod pieces;
mod receive;
mod requests;
mod send;
mod soon;

#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

pub use self::core::{Core, Limits, Manner, Payload, Port, Pull, Pulling, Source};
pub use packet::Packet;
pub use receive::PLACE;
pub use requests::{Done, Request, Status};
pub use soon::Soon;
