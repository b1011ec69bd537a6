//! Every test of unmodified programs in one binary.

mod programs;
mod streams;

viaduct_kit::child!(AGENT, viaduct_preload_tests::be_agent);
