//! What registering memory costs, as a whole and in windows (Millennium Sort, section 5): the paper registered windows because
//! more than 80 % of the memory in one piece did not go well.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use viaduct_providers::config::Config;
use viaduct_results::table::{Better, Table};
use viaduct_river::MemPool;
use viaduct_river::net::Port;
use viaduct_via::{Nic, SharedNic};

use super::{Bench, Emit};

/// Bytes of a buffer of the sort's edges.
const BUFFER: usize = 256 << 10;

/// Registers a pool as a whole and in windows of several sizes, over shared memory and over libfabric's TCP.
///
/// # Errors
/// If a line cannot be put.
pub fn windows(bench: &Bench, progress: &mut dyn FnMut(&str, f64), emit: Emit<'_>) -> io::Result<()> {
    let pool: usize = if bench.quick { 8 << 20 } else { 1 << 30 };
    let table = Table::new("sort-windows", BTreeMap::from([("pool".into(), pool.to_string())]));
    let windows = [None, Some(256 << 20), Some(64 << 20), Some(16 << 20), Some(1 << 20)];
    for (n, provider) in ["shm", "ofi:tcp"].into_iter().enumerate() {
        for (k, window) in windows.into_iter().enumerate() {
            let row = match window {
                None => format!("{provider}, as a whole"),
                Some(bytes) => format!("{provider}, windows of {} MB", bytes >> 20),
            };
            progress(&row, (n * windows.len() + k) as f64 / (2 * windows.len()) as f64);
            let runs: Result<Vec<[f64; 2]>, String> =
                (0..bench.rounds).map(|_| once(bench, provider, pool, window)).collect();
            let made = table.cell(&row, "made", "ms", Better::Less);
            match runs {
                Ok(runs) => {
                    emit(made.of(&runs.iter().map(|run| run[0]).collect::<Vec<_>>()))?;
                    let first = table.cell(&row, "first touch", "ms", Better::Less);
                    emit(first.of(&runs.iter().map(|run| run[1]).collect::<Vec<_>>()))?;
                    let regions = window.map_or(1, |bytes: usize| pool.div_ceil(bytes));
                    emit(table.cell(&row, "regions", "", Better::Less).one(regions as f64))?;
                }
                Err(why) => emit(made.missing(why))?,
            }
        }
    }
    Ok(())
}

/// Milliseconds to make a registered pool, and to write to each of its pages once.
fn once(bench: &Bench, provider: &str, pool: usize, window: Option<usize>) -> Result<[f64; 2], String> {
    let run = bench.folder.join("run");
    let told = |error: &dyn std::fmt::Display| error.to_string();
    viaduct_os::runtime_dir::runtime_dir(Some(&run)).map_err(|error| told(&error))?;
    let mut config = Config::default();
    config.shm.runtime_dir = Some(run);
    let nic = viaduct_providers::open(provider, &config).map_err(|error| told(&error))?;
    let nic = SharedNic::new(Nic::open(nic).map_err(|error| told(&error))?);
    let port = Port::new(nic).map_err(|error| told(&error))?;
    let begun = Instant::now();
    let pool = MemPool::registered(&port, pool / BUFFER, BUFFER, window).map_err(|error| told(&error))?;
    let made = begun.elapsed();
    let mut buffers = Vec::new();
    let begun = Instant::now();
    while let Some(mut buffer) = pool.try_take() {
        buffer.room_mut().iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        buffers.push(buffer);
    }
    Ok([made, begun.elapsed()].map(|time| time.as_secs_f64() * 1e3))
}
