//! Edges between nodes (Millennium Sort, section 3.2, Net Source and Net Sink): over VIA and over TCP.
//!
//! An edge carries buffers with what is said of them, in order, one way. A failure of the sender travels with its cause; the
//! receiver adds the node. Over VIA the receiver's posted receives are the credits of the sender.

mod frame;
mod tcp;
mod via;

pub use tcp::{TcpSink, TcpSource};
pub use via::{ViaSink, ViaSource};
