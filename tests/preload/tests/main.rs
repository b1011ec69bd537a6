//! Every test of unmodified programs in one binary.

mod apps;
mod corners;
mod ftp;
mod hangup;
mod heirs;
mod jumps;
mod late;
mod limits;
mod load;
mod moves;
mod plain;
mod programs;
mod rpc;
mod running;
mod services;
mod storms;
mod streams;
mod suites;
mod unclaimed;

viaduct_kit::child!(AGENT, viaduct_preload_tests::be_agent);
