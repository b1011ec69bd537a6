//! The suite on the shared-memory provider with hooks around it.

viaduct_conformance::suite!(shm_counted);
viaduct_conformance::suite!(shm_delayed);
