//! Every test of the program `viaduct` in one binary, with what they share.

mod agent_users;
mod bench;
mod bench_cases;
mod bench_ofi;
mod bench_programs;
mod bench_sort;
mod common;
mod dsm;
mod dsm_protocol;
mod far;
mod launch;
mod launch_hosts;
mod launch_jobs;
mod launch_mpi;
mod launch_options;
mod launch_slurm;
mod launch_tree;
mod launching;
mod report;
mod rivals;
mod settings;
mod sort;
mod sort_faults;
mod sort_nodes;
mod usage;
mod verbs;
