//! Cashmere: distributed shared memory by home-based, moderately lazy release consistency (the Cashmere paper, section 2).
//!
//! ```text
//!   ids          nodes, workers, pages, and sets of them
//!   variant      the rows of Table I: which kind of communication goes by remote write, which by message
//!   protocol     pure state machines: pages, locks, barriers
//!   worker       what a worker does at a fault, over any world; release, acquire: at those
//!   sync         locks, barriers, flags
//!   serve        what a node answers
//!   world        what worker and server need of their surroundings
//!   node         nodes of real processes: shared entries, messages, a server
//!   dsm          what a program sees: arrays, epochs, locks
//!   raw          the one place that touches shared memory
//! ```
//!
//! The protocol also runs in a simulator (`sim`, tests only).

#![deny(unsafe_code)]

mod acquire;
pub mod dsm;
pub mod ids;
pub mod node;
pub mod protocol;
mod raw;
mod release;
pub mod serve;
#[cfg(test)]
mod sim;
pub mod statistics;
pub mod sync;
pub mod variant;
pub mod worker;
pub mod world;

pub use dsm::{Array, Dsm, Epoch};
pub use raw::Plain;
