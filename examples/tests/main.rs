//! The programs, each end a process of its own.

mod book;
mod crowds;
mod programs;
