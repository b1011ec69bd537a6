//! Every test of unmodified programs in one binary.

mod moves;
mod programs;
mod running;
mod storms;
mod streams;

viaduct_kit::child!(AGENT, viaduct_preload_tests::be_agent);
