//! Stream sockets over VIA, with the protocol of SOVIA: user-level sockets that need no kernel on the data path.
//!
//! ```text
//!   Stream, Listener      the calls of std's TcpStream and TcpListener; for tokio the same (feature `tokio`)
//!        │
//!   Sovia                 a driver (`viaduct_via::driver`) with the engine; how threads wait
//!        │                its service thread accepts, fires timers, finishes what is closed
//!   engine ── socket      descriptors, buffers, completions        (VIA below)
//!        │
//!   protocol              window, acknowledgements, combining, figure 8: pure, without bytes or clock
//!   wire                  packet types in the immediate data
//! ```
//!
//! A program opens a NIC on a provider of its choice and hands it over. Streams are reliable and in order, block or do not,
//! can be half closed, and come from the same peers that VIA connects: processes of a host through shared memory, others
//! over the network. Each optimisation of the paper is a setting ([`Config`], [`Step`]).
//!
//! # Example
//!
//! ```
//! use std::io::{Read, Write};
//! use viaduct_sovia::{Config, Sovia};
//! use viaduct_via::Nic;
//!
//! let hub = viaduct_providers::loopback::Hub::new();
//! let server = Sovia::open(Nic::open(hub.provider())?, Config::default())?;
//! let client = Sovia::open(Nic::open(hub.provider())?, Config::default())?;
//!
//! let listener = server.listen("via://:7000", 16)?;
//! let mut asking = client.connect("via://localhost:7000")?; // stands before accept is called
//! asking.write_all(b"how far is it?")?;
//! asking.flush()?;
//!
//! let mut answering = listener.accept()?;
//! let mut question = [0; 14];
//! answering.read_exact(&mut question)?;
//! assert_eq!(&question, b"how far is it?");
//! # drop(answering);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc, missing_debug_implementations)]

pub mod address;
mod calm;
mod config;
mod ending;
mod engine;
mod error;
pub mod knobs;
mod lending;
mod library;
mod listener;
mod outbound;
mod pool;
pub mod protocol;
mod socket;
mod stream;
mod table;
#[cfg(feature = "tokio")]
pub mod tokio;
mod watch;
pub mod wire;

pub use config::{Config, Handling, Path, Step, Waiting};
pub use error::Error;
pub use library::{Activity, Sovia};
pub use listener::Listener;
pub use stream::Stream;
pub use watch::{Readiness, StreamWatch};
