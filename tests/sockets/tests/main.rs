//! Every test of programs over streams in one binary.

mod programs;
mod streams;
