//! The table `mpi-bars`: how our library stands against the others, each ratio beside what is wanted of it.

use std::collections::BTreeMap;

use viaduct_results::stats::median;
use viaduct_results::table::{Better, Table};

use super::lines::{Gathered, Key};
use crate::schema::Line;

/// Sizes of the mean.
const MEAN: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// Everything that can be said from what was measured.
pub(super) fn cells(gathered: &Gathered, rounds: usize) -> Vec<Line> {
    let table = Table::new("mpi-bars", BTreeMap::from([("rounds".into(), rounds.to_string())]));
    let mut lines = Vec::new();
    let mut put = |row: &str, value: Option<f64>, wanted: f64, least: bool| {
        let Some(value) = value else { return };
        let better = if least { Better::More } else { Better::Less };
        let word = if least { "at least" } else { "at most" };
        lines.push(table.cell(row, "ratio", "", better).one(value));
        lines.push(table.cell(row, word, "", Better::Neither).one(wanted));
    };
    let ratio = |case, rival: &str, size| ratio(gathered, case, rival, size);
    let latency = |rival: &str, size| ratio("mpi-latency", rival, size);
    let bandwidth = |rival: &str, size| ratio("mpi-bandwidth", rival, size);
    put("latency of 8 B, ours / Open MPI's", latency("openmpi", 8), 1.0, false);
    put("latency of 4 to 256 KiB, MPICH's / ours, mean", mean(|s| latency("mpich", s), true), 1.5, true);
    put("latency of 4 to 256 KiB, MPICH's / ours, least", least(|s| latency("mpich", s), true), 1.0, true);
    put("bandwidth of 4 to 256 KiB, ours / MPICH's, mean", mean(|s| bandwidth("mpich", s), false), 1.5, true);
    put(
        "bandwidth of 4 to 256 KiB, ours / MPICH's, least",
        least(|s| bandwidth("mpich", s), false),
        1.0,
        true,
    );
    put(
        "latency of 4 to 256 KiB, Intel MPI's / ours, mean",
        mean(|s| latency("intelmpi", s), true),
        0.8,
        true,
    );
    put(
        "bandwidth of 4 to 256 KiB, ours / Intel MPI's, mean",
        mean(|s| bandwidth("intelmpi", s), false),
        0.8,
        true,
    );
    let one_core = |rival: &str| ratio("mpi-one-core", rival, 8);
    let inverse = |value: Option<f64>| value.map(|value| 1.0 / value);
    put("two ranks on one core, MPICH's / ours", inverse(one_core("mpich")), 50.0, true);
    put("two ranks on one core, Open MPI's / ours", inverse(one_core("openmpi")), 50.0, true);
    put("two ranks on one core, ours / Open MPI's yielding", one_core("openmpi-yield"), 1.5, false);
    for (rival, name) in [("mpich", "MPICH"), ("intelmpi", "Intel MPI")] {
        let row = format!("IMB-MPI1 by 16 ranks on two cores, ours / {name}'s");
        put(&row, ratio("mpi-crowd", rival, 0), 1.0, false);
    }
    for (rival, name) in [("openmpi", "Open MPI"), ("mpich", "MPICH"), ("intelmpi", "Intel MPI")] {
        let row = format!("collectives by 16 ranks on two cores, ours / {name}'s");
        put(&row, ratio("mpi-many", rival, 0), 1.0, false);
    }
    put("start and end of 16 ranks, ours / MPICH's", ratio("mpi-start", "mpich", 0), 1.0, false);
    lines
}

/// Ours over theirs, the median over the rounds.
fn ratio(gathered: &Gathered, case: &'static str, rival: &str, size: usize) -> Option<f64> {
    let of = |layer: &str| gathered.values(&Key::new(case, layer, "", size, None));
    let (ours, theirs) = (of("mpi"), of(&format!("rival:{rival}")));
    let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
    median(&ratios)
}

fn all(ratio: impl Fn(usize) -> Option<f64>, turned: bool) -> Option<Vec<f64>> {
    let one = |&size: &usize| ratio(size).map(|value| if turned { 1.0 / value } else { value });
    MEAN.iter().map(one).collect()
}

/// The geometric mean over the sizes, if there is a value for each.
fn mean(ratio: impl Fn(usize) -> Option<f64>, turned: bool) -> Option<f64> {
    let all = all(ratio, turned)?;
    Some(all.iter().product::<f64>().powf(1.0 / all.len() as f64))
}

fn least(ratio: impl Fn(usize) -> Option<f64>, turned: bool) -> Option<f64> {
    all(ratio, turned)?.into_iter().min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_needs_every_size() {
        let mut gathered = Gathered::default();
        for (at, size) in MEAN.into_iter().enumerate() {
            gathered.add(Key::new("mpi-latency", "mpi", "", size, None), Some("shm"), Some(1.0));
            let theirs = [1.0, 4.0, 1.0, 4.0][at];
            gathered.add(Key::new("mpi-latency", "rival:mpich", "", size, None), None, Some(theirs));
        }
        gathered.add(Key::new("mpi-latency", "mpi", "", 8, None), Some("shm"), Some(0.5));
        gathered.add(Key::new("mpi-latency", "rival:openmpi", "", 8, None), None, Some(1.0));
        let found: Vec<(String, f64)> = cells(&gathered, 1)
            .into_iter()
            .filter_map(|line| match line {
                Line::Cell(cell) if cell.column == "ratio" => Some((cell.row.clone(), cell.value?)),
                _ => None,
            })
            .collect();
        let of = |word: &str| found.iter().find(|(row, _)| row.contains(word)).map(|(_, value)| *value);
        assert_eq!(of("8 B"), Some(0.5));
        assert!(of("ours, mean").is_some_and(|mean| (mean - 2.0).abs() < 1e-9), "{found:?}");
        assert_eq!(of("ours, least"), Some(1.0));
        assert_eq!(of("Intel"), None, "it was not there");
    }
}
