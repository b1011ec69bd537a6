//! Benchmarks of Viaduct: what is measured, how, and what is written down.
//!
//! ```text
//!   first process (pinned)                        second process (pinned, started by the first)
//!   run -> cases -> measure ------ orders ------> peer
//!            |         | probe, slice, probe        |
//!            |       loops  <===== a layer =====>  loops        layers: raw copy unix tcp ... and providers
//!        summary <- stats
//!            |
//!    viaduct-results: JSON lines, statistics, report
//! ```
//!
//! Rules, each with its reason in the file named:
//!
//! - Layers that are compared are measured in one run, in short slices in random order ([`run()`]).
//! - A bare cache-line ping-pong before and after every slice tells where the two cores are; only slices of one
//!   placement are compared ([`Placement`]).
//! - The second process may be on another host, where `viaduct bench --listen` runs ([`listen()`]); nothing else changes.
//! - The receiver reads every byte inside the timed region, in every case and every layer.
//! - Every layer proves with patterned data that it delivers before a number is printed; otherwise the result says
//!   `valid: false` and carries none (`viaduct_results::schema`).
//! - The headline is a median with an interval from order statistics (`viaduct_results::stats`), never a mean.
//!
//! Nothing here prints: the program `viaduct` does.
#![deny(unsafe_code)]

pub mod cases;
mod catalogue;
mod control;
pub mod demo;
pub mod dsm;
mod error;
pub mod launch;
pub mod layers;
mod link;
mod listen;
mod logp;
mod loops;
mod measure;
mod motion;
pub mod mpi;
mod orders;
pub mod outside;
mod paced;
mod pairing;
mod pattern;
mod peer;
mod plan;
mod probe;
#[allow(unsafe_code)]
mod raw;
pub mod rivals;
mod run;
mod session;
pub mod sorting;
mod standby;
pub mod suite;
mod summary;
mod timer;

use viaduct_results::{host, rng, schema, size, stats};

pub use cases::Case;
pub use catalogue::catalogue;
pub use error::{Error, Result};
pub use layers::Layer;
pub use listen::{Call, listen};
pub use peer::{serve as serve_peer, serve_far};
pub use plan::{Motion, Repost, SendMode, Settings, Wait};
pub use probe::Placement;
pub use run::{Event, run, sort_for_reading};
pub use session::PeerCommand;
pub use standby::serve as serve_standby;
pub use timer::Timer;
