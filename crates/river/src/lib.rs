//! River: flows of records from sources to sinks.
//!
//! The model is that of Millennium Sort (section 3.2): data are a fluid that flows from Sources to Sinks and gathers in a
//! distributed queue, where programs Get and Put it. What flows are [`Buffer`]s of a [`MemPool`]; a pool's size bounds the
//! memory of an edge, and waiting for one of its buffers is the back-pressure.
//!
//! ```text
//!   DiskSource ──▶ PartitionSink ─┬─▶ RiverSink ──▶ Get … the program … Put ──▶ DiskSink
//!   StreamSource                  └─▶ NetSink ═══ VIA or TCP ═══▶ NetSource ──▶ RiverSink of another node
//! ```
//!
//! [`Source`], [`Sink`] and [`RecordFormat`] are what a program extends River by. The paper's MemPool is extended, too (section 5); here
//! [`MemPool`] and [`Buffer`] are types. io_uring and NICs use a buffer while its owner waits, so that its memory must stay where it
//! is and be reached by no other code: a promise that a safe trait cannot ask for, and that `raw.rs` makes for private memory and
//! for memory that is registered with a NIC.
//!
//! # Example
//!
//! Lines of a file, sorted into two by their first letter:
//!
//! ```
//! use std::sync::Arc;
//! use viaduct_river::disk::{DiskSource, Direct, Partial, Volume};
//! use viaduct_river::{Delimited, MemPool, PartitionSink, RiverSink, pump};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let path = std::env::temp_dir().join(format!("river-example-{}", std::process::id()));
//! std::fs::write(&path, "banana\napple\ncherry\n")?;
//! let format = Arc::new(Delimited(b'\n'));
//! let (reading, sorting) = (MemPool::new(2, 64 << 10)?, MemPool::new(2, 64 << 10)?);
//! let source = DiskSource::new(
//!     "input", vec![Volume::open(&path)?], format.clone(), reading, Direct::Auto, Partial::Refuse)?;
//! let (early, late) = (Arc::new(RiverSink::new("early", 4, 1)), Arc::new(RiverSink::new("late", 4, 1)));
//! let rule = |record: &[u8]| usize::from(record[0] >= b'b');
//! let parts = PartitionSink::new("by letter", format, rule, sorting, vec![early.clone(), late.clone()]);
//! pump(&source, &parts)?;
//! assert_eq!(early.get()?.expect("one buffer").data(), b"apple\n");
//! assert_eq!(late.get()?.expect("one buffer").data(), b"banana\ncherry\n");
//! assert!(late.get()?.is_none());
//! # std::fs::remove_file(path)?;
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

mod balance;
mod buffer;
pub mod disk;
mod edge;
mod error;
mod filter;
mod flow;
mod format;
mod merge;
pub mod net;
mod partition;
mod pool;
mod queue;
#[allow(unsafe_code)]
mod raw;

pub use balance::BalanceSink;
pub use buffer::Buffer;
pub use edge::{Edge, EdgeCounts};
pub use error::Error;
pub use filter::Filter;
pub use flow::{Sink, Source, pump, pump_with};
pub use format::{Delimited, Fixed, Framing, KeyRange, Keyed, Prefixed, RecordFormat, records};
pub use merge::MergeSource;
pub use partition::{PartitionSink, PartitionWriter};
pub use pool::MemPool;
pub use queue::RiverSink;
