//! PMI-1: the lines that a launcher and its ranks say to each other, as MPICH's hydra, Slurm and Flux speak it.
//!
//! ```text
//!   wire     one line, a message: words `name=value`, in any order
//!   server   what a launcher answers: pure, one for each node, and a root that joins the nodes at a barrier
//!   client   what a rank asks
//! ```
//!
//! With the server, programs of MPICH and Intel MPI start under `viaduct launch`; with the client, our ranks start under
//! `mpiexec.hydra` and `srun --mpi=pmi2`. The protocol page is `docs/protocols/catapult.md`.

pub mod client;
pub mod server;
pub mod wire;

/// Longest name of a key-value space, key and value, their end included, as every launcher has them.
pub const NAME_MAX: usize = 256;
/// Longest key.
pub const KEY_MAX: usize = 64;
/// Longest value.
pub const VALUE_MAX: usize = 1024;
