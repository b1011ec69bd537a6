//! The suite on the shared-memory provider.

viaduct_conformance::suite!(shm);
