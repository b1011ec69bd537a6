//! Arguments of `viaduct sort`, `viaduct sort gen` and `viaduct sort check`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::gnu::GnuArgs;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SortArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<SortVerb>,
    /// Files to sort; `-` or none for standard input
    pub(crate) files: Vec<PathBuf>,
    /// The file to write, which may be one of the inputs; it has its name once it is complete [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Sort lines of text, in the order of GNU sort with LC_ALL=C
    #[arg(long)]
    pub(crate) lines: bool,
    /// Bytes of a record [default: 100]
    #[arg(long, value_name = "BYTES", conflicts_with = "lines")]
    pub(crate) record_size: Option<usize>,
    /// Where a field of the key lies in a record, the most important first; with :r greatest first [default: 0:10]
    #[arg(long, value_name = "OFFSET:LENGTH[:r]", value_parser = field, conflicts_with = "lines")]
    pub(crate) at: Vec<Field>,
    /// Greatest first
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Equal keys keep the order of the input; without it the whole record decides
    #[arg(short, long)]
    pub(crate) stable: bool,
    /// Say whether the input is in order, and write nothing
    #[arg(short, long, conflicts_with = "output")]
    pub(crate) check: bool,
    /// As -c, and do not say where
    #[arg(short = 'C', conflicts_with_all = ["output", "check"])]
    pub(crate) check_silently: bool,
    /// A key of lines: `FIELD[.CHAR][nrb][,FIELD[.CHAR][nrb]]`, the most important first
    #[arg(short, long, value_name = "KEYDEF", help_heading = "Lines")]
    pub(crate) key: Vec<String>,
    /// Separator of fields [default: from non-blank to blank]
    #[arg(short = 't', long, value_name = "CHAR", help_heading = "Lines")]
    pub(crate) field_separator: Option<String>,
    /// Compare as numbers
    #[arg(short, long, help_heading = "Lines")]
    pub(crate) numeric_sort: bool,
    /// Blanks before a field do not count
    #[arg(short = 'b', long, help_heading = "Lines")]
    pub(crate) ignore_leading_blanks: bool,
    /// Of lines with equal keys keep the first
    #[arg(short, long, help_heading = "Lines")]
    pub(crate) unique: bool,
    /// Lines end with a zero byte
    #[arg(short, long, help_heading = "Lines")]
    pub(crate) zero_terminated: bool,
    /// The inputs are sorted already
    #[arg(short, long, help_heading = "Lines")]
    pub(crate) merge: bool,
    /// Memory to use: bytes, with K, M, G for powers of 1,024 [default: 80 % of what is available]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Machine")]
    pub(crate) memory: Option<u64>,
    /// As --memory, in GNU's units: KiB without a letter, % of the machine's memory
    #[arg(short = 'S', long, value_name = "SIZE", value_parser = gnu_size, conflicts_with = "memory", help_heading = "Machine")]
    pub(crate) buffer_size: Option<u64>,
    /// A folder for temporary files; several share the work [default: that of the output]
    #[arg(
        short = 'T',
        long = "tmp",
        alias = "temporary-directory",
        value_name = "DIR",
        help_heading = "Machine"
    )]
    pub(crate) tmp: Vec<PathBuf>,
    /// Threads [default: one a core]
    #[arg(long, alias = "threads", value_name = "N", help_heading = "Machine")]
    pub(crate) parallel: Option<usize>,
    /// So many nodes on this host, each a process; `%r` in a name stands for the node's number
    #[arg(long, value_name = "N", value_parser = nodes, help_heading = "Nodes")]
    pub(crate) nodes: Option<usize>,
    /// Nodes on these hosts, as `viaduct launch --hosts` takes them: node[1-4],big*2
    #[arg(long, value_name = "LIST", conflicts_with = "nodes", help_heading = "Nodes")]
    pub(crate) hosts: Option<String>,
    /// What carries records between nodes: auto, shm, ofi, ofi:NAME or tcp [default: shm on one host, else auto]
    #[arg(long, value_name = "NAME", help_heading = "Nodes")]
    pub(crate) transport: Option<String>,
    /// Register receiving memory in windows of so many bytes instead of as a whole
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Nodes")]
    pub(crate) window: Option<u64>,
    /// Let agents of root be started on other hosts
    #[arg(long, requires = "hosts", help_heading = "Nodes")]
    pub(crate) allow_root: bool,
    /// This process is a node; the sort was asked for at this time, in nanoseconds since 1970
    #[arg(long, value_name = "NS", hide = true)]
    pub(crate) as_node: Option<u64>,
    /// Read and write past the page cache
    #[arg(long, value_enum, default_value_t, help_heading = "Machine")]
    pub(crate) direct: DirectArg,
    /// Prove order and checksum of the output
    #[arg(long, value_enum, default_value_t, help_heading = "Machine")]
    pub(crate) checksum: Switch,
    /// A piece of a record at the end of a file
    #[arg(long, value_enum, default_value_t)]
    pub(crate) partial: PartialArg,
    /// Wait until the disk has the output and its name
    #[arg(long)]
    pub(crate) fsync: bool,
    /// Write what was done to this file in JSON: phases, edges, checksum; `-` for standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) summary: Option<PathBuf>,
    /// How progress is shown on standard error
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) progress: ProgressArg,
    #[command(flatten)]
    pub(crate) gnu: GnuArgs,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressArg {
    /// On a terminal: a bar, or lines where there are several nodes
    #[default]
    Auto,
    /// A line a second and one at the end, with phase, rate and the time that is left
    Lines,
    /// The lines as JSON, for programs: phase, bytes done and in all, MB/s, seconds left of the phase
    Json,
    /// Not at all
    Off,
}

