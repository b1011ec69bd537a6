//! The report: result lines in, one self-contained page of HTML out.
//!
//! ```text
//!   result files -> read -> Results -> figures -> Figure: words, charts, tables -> page
//!                            catalogue --|  thesis.rs, sovia.rs: the papers' values   | svg, bars, dots: inline SVG
//!                   two of them -> compare -------------------------------------------+
//! ```
//!
//! The page needs no network, no script and no font of its own; colours follow the reader's light or dark scheme. It has
//! every figure of chapters 3 and 4 of the thesis, figures 7 to 9 and table 1 of Millennium Sort, figure 9 of SOVIA, and a figure for
//! each further case and each table, known to this program or not. A figure without data says which command makes them.

mod bars;
mod catalogue;
mod chart;
mod compare;
mod difference;
mod dots;
mod figures;
mod generic;
mod grid;
mod logp;
mod mpi;
mod page;
mod read;
mod scale;
mod select;
mod sovia;
mod svg;
mod tables;
#[cfg(test)]
mod tests;
mod text;
mod thesis;
mod words;

pub use catalogue::{CaseInfo, Catalogue, TableInfo};
pub use compare::{Change, Comparison, Reading, Verdict, compare};
pub use page::page;
pub use read::{Results, read};
pub use tables::show;
pub use text::digits;
