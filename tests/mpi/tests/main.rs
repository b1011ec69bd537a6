//! Programs of MPI on Viaduct's library.

mod faults;
mod headers;
mod hosts;
mod installed;
mod library;
mod others;
mod python;
mod sets;
