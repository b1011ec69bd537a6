//! The Virtual Interface Architecture as a model: what a NIC, a VI, a descriptor and a completion are.
//!
//! ```text
//!   program ──▶ Nic ─── Vi ─┬─ send queue ──┐            ┌─ Endpoint ──▶ peer
//!                │          └─ receive queue ┼─ progress ─┤  (a provider's:
//!                ├─ Cq  ◀── entries ─────────┘            └─  shm, loopback)
//!                └─ regions, tags, listeners
//! ```
//!
//! The model owns the work queues, the ledger of descriptors, completion queues and memory handles. A VI is bound to
//! a provider's [`Endpoint`](provider::Endpoint) when it connects; the provider moves bytes and reports. Therefore every
//! posted descriptor comes back exactly once, in order, whatever happens below (`flush`), one completion queue can
//! span several providers, and receives may be posted before the peer is known.
//!
//! A NIC belongs to one thread at a time and its data path takes no lock; [`SharedNic`] is for threads that share one.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use viaduct_providers::loopback;
//! use viaduct_via::{Descriptor, MemAttributes, Nic, ViAttributes};
//!
//! // Two VIs of one NIC, connected to each other.
//! let mut nic = Nic::open(loopback::provider())?;
//! let tag = nic.create_ptag()?;
//! let (a, b) = (nic.create_vi(ViAttributes::new(tag))?, nic.create_vi(ViAttributes::new(tag))?);
//! let inbox = nic.alloc(64, MemAttributes::local(tag))?;
//! nic.post_recv(b, Descriptor::recv(inbox))?;
//!
//! let here = "greetings".parse()?;
//! let listener = nic.listen(&here, 1)?;
//! nic.connect_start(a, None, &here, &[], Some(Duration::from_secs(1)))?;
//! let request = nic.wait_listener(listener, None)?;
//! nic.accept(request, b).map_err(|(e, _)| e)?;
//! nic.connect_finish(a)?;
//!
//! let mut message = nic.alloc(5, MemAttributes::local(tag))?;
//! message.write(0, b"hello");
//! nic.post_send(a, Descriptor::send(message))?;
//! let got = nic.wait_recv(b, None)?;
//! assert_eq!(got.data(), b"hello");
//! # Ok::<(), viaduct_via::Error>(())
//! ```

#![deny(unsafe_code)]

pub mod address;
pub mod attributes;
mod buffer;
mod connect;
pub mod counters;
mod cq;
mod descriptor;
pub mod driver;
mod error;
mod event;
pub mod handle;
pub mod hooks;
mod memory;
mod nic;
mod peer;
mod poll;
mod pool;
mod post;
mod progress;
pub mod provider;
mod queue;
mod queues;
#[allow(unsafe_code)]
pub mod raw;
mod registering;
mod shared;
mod srq;
mod value;
mod vi;
mod waiting;
pub mod window;

pub use address::NetAddress;
pub use attributes::{MemAttributes, NicAttributes, Reach, Reliability, RemoteAttributes, ViAttributes};
pub use buffer::Buffer;
pub use connect::ConnRequest;
pub use counters::{Counter, CounterSlot};
pub use descriptor::{Descriptor, Op, RemoteAddress, Status, Work};
pub use driver::{Driver, Layer, News, Rest};
pub use error::{Error, PostError};
pub use event::{ErrorCode, ErrorEvent, ErrorHandler};
pub use handle::{Cq, Listener, ProtectionTag, Srq, Vi};
pub use memory::{MemHandle, RegionInfo};
pub use nic::{Nic, ViInfo};
pub use poll::Completion;
pub use pool::ReceivePool;
pub use queues::{Fault, Queues};
pub use shared::{EntryHandler, Next, NicGuard, NotifyHandler, SharedErrorHandler, SharedNic};
pub use vi::{Queue, ViState};
pub use viaduct_os::wait::{Spin, WaitConfig};
