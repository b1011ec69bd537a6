//! Edges between nodes (Millennium Sort, section 3.2, Net Source and Net Sink): over VIA and over TCP.
//!
//! An edge carries buffers with what is said of them, in order, one way. A failure of the sender travels with its cause; the
//! receiver adds the node. Over VIA the receiver's posted receives are the credits of the sender, and the payload of a
//! registered pool is copied by the provider alone.

mod door;
mod frame;
mod mesh;
mod port;
mod receive;
mod send;
mod tcp;

pub use mesh::{Links, Mesh};
pub use port::Port;
pub use receive::ViaSource;
pub use send::ViaSink;
pub use tcp::{TcpSink, TcpSource};

use crate::error::Error;

/// Receives that a receiver keeps posted at most, and sends that a sender keeps under way.
const CREDITS: usize = 4;

fn failed(what: &'static str, node: u32, cause: &dyn std::fmt::Display) -> Error {
    Error::Net { what, node, cause: cause.to_string() }
}
