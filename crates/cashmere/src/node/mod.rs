//! Nodes of real processes: a server and workers that share frames, twins and entries (section 2.1).
//!
//! ```text
//!   layout    what lies where in the shared entries of a node
//!   wire      what messages say
//!   net       the connections of a process
//!   process   the world of a process: shared entries, memory, messages
//!   server    answers the requests of other nodes
//!   start     from a job and a NIC to a server or a worker
//! ```

pub(crate) mod layout;
pub(crate) mod net;
pub(crate) mod process;
pub(crate) mod server;
pub mod start;
pub(crate) mod wire;
