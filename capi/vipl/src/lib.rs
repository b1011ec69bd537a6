//! `libvipl.so.1`: the C interface of the Virtual Interface Architecture (VIPL) over Viaduct.
//!
//! ```text
//!   C program ── vipl.h ──▶ export      names and versions
//!                            │
//!                 nic vi mem transfer cq connect notify errors naming clan      one file a group of functions
//!                            │          arguments checked and converted, nothing more
//!                 handle nics           a number becomes an open NIC, or a code
//!                 abi descriptor spares address code settings names             what C sees, and what it stands for
//!                            │
//!                 viaduct-via: SharedNic, Nic, Vi, ledger ── viaduct-providers
//! ```
//!
//! The program owns descriptors and buffers. A post reads the program's descriptor, fills a descriptor of the model with
//! what it asks for (used again and again, so that nothing is allocated), and posts that; a Done writes status and length
//! into the program's descriptor when it gives it back. Nothing is read at an address before it is known to be
//! registered, and a handle is a number that is looked up, so that wrong ones are refused and never followed.
//!
//! Any thread may make any call. Calls on one NIC take turns; a call that waits does not hold the NIC. While one thread
//! makes nearly all calls, taking turns costs next to nothing.
//!
//! ```
//! use vipl::abi::Return;
//! use vipl::handle::Handle;
//!
//! let mut nic = Handle::NULL;
//! // SAFETY: a string, and a place for the handle.
//! let opened = unsafe { vipl::nic::vip_open_nic(c"/dev/via_lo".as_ptr(), &mut nic) };
//! assert_eq!(opened, Return::Success);
//! assert_eq!(vipl::nic::vip_close_nic(nic), Return::Success);
//! assert_eq!(vipl::nic::vip_close_nic(nic), Return::InvalidParameter);
//! ```

#[macro_use]
#[path = "../../versions.rs"]
mod versions;

pub mod abi;
mod address;
pub mod clan;
mod code;
pub mod connect;
pub mod cq;
mod descriptor;
pub mod errors;
pub mod export;
pub mod handle;
pub mod mem;
mod names;
pub mod naming;
pub mod nic;
mod nics;
pub mod notify;
mod settings;
mod spares;
pub mod transfer;
pub mod vi;
