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
//!   statistics   counts and times of a run; clock: where the time of a process goes
//!   node         nodes of real processes: shared entries, messages, a server
//!   dsm          what a program sees: its place, allocation, faults, the end
//!   array        what lies in shared memory: arrays, guarded values, pointers
//!   epoch        the time between two synchronisations: borrows, locks, barriers, flags; borrowed: what is
//!   given        what the launcher tells the processes; progress: what a worker tells the launcher
//!   homes        homes of pages in a file; lone: a worker for counting instructions
//!   raw          the one place that touches shared memory
//! ```
//!
//! The protocol also runs in a simulator (`sim`, tests only).

#![deny(unsafe_code)]

mod acquire;
mod array;
mod borrowed;
mod clock;
pub mod dsm;
mod epoch;
pub mod given;
pub mod homes;
pub mod ids;
#[doc(hidden)]
pub mod lone;
pub mod node;
#[doc(hidden)]
pub mod probe;
pub mod progress;
pub mod protocol;
mod quiet;
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

pub use array::{Array, Guarded, Placement, Plain, Ptr};
pub use clock::Spent;
pub use dsm::Dsm;
pub use epoch::{Epoch, Hand, Mut, Ref};
