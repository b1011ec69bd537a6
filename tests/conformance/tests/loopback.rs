//! The suite on the loopback provider, plain and with hooks around it.

viaduct_conformance::suite!(loopback);
viaduct_conformance::suite!(loopback_counted);
viaduct_conformance::suite!(loopback_traced);
viaduct_conformance::suite!(loopback_delayed);
