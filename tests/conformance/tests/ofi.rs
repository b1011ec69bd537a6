//! The suite on the provider between hosts, over libfabric's TCP, within one host.

viaduct_conformance::suite!(ofi_tcp);
