//! Nodes of real processes: a server and workers that share frames, twins and entries (section 2.1).
//!
//! ```text
//!   layout    what lies where in the shared entries of a node
//!   wire      what messages say
//!   diff      how a diff lies in memory and messages
//!   net       the connections of a process
//!   process   a process: shared memory, waiting
//!   requests  what it asks of other nodes; under_way: to which of their processes
//!   serving   what it answers to them; board: which workers poll
//!   world     what the protocol asks of it
//!   region    memory that other nodes write to; remote: those writes
//!   desk      what every process of a node can answer
//!   server    answers what no waiting worker takes
//!   mesh      the ranks find each other; greet: their first messages
//!   place     homes from a file and into one
//!   start     from a job and a NIC to a server or a worker
//! ```

mod board;
mod desk;
mod diff;
mod greet;
pub(crate) mod layout;
mod mesh;
pub(crate) mod net;
pub mod place;
pub(crate) mod process;
pub(crate) mod region;
mod remote;
mod requests;
pub(crate) mod server;
mod serving;
pub mod start;
mod under_way;
pub(crate) mod wire;
mod world;
