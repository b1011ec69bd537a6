//! The black-box tests of this package in one binary. The loom models are targets of their own.

mod auto;
mod ofi_basic;
mod segments;
mod shm_basic;
