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
//! ```
//!
//! The protocol runs in a simulator (`sim`, tests only). Access engines, nodes of processes and the programmer's
//! interface are not there yet.

#![forbid(unsafe_code)]

mod acquire;
pub mod ids;
pub mod protocol;
mod release;
pub mod serve;
#[cfg(test)]
mod sim;
pub mod sync;
pub mod variant;
pub mod worker;
pub mod world;
