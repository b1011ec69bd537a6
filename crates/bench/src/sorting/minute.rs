//! MinuteSort: as many records as go from disk to disk in a minute.

use std::collections::BTreeMap;
use std::io;

use viaduct_results::table::{Better, Table};

use super::{Bench, Emit};

/// Makes the input larger, up to four times a step, until a sort takes a good part of the time, then sorts as much as should fit.
///
/// # Errors
/// If an input cannot be written, or a line cannot be put.
pub fn minute(bench: &Bench, progress: &mut dyn FnMut(&str, f64), emit: Emit<'_>) -> io::Result<()> {
    let (limit, mut records) = if bench.quick { (1.0, 20_000u64) } else { (60.0, 4_000_000) };
    let free =
        viaduct_os::files::free_space(&bench.folder).map_err(|error| io::Error::other(error.to_string()))?;
    // Input, output and partitions at once, and some of the disk left alone.
    let most = free / 100 / 4;
    let table = Table::new("sort-minute", BTreeMap::from([("limit".into(), format!("{limit} s"))]));
    let mut best = None;
    for step in 0..12 {
        records = records.min(most);
        progress(&format!("{} M", records / 1_000_000), f64::from(step) / 12.0);
        bench.generate(records, "in", &[])?;
        let Some(run) = bench.sort("in", &[]) else { break };
        if run.seconds > limit {
            break;
        }
        best = Some((records, run.seconds));
        if records == most || run.seconds > 0.9 * limit {
            break;
        }
        // At most four times as many: larger inputs take two passes.
        records = (records as f64 * (0.93 * limit / run.seconds).min(4.0)) as u64;
    }
    let why = "no input was sorted within the time";
    let cell = |column, unit| table.cell("viaduct sort", column, unit, Better::More);
    match best {
        Some((records, seconds)) => {
            emit(cell("records", "M").one(records as f64 / 1e6))?;
            emit(cell("bytes", "GB").one(records as f64 / 1e7))?;
            emit(cell("rate", "MB/s").one(records as f64 / 1e4 / seconds))?;
            if records == most {
                emit(cell("limit", "").missing("the disk is too small for more"))?;
            }
            Ok(())
        }
        None => emit(cell("records", "M").missing(why)),
    }
}
