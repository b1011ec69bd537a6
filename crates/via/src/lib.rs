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
//! use viaduct_via::{Descriptor, Nic, ViAttributes};
//!
//! // Two VIs of one NIC, connected to each other.
//! let mut nic = Nic::open(loopback::provider())?;
//! let (a, b) = (nic.create_vi(ViAttributes::default())?, nic.create_vi(ViAttributes::default())?);
//! nic.vi(b)?.post_receives(1, 64)?;
//!
//! let here = "greetings".parse()?;
//! let listener = nic.listen(&here, 1)?;
//! nic.connect(a, &here).timeout(Duration::from_secs(1)).start()?;
//! let request = nic.wait_listener(listener, None)?;
//! nic.accept(request, b)?;
//! nic.connect_finish(a)?;
//!
//! let mut message = nic.buffer(5)?;
//! message.write(0, b"hello");
//! nic.vi(a)?.post_send(Descriptor::send(message))?;
//! assert_eq!(nic.vi(b)?.wait_recv(None)?.data(), b"hello");
//! # Ok::<(), viaduct_via::Error>(())
//! ```

#![deny(unsafe_code)]
#![warn(clippy::missing_errors_doc, missing_debug_implementations)]

mod accepting;
pub mod address;
mod arriving;
pub mod attributes;
mod buffer;
mod completion;
mod connect;
mod connecting;
pub mod counters;
mod cq;
mod descriptor;
pub mod driver;
mod error;
mod event;
pub mod handle;
// What hooks and providers refuse with is theirs to say.
#[allow(clippy::missing_errors_doc)]
pub mod hooks;
mod memory;
mod nic;
mod others;
mod peer;
mod poll;
mod pool;
mod post;
mod progress;
#[allow(clippy::missing_errors_doc)]
pub mod provider;
mod queue;
mod queues;
#[allow(unsafe_code)]
pub mod raw;
mod registering;
mod retiring;
mod shared;
mod srq;
mod value;
mod vi;
mod view;
mod waiting;
pub mod window;

pub use accepting::ConnRequest;
pub use address::NetAddress;
pub use arriving::Arrival;
pub use attributes::{MemAttributes, NicAttributes, Reach, Reliability, RemoteAttributes, ViAttributes};
pub use buffer::Buffer;
pub use completion::{Completion, Ended};
pub use connecting::Connect;
pub use counters::{Counter, CounterSlot};
pub use descriptor::{Descriptor, Op, RemoteAddress, Status, Work};
pub use driver::{Driver, Layer, News, Rest};
pub use error::{AcceptError, BatchError, Error, PostError};
pub use event::{ErrorCode, ErrorEvent, ErrorHandler};
pub use handle::{Cq, Listener, ProtectionTag, Srq, Vi};
pub use memory::raw::lend;
pub use memory::{MemHandle, RegionInfo};
pub use nic::{Nic, ViInfo};
pub use pool::ReceivePool;
pub use queues::{Fault, Queues};
pub use shared::{
    Connected, EntryHandler, Next, NextRequest, NicGuard, NotifyHandler, SharedErrorHandler, SharedNic,
};
pub use vi::{Queue, ViState};
pub use viaduct_os::wait::{Spin, WaitConfig};
pub use view::{CqMut, ViMut};
