//! Arguments of `viaduct sort`, `viaduct sort gen` and `viaduct sort check`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_required = true)]
pub(crate) struct SortArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<SortVerb>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SortVerb {
    /// Write records of the sort benchmark, as gensort 1.5 does
    Gen(GenArgs),
    /// Say whether files are in order, as valsort 1.5 does
    Check(CheckArgs),
}

#[derive(Debug, Args)]
pub(crate) struct GenArgs {
    /// How many records of 100 bytes; with K, M, G for powers of 1,000
    #[arg(value_parser = count)]
    pub(crate) records: u64,
    /// The file to write; `-` for standard output; without it only the checksum is worked out
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Printable records, one a line
    #[arg(short, long)]
    pub(crate) ascii: bool,
    /// Keys that crowd around a few values
    #[arg(short, long)]
    pub(crate) skew: bool,
    /// Number of the first record
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub(crate) begin: u128,
    /// Say the checksum on standard error
    #[arg(short, long)]
    pub(crate) checksum: bool,
    /// Threads [default: one a core]
    #[arg(short, long, value_name = "N")]
    pub(crate) threads: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Files, one after the other; `-` for standard input
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// The file holds summaries that `check -o` wrote, one behind the other, in order
    #[arg(short, long, conflicts_with = "output")]
    pub(crate) summaries: bool,
    /// Write a summary of 280 bytes here, to be joined with those of the neighbours
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Say nothing but failures
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Compare letters without their case
    #[arg(short, long)]
    pub(crate) ignore_case: bool,
    /// Threads [default: one a core]
    #[arg(short, long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Bytes of a record
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub(crate) record_size: usize,
    /// Where the key lies: OFFSET:LENGTH
    #[arg(long, value_name = "AT:LEN", default_value = "0:10", value_parser = place)]
    pub(crate) key: (usize, usize),
}

/// A number, with K, M, G for powers of 1,000.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1_000),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| "not a number such as 1000000, 10M or 1G".to_owned())?;
    number.checked_mul(factor).filter(|&n| n < u64::MAX / 100).ok_or_else(|| "too many".to_owned())
}

/// OFFSET:LENGTH.
pub(crate) fn place(text: &str) -> Result<(usize, usize), String> {
    let wrong = || "not OFFSET:LENGTH, such as 0:10".to_owned();
    let (offset, len) = text.split_once(':').ok_or_else(wrong)?;
    let (offset, len) = (offset.parse().map_err(|_| wrong())?, len.parse().map_err(|_| wrong())?);
    if len == 0 { Err("a key has at least one byte".to_owned()) } else { Ok((offset, len)) }
}

pub(crate) const SORT_HELP: &str = "\
Examples:
  viaduct sort gen 10M -o input
  viaduct sort check output
  viaduct sort check -o part1.sum part1 && cat part*.sum > all && viaduct sort check -s all";