/// Whether files are used past the page cache.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum DirectArg {
    /// Where it is likely to win
    #[default]
    Auto,
    /// Wherever the file system allows it
    On,
    /// Never
    Off,
}

/// On or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Do
    #[default]
    On,
    /// Do not
    Off,
}

/// What is done with a piece of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum PartialArg {
    /// It is an error
    #[default]
    Refuse,
    /// It is left out
    Drop,
    /// It goes behind the last record of the output; on one node
    Keep,
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
    #[arg(long, value_name = "OFFSET:LENGTH", default_value = "0:10", value_parser = place)]
    pub(crate) at: (usize, usize),
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

/// A field of the key in records of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) descending: bool,
}

/// OFFSET:LENGTH, or OFFSET:LENGTH:r.
fn field(text: &str) -> Result<Field, String> {
    let (range, descending) = match text.strip_suffix(":r") {
        Some(range) => (range, true),
        None => (text, false),
    };
    place(range).map(|(offset, len)| Field { offset, len, descending })
}

/// A number of nodes.
fn nodes(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=1000).contains(n)).ok_or_else(|| "a number from 1 to 1000".to_owned())
}

/// Bytes, with K, M, G, T for powers of 1,024.
fn size(text: &str) -> Result<u64, String> {
    with_unit(text, 0)
}

/// As GNU sort has it: KiB without a letter, b for bytes, % of the memory.
fn gnu_size(text: &str) -> Result<u64, String> {
    let Some(percent) = text.strip_suffix('%') else { return with_unit(text, 10) };
    let percent: u64 = percent.parse().map_err(|_| "not a size such as 256M or 50%".to_owned())?;
    let all = viaduct_os::files::total_memory();
    all.checked_mul(percent).map(|bytes| bytes / 100).ok_or_else(|| "too large".to_owned())
}

fn with_unit(text: &str, plain: u32) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'b') => (&text[..text.len() - 1], 0),
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        Some(b't' | b'T') => (&text[..text.len() - 1], 40),
        _ => (text, plain),
    };
    let number: u64 = digits.parse().map_err(|_| "not a size such as 256M or 4G".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

pub(crate) const SORT_HELP: &str = "\
Examples:
  viaduct sort gen 10M -o input && viaduct sort input -o output && viaduct sort check output
  viaduct sort --memory 256M --tmp /disk1 --tmp /disk2 huge -o sorted
  viaduct sort --record-size 64 --at 8:8 --at 0:4:r data -o sorted
  viaduct sort -k2,2n -t: names.txt
  viaduct sort --nodes 4 input -o output
  viaduct sort --hosts node[1-4] /data/in.%r -o /data/out.%r
  viaduct sort check -o part1.sum part1 && cat part*.sum > all && viaduct sort check -s all";
