//! What measurements are written as, what is computed from them, and how they are shown.
//!
//! ```text
//!   what measures (bench, sort, launch ...)          viaduct report
//!        |                                                |
//!      stats, table                                     report     read -> figures, tables, comparison -> page
//!        |                                                |
//!      schema ------------- JSON lines ------------------ +
//! ```
//!
//! Below everything that measures, so that a layer writes its own results. What the report says about a case or a table
//! beyond its numbers comes from above, as a [`Catalogue`](report::Catalogue).
//!
//! ```
//! use viaduct_results::report::{self, Catalogue};
//! use viaduct_results::table::{Better, Table};
//!
//! let table = Table::new("launch", Default::default());
//! let lines = [
//!     table.cell("viaduct", "time", "ms", Better::Less).of(&[4.1, 4.0, 4.2]),
//!     table.cell("another", "time", "ms", Better::Less).missing("it is not installed"),
//! ];
//! let file: Vec<String> = lines.iter().map(|line| line.to_json()).collect();
//! let results = report::read("results.jsonl", &file.join("\n")).unwrap();
//! assert!(report::page(&results, None, &Catalogue::default()).contains("it is not installed"));
//! ```
//!
//! Nothing here prints, and nothing measures.
#![forbid(unsafe_code)]

mod error;
pub mod host;
pub mod report;
pub mod rng;
pub mod schema;
pub mod size;
pub mod stats;
pub mod table;

pub use error::{Error, Result};
