//! The suite on the provider that chooses by itself: within one host it is shared memory, with the network beside it.

viaduct_conformance::suite!(auto);
