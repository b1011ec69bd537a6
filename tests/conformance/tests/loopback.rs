//! The suite on the loopback provider.

viaduct_conformance::suite!(loopback);
