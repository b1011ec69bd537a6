//! Nodes of real processes: a server and workers that share frames, twins and entries (section 2.1).
//!
//! ```text
//!   layout    what lies where in the shared entries of a node
//!   wire      what messages say
//!   diff      how a diff lies in memory and messages
//!   net       the connections of a process
//!   process   a process: shared memory, messages, waiting
//!   world     what the protocol asks of it
//!   region    memory that other nodes write to; remote: those writes
//!   desk      what every process of a node can answer
//!   server    answers the requests of other nodes
//!   mesh      the ranks find each other
//!   start     from a job and a NIC to a server or a worker
//! ```

mod desk;
mod diff;
pub(crate) mod layout;
mod mesh;
pub(crate) mod net;
pub(crate) mod process;
mod region;
mod remote;
pub(crate) mod server;
pub mod start;
pub(crate) mod wire;
mod world;
