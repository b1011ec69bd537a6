//! The tables of the basic operations: Table II both ways, section 3.1, the layer of remote writes, and how they stand beside a
//! wake-up.

use std::io;

use viaduct_results::schema::Line;
use viaduct_results::table::{Better, Table};

use super::operations::{Found, WAYS};
use super::{Bench, Emit};

const COLUMNS: [&str; 2] = ["remote writes", "messages"];
const PAPER: [&str; 2] = ["paper, remote writes", "paper, messages"];
const SOURCE: &str = "Table II";
const SECTION: &str = "section 3.1";

/// A row: what it is called, the point on so many nodes, and what the paper gives.
type Row = (&'static str, &'static str, usize, [Option<f64>; 2]);

const TABLE_TWO: &[Row] = &[
    ("diff of 8 B", "diff-8", 2, [Some(31.0), Some(70.0)]),
    ("diff of 64 B", "diff-64", 2, [None; 2]),
    ("diff of 512 B", "diff-512", 2, [None; 2]),
    ("diff of a page of 4 KiB", "diff-page", 2, [Some(129.0), Some(245.0)]),
    ("diff of every other word of it", "diff-words", 2, [None; 2]),
    ("lock that another node had", "lock", 2, [Some(10.0), Some(33.0)]),
    ("barrier", "barrier", 2, [Some(29.0), Some(53.0)]),
];

const OPERATIONS: &[Row] = &[
    ("null message and its answer", "message", 2, [None, Some(15.0)]),
    ("page fetch, with the fault", "fetch", 2, [None, Some(220.0)]),
    ("twin", "twin", 2, [Some(68.0), None]),
    ("directory update", "directory", 2, [None; 2]),
    ("directory update, 4 nodes", "directory", 4, [None; 2]),
    ("1 notice to 1 node", "notices-1-1", 2, [None; 2]),
    ("16 notices to 1 node", "notices-16-1", 2, [None; 2]),
    ("64 notices to 1 node", "notices-64-1", 2, [None; 2]),
    ("1 notice to 3 nodes", "notices-1-3", 4, [None; 2]),
    ("16 notices to 3 nodes", "notices-16-3", 4, [None; 2]),
    ("64 notices to 3 nodes", "notices-64-3", 4, [None; 2]),
    ("lock that this node had", "lock-again", 2, [None; 2]),
    ("flag, until the other node sees it", "flag", 2, [None; 2]),
    ("flag, until the call returns", "flag-set", 2, [None; 2]),
    ("flag to 3 nodes, until the call returns", "flag-set", 4, [None; 2]),
    ("barrier of 4 nodes", "barrier", 4, [None; 2]),
];

/// Writes all of them.
pub(super) fn write(bench: &Bench<'_>, found: &Found, emit: Emit<'_>) -> io::Result<()> {
    both_ways(&bench.table("dsm-table2"), TABLE_TWO, SOURCE, found, emit)?;
    both_ways(&bench.table("dsm-operations"), OPERATIONS, SECTION, found, emit)?;
    region(&bench.table("dsm-region"), found, emit)?;
    beside_a_wake(&bench.table("dsm-wake"), found, emit)
}

fn both_ways(table: &Table, rows: &[Row], source: &str, found: &Found, emit: Emit<'_>) -> io::Result<()> {
    for &(row, point, nodes, paper) in rows {
        for (way, column) in WAYS.into_iter().zip(COLUMNS) {
            emit(table.cell(row, column, "us", Better::Less).of(found.of(way, nodes, point)))?;
        }
        for (value, column) in paper.into_iter().zip(PAPER) {
            if let Some(value) = value {
                emit(table.cell(row, column, "us", Better::Less).from_paper(source, value))?;
            }
        }
    }
    Ok(())
}

/// Latency and bandwidth of the layer in Memory Channel's place; a value of the paper where it has one.
fn region(table: &Table, found: &Found, emit: Emit<'_>) -> io::Result<()> {
    let time = |row: &str, nodes, point: &str| -> Line {
        table.cell(row, "time", "us", Better::Less).of(found.of(WAYS[0], nodes, point))
    };
    let one = "a word to 1 node, until it is seen there";
    emit(time(one, 2, "region-latency"))?;
    emit(table.cell(one, "paper", "us", Better::Less).from_paper(SOURCE, 3.3))?;
    emit(time("a word to 1 node and back by loopback", 2, "region-write"))?;
    emit(time("a word to 3 nodes, until one of them sees it", 4, "region-latency"))?;
    emit(time("a word to 3 nodes and back by loopback", 4, "region-write"))?;
    let pages = "pages of 4 KiB to 1 node";
    let speed = found.of(WAYS[0], 2, "region-bandwidth");
    emit(table.cell(pages, "bandwidth", "MB/s", Better::More).of(speed))?;
    emit(table.cell(pages, "paper", "MB/s", Better::More).from_paper(SOURCE, 70.0))?;
    let words = found.of(WAYS[0], 2, "region-ordered");
    emit(table.cell("pairs of words, none out of order", "checked", "", Better::Neither).of(words))
}

/// A fetch, a lock and a barrier beside a futex wake across cores of the same rounds.
fn beside_a_wake(table: &Table, found: &Found, emit: Emit<'_>) -> io::Result<()> {
    emit(table.cell("futex wake across cores", "time", "us", Better::Less).of(&found.wake))?;
    for (what, point) in [("page fetch", "fetch"), ("lock", "lock"), ("barrier", "barrier")] {
        for (way, column) in WAYS.into_iter().zip(COLUMNS) {
            let row = format!("{what}, {column}");
            let values = found.of(way, 2, point);
            emit(table.cell(&row, "time", "us", Better::Less).of(values))?;
            let ratios: Vec<f64> = values.iter().zip(&found.wake).map(|(time, wake)| time / wake).collect();
            emit(table.cell(&row, "wake-ups", "", Better::Less).of(&ratios))?;
        }
    }
    Ok(())
}
