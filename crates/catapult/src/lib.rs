//! Catapult: starts any program, unmodified, as the ranks of a job on this host and on others (Millennium Sort, sections
//! 3.1 and 4.3).
//!
//! ```text
//!   words, hosts, allocation ──▶ plan: ranks on nodes
//!                                  │
//!   guard ── worker: control ──────┼── node, here: ranks, their output, their PMI
//!              │  input, writer    └── far ── agent's worker: node, there
//!              │                              └── relay ── agent's worker: node, further down the tree ── …
//!              └─ output: merged lines, labels, folding, objects; outcome: the table and the exit status
//! ```
//!
//! Beyond the paper: input, signals and exit codes travel, output is merged by lines, nothing outlives its job
//! whichever process is killed, programs of MPICH start unchanged, and a rank can run in a debugger.
//!
//! ```
//! use viaduct_catapult::hosts::Host;
//! use viaduct_catapult::plan::{MapBy, Placement, Wish};
//!
//! let hosts = [Host { name: "a".into(), slots: 2 }, Host { name: "b".into(), slots: 2 }];
//! let three = Wish { count: Some(3), ..Wish::default() };
//! let placement = Placement::new(&[three], &hosts, None, MapBy::Slot).unwrap();
//! assert_eq!(placement.host_of_ranks(), ["a", "a", "b"]);
//! ```

#![forbid(unsafe_code)]

pub mod allocation;
pub mod binding;
mod complaints;
pub mod control;
pub mod dry;
pub mod elf;
pub mod environment;
mod errand;
pub mod error;
pub mod far;
pub mod guard;
pub mod hosts;
mod input;
pub mod jobs;
pub mod knobs;
pub mod node;
pub mod outcome;
pub mod output;
pub mod plan;
pub mod reach;
mod relay;
pub mod remote;
pub mod rescue;
pub mod role;
pub mod stage;
pub mod tidy;
pub mod tree;
pub mod wire;
pub mod words;
mod worker;
pub mod writer;

pub use error::Error;
