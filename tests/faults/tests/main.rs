//! Every suite of faults in one binary, but the one that counts allocations.

mod channel;
mod crowd;
mod dsm;
mod folders;
mod fork;
mod handshake;
mod hostile;
mod hosts;
mod idle;
mod kill;
mod limits;
mod many;
mod mapping;
mod notes;
mod notices;
mod numbers;
mod ofi;
mod outlive;
mod realtime;
mod said;
mod stop;
mod users;
