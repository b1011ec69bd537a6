//! One file for each verb.

pub(crate) mod agent;
pub(crate) mod all;
pub(crate) mod bench;
pub(crate) mod bench_dsm;
pub(crate) mod bench_launch;
pub(crate) mod bench_mpi;
pub(crate) mod bench_programs;
pub(crate) mod bench_sort;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod dsm;
pub(crate) mod far;
pub(crate) mod info;
pub(crate) mod jobs;
pub(crate) mod launch;
pub(crate) mod man;
pub(crate) mod mpi;
pub(crate) mod peer;
pub(crate) mod report;
pub(crate) mod rivals;
pub(crate) mod run;
pub(crate) mod sort;
pub(crate) mod stat;
pub(crate) mod tour;
pub(crate) mod tour_floors;
