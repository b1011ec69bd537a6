//! MPI programs of several processes, on shared memory.

mod alone;
mod away;
mod collectives;
mod crowd;
mod faults;
mod hosts;
mod making;
mod point;
mod ranks;
mod reading;
mod short;
mod unlike;
