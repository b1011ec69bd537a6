//! The shared-memory provider: processes of one host, without daemon, set-up or privileges.
//!
//! ```text
//!   process A                                   process B
//!   Nic ─ control thread ◀── Unix socket ──▶ control thread ─ Nic
//!    │       (set-up, death notice, segments by request)        │
//!    │                                                          │
//!    └─ Vi ═══▶ lane: ring of 64-byte entries A→B ═══════▶ Vi ──┘
//!         ◀════         ring of 64-byte entries B→A ◀═════
//!               bell and doorbells of each NIC
//!               slabs: memory from Nic::alloc, mapped by the peer on demand
//! ```
//!
//! Small messages travel inside a ring entry. Larger ones are copied once, by the sender, straight into the receive
//! buffer the peer has posted (*push*), or by the receiver out of the sender's memory (*pull*); memory that is not
//! shareable goes through a bounce buffer. RDMA and atomics work on the peer's memory without its CPU: through a
//! mapping, through the kernel's process_vm calls, or by the peer's control thread. A peer of the same user is
//! trusted with payload, never with control words: everything read from shared memory is checked (`docs/protocols`).

mod bounce;
mod connect;
mod control;
mod crowd;
mod directory;
mod doorbell;
mod greeting;
mod lane;
mod map;
mod mem;
mod nic;
mod outbox;
mod pair;
mod parts;
mod probe;
mod progress;
mod rdma;
pub(crate) mod ring;
mod send;
mod service;
mod shared;
mod sync;
mod value;
mod vi;
pub(crate) mod wire;

use viaduct_via::Error;
use viaduct_via::provider::Provider;

use crate::config::ShmConfig;

/// Opens a NIC's provider.
///
/// # Errors
/// [`Error::Unavailable`] if the machine lacks what it needs; [`Error::Os`].
pub fn open(config: ShmConfig) -> Result<Box<dyn Provider>, Error> {
    Ok(Box::new(nic::Shm::open(config)?))
}
