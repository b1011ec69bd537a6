//! The suite on the provider between hosts with hooks around it.

viaduct_conformance::suite!(ofi_counted);
