//! Programs of MPI on Viaduct's library.

mod faults;
mod library;
mod others;
mod python;
mod sets;
