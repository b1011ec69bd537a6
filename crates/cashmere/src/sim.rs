//! A simulated cluster in one thread: nodes with frames, twins and directories, a network that delivers in any order.
//!
//! Messages between two processes keep their order, everything else happens in an order drawn from a seed: requests,
//! answers, the single writes of a remote write, the steps of workers.

mod array;
mod between;
mod cluster;
mod exhaustive;
mod fingerprint;
mod handle;
mod leaving;
mod litmus;
mod mutation;
mod programs;
mod random;
mod run;
mod server;
mod world;
