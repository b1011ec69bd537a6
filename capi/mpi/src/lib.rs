//! `libmpi.so.12`: MPI 3.1 for C and Fortran 77 programs over Viaduct, with the binary interface of MPICH, so that programs
//! that were compiled for MPICH run on it by loader path alone.
//!
//! ```text
//!   program ── mpi.h, mpif.h ──▶ exports     made from the table of entry points (build.rs): MPI_X, PMPI_X, mpi_x_, pmpi_x_
//!                                  │
//!             environment errors p2p requests persistent probe collectives ops comms groups topologies
//!             attributes types pack info tools fortran              one file a group of functions:
//!                                  │                                arguments checked and converted, nothing more
//!             objects state                                         a handle becomes an object, or an error
//!             abi                                                   what C hands over, and constants of the interface
//!                                  │
//!             viaduct-mpi: World, Comm, Datatype, matching, protocol ── viaduct-providers
//! ```
//!
//! Every entry point of the standard is exported. What is not implemented raises `MPI_ERR_UNSUPPORTED_OPERATION` through
//! the communicator's error handler, with the name of the call. Calls inside of the library never go through exported
//! names, so a tool that replaces `MPI_Send` sees the program's sends alone.

#![allow(clippy::too_many_arguments, reason = "the standard's functions have them")]

mod abi;
mod attributes;
mod collectives;
mod comms;
mod copying;
mod data;
mod entry;
mod environment;
mod errors;
mod fortran;
mod groups;
mod info;
mod objects;
mod ops;
mod p2p;
mod pack;
mod persistent;
mod probe;
mod requests;
mod state;
mod tools;
mod topologies;
mod types;

/// The exported functions.
#[allow(
    non_snake_case,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    reason = "names and arguments of the standard"
)]
#[allow(clippy::unnecessary_cast, clippy::let_unit_value, reason = "made by the build script")]
mod exports {
    use std::ffi::{c_char, c_int};

    use crate::abi::{Buffer, Function, Place, Status, Text};
    use crate::errors::refuse;
    use crate::{entry, fortran};

    include!(concat!(env!("OUT_DIR"), "/exports.rs"));
}
