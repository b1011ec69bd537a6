//! The suite in every world, one line each, and the suite about itself.
//!
//! `cargo xtask test` runs some worlds each time and the others in turn: the list is in `xtask/src/rotation.rs`.

mod leaks;
mod table;

viaduct_conformance::suite!(loopback);
viaduct_conformance::suite!(loopback_counted);
viaduct_conformance::suite!(loopback_traced);
viaduct_conformance::suite!(loopback_delayed);

viaduct_conformance::suite!(shm);
viaduct_conformance::suite!(shm_copying);
viaduct_conformance::suite!(shm_isolated);
viaduct_conformance::suite!(shm_without_vm);
viaduct_conformance::suite!(shm_cramped);
viaduct_conformance::suite!(shm_counted);
viaduct_conformance::suite!(shm_delayed);

viaduct_conformance::suite!(auto);

// libfabric takes a third of a second to load, for every test.
viaduct_conformance::suite!(ofi_tcp);
viaduct_conformance::suite!(ofi_cramped);
viaduct_conformance::suite!(ofi_counted);
