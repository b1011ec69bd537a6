//! The core of MPI over VIA (the thesis on user-level network protocols, chapter 4), without C.
//!
//! ```text
//!   datatype     where the bytes of a message lie: constructors, layouts, signatures
//!   raw          packing and unpacking a program's memory
//!   coll         collective operations as schedules
//!   matching     which receive a message belongs to
//!   protocol     eager and rendezvous, credits, requests: one rank, pure
//!   world        the process in its job: engine on VIA, communicators, calls
//!   op           predefined reductions
//!   group        ordered sets of processes and their algebra
//!   topology     grids and graphs of processes
//!   handle       the numbers by which programs name objects
//!   info         hints of programs
//!   error        error classes, with the values of MPICH's interface
//!   attribute    values that programs attach to objects, and their keys
//!   prefix       the private folder: names of the library, headers, compilers
//!   table        every entry point of the standard: implemented or refused, and the evidence
//! ```
//!
//! The C library is `capi/mpi`; one-sided communication, files and intercommunicators are not there yet.

#![deny(unsafe_code)]

pub mod attribute;
pub mod coll;
pub mod datatype;
pub mod error;
pub mod group;
pub mod handle;
pub mod info;
pub mod matching;
pub mod op;
pub mod prefix;
pub mod protocol;
pub mod raw;
pub mod table;
pub mod topology;
pub mod world;
