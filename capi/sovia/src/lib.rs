//! `libsovia.so.1`: SOVIA's sockets for C programs. The calls of sockets with `sov_` before their names; a socket of type
//! `SOCK_VIA` goes over Viaduct, any other one is the kernel's.
//!
//! ```text
//!   C program ── sovia.h ──▶ export                             names and versions
//!                              │
//!                            sockets transfer options poll      one file a group of functions
//!                              │                                arguments checked and converted, nothing more
//!                            table                              a number becomes a socket (sockdes[] of figure 6)
//!                            address code                       what C sees, and what it stands for
//!                              │
//!                            viaduct-sovia: Sovia, Stream, Listener ── viaduct-providers
//! ```
//!
//! SOVIA, section 4.1: a number that the table does not know is handed to the kernel, so that one program uses both kinds
//! with the same calls, and `sov_poll` and `sov_select` wait for both. Each socket of ours holds a descriptor of the
//! kernel's, which is never read: so its number is given to no other file.
//!
//! The library opens with the first such socket, on the provider that `VIADUCT_PROVIDER` names (`auto` if none does), and
//! closes at exit.

#[macro_use]
#[path = "../../versions.rs"]
mod versions;

pub mod address;
mod code;
pub mod export;
pub mod options;
pub mod poll;
pub mod sockets;
pub mod table;
pub mod transfer;
