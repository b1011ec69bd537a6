//! The suite on the shared-memory provider: as it comes, and with other settings.

viaduct_conformance::suite!(shm);
viaduct_conformance::suite!(shm_copying);
viaduct_conformance::suite!(shm_isolated);
viaduct_conformance::suite!(shm_without_vm);
viaduct_conformance::suite!(shm_cramped);
