//! Every black-box test of this package in one binary: one link instead of seven.

mod copy;
mod exhaustion;
mod farewell;
mod fault;
mod fdpass;
mod fork;
mod lock;
mod segment;
mod wait;
