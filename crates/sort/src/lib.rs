//! The disk-to-disk sort of *Millennium Sort* (1999), with a generator and a validator of its input and output.
//!
//! ```text
//!   generate ──▶ file ──▶ sort ──▶ file ──▶ check
//! ```
//!
//! Records are those of the sort benchmark: 100 bytes, the first 10 of them the key. [`generate`] writes them byte for byte as
//! the benchmark's own generator does, [`check`] says of a file what the benchmark's own validator would.
//!
//! # Example
//!
//! ```
//! use viaduct_sort::check::{Check, Checked};
//! use viaduct_sort::generate::{Generator, Style};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let path = std::env::temp_dir().join(format!("sort-example-{}", std::process::id()));
//! let sum = Generator::new(Style::Binary).to_file(0, 10, &path, 1)?;
//! assert_eq!(format!("{sum:x}"), "55fea8a1a");
//! let summary = Check::default().files(&[path.clone()])?;
//! assert_eq!((summary.records, summary.checksum), (10, sum));
//! assert!(matches!(summary.verdict(), Checked::Unordered { .. }), "fresh records are in no order");
//! # std::fs::remove_file(path)?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod bounded;
pub mod check;
pub mod cluster;
mod destination;
mod engine;
mod entries;
mod error;
mod external;
pub mod generate;
mod kernel;
mod lookout;
mod merging;
mod order;
mod ordered;
mod report;
mod sort;
mod spill;
mod splitters;
pub mod summary;
mod text;
mod writer;

pub use engine::sort;
pub use error::Error;
pub use lookout::{looks_like_lines, refuse_text};
pub use ordered::{Disorder, find_disorder};
pub use report::{EdgeReport, NodeReport, Overhead, Phases, Report};
pub use sort::{Input, MOST_MODEST, Progress, Records, Settings, Target};
pub use text::TextKey;
pub use viaduct_river::KeyRange;
pub use viaduct_river::disk::{Direct, Partial, abandon_outputs};
pub use viaduct_river::net::Port;

/// Bytes of a record of the benchmark.
pub const RECORD: usize = 100;

/// Bytes of its key, at the start.
pub const KEY: usize = 10;
