//! Further worlds of the provider between hosts, for full runs: libfabric takes a third of a second to load, for every
//! test.

viaduct_conformance::suite!(ofi_cramped);
viaduct_conformance::suite!(ofi_counted);
