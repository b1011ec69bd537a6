//! The report: result lines in, one self-contained page of HTML out.
//!
//! ```text
//!   result files -> read -> Results -> figures -> Figure: words, charts, tables -> page
//!                                        |  thesis.rs, sovia.rs: the papers' values   | svg, bars, dots: inline SVG
//!                   two of them -> compare -------------------------------------------+
//! ```
//!
//! The page needs no network, no script and no font of its own; colours follow the reader's light or dark scheme. It has
//! every figure of chapter 3 of the thesis, figure 7 of Millennium Sort, figure 9 of SOVIA, and a figure for each further case,
//! known to this program or not. A figure without data says which command makes them.

mod bars;
mod chart;
mod compare;
mod difference;
mod dots;
mod figures;
mod generic;
mod grid;
mod logp;
mod page;
mod read;
mod scale;
mod select;
mod sovia;
mod svg;
#[cfg(test)]
mod tests;
mod text;
mod thesis;
mod words;

pub use compare::{Change, Comparison, Verdict, compare};
pub use page::page;
pub use read::{Results, read};
pub use text::digits;
