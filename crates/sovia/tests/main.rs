//! Every black-box test of this package in one binary, with the pairs and worlds that they share.

mod deaths;
mod faces;
mod faults;
mod hosts;
mod idle;
mod pair;
mod protocol;
mod spins;
mod streams;
mod users;
mod wire;
mod world;
