//! The table `mpi-bars`: how our library stands against the others, each ratio beside what is wanted of it.

use std::collections::BTreeMap;

use viaduct_results::stats::median;
use viaduct_results::table::{Better, Table};

use super::Case;
use super::lines::{Gathered, Key};
use crate::schema::Line;

/// Sizes of the mean.
const MEAN: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// A row: the case and the library that it is about, our ratio if there is one, and what is wanted of it.
struct Bar {
    row: String,
    of: (&'static str, &'static str),
    ratio: Option<f64>,
    wanted: f64,
    least: bool,
}

/// Everything that can be said from what was measured in `cases`. `absent` has the layers of libraries that were asked for and
/// are not installed: their rows say so.
pub(super) fn cells(gathered: &Gathered, rounds: usize, cases: &[&Case], absent: &[&str]) -> Vec<Line> {
    let table = Table::new("mpi-bars", BTreeMap::from([("rounds".into(), rounds.to_string())]));
    let mut lines = Vec::new();
    for Bar { row, of: (case, rival), ratio, wanted, least } in bars(gathered) {
        let layer = format!("rival:{rival}");
        let why = match absent.contains(&layer.as_str()) {
            true => Some(format!("{} is not installed", name(rival))),
            false => gathered.why_none(&Key::new(case, layer, "", 0, None)),
        };
        let better = if least { Better::More } else { Better::Less };
        let word = if least { "at least" } else { "at most" };
        let place = table.cell(&row, "ratio", "", better);
        match (ratio, why) {
            (Some(ratio), _) => lines.push(place.one(ratio)),
            (None, Some(why)) if cases.iter().any(|other| other.name == case) => {
                lines.push(place.missing(format!("not measured: {why}")));
            }
            (None, _) => continue,
        }
        lines.push(table.cell(row, word, "", Better::Neither).one(wanted));
    }
    lines
}

/// What a library is called.
fn name(rival: &str) -> &'static str {
    match rival {
        "mpich" => "MPICH",
        "intelmpi" => "Intel MPI",
        _ => "Open MPI",
    }
}

fn bars(gathered: &Gathered) -> Vec<Bar> {
    let mut bars = Vec::new();
    let mut put = |row: &str, of, ratio, wanted, least| {
        bars.push(Bar { row: row.into(), of, ratio, wanted, least });
    };
    let ratio = |(case, rival), size| ratio(gathered, case, rival, size);
    let (latency, bandwidth) = ("mpi-latency", "mpi-bandwidth");
    let (open, mpich, intel) = ((latency, "openmpi"), (latency, "mpich"), (latency, "intelmpi"));
    put("latency of 8 B, ours / Open MPI's", open, ratio(open, 8), 1.0, false);
    put("latency of 4 to 256 KiB, MPICH's / ours, mean", mpich, mean(|s| ratio(mpich, s), true), 1.5, true);
    put("latency of 4 to 256 KiB, MPICH's / ours, least", mpich, least(|s| ratio(mpich, s), true), 1.0, true);
    let of = (bandwidth, "mpich");
    put("bandwidth of 4 to 256 KiB, ours / MPICH's, mean", of, mean(|s| ratio(of, s), false), 1.5, true);
    put("bandwidth of 4 to 256 KiB, ours / MPICH's, least", of, least(|s| ratio(of, s), false), 1.0, true);
    put(
        "latency of 4 to 256 KiB, Intel MPI's / ours, mean",
        intel,
        mean(|s| ratio(intel, s), true),
        0.8,
        true,
    );
    let of = (bandwidth, "intelmpi");
    put("bandwidth of 4 to 256 KiB, ours / Intel MPI's, mean", of, mean(|s| ratio(of, s), false), 0.8, true);
    let one_core = |rival| ("mpi-one-core", rival);
    for (rival, row) in [("mpich", "MPICH's / ours"), ("openmpi", "Open MPI's / ours")] {
        let of = one_core(rival);
        put(&format!("two ranks on one core, {row}"), of, ratio(of, 8).map(|value| 1.0 / value), 50.0, true);
    }
    let of = one_core("openmpi-yield");
    put("two ranks on one core, ours / Open MPI's yielding", of, ratio(of, 8), 1.5, false);
    for rival in ["mpich", "intelmpi"] {
        let (of, name) = (("mpi-crowd", rival), name(rival));
        let row = format!("IMB-MPI1 by 16 ranks on two cores, ours / {name}'s");
        put(&row, of, ratio(of, 0), 1.0, false);
    }
    for rival in ["openmpi", "mpich", "intelmpi"] {
        let (of, name) = (("mpi-many", rival), name(rival));
        put(&format!("collectives by 16 ranks on two cores, ours / {name}'s"), of, ratio(of, 0), 1.0, false);
    }
    let of = ("mpi-start", "mpich");
    put("start and end of 16 ranks, ours / MPICH's", of, ratio(of, 0), 1.0, false);
    bars
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
    use super::super::CASES;
    use super::*;

    #[test]
    fn a_mean_needs_every_size_and_an_absent_library_is_named() {
        let mut gathered = Gathered::default();
        for (at, size) in MEAN.into_iter().enumerate() {
            gathered.add(Key::new("mpi-latency", "mpi", "", size, None), Some("shm"), Some(1.0));
            let theirs = [1.0, 4.0, 1.0, 4.0][at];
            gathered.add(Key::new("mpi-latency", "rival:mpich", "", size, None), None, Some(theirs));
        }
        gathered.add(Key::new("mpi-latency", "mpi", "", 8, None), Some("shm"), Some(0.5));
        gathered.add(Key::new("mpi-latency", "rival:openmpi", "", 8, None), None, Some(1.0));
        let cases: Vec<&Case> = CASES.iter().filter(|case| case.name != "mpi-many").collect();
        let said = cells(&gathered, 1, &cases, &["rival:intelmpi"]);
        let missing: Vec<String> = said
            .iter()
            .filter_map(|line| match line {
                Line::Cell(cell) => Some(format!("{}: {}", cell.row, cell.missing.as_ref()?)),
                _ => None,
            })
            .collect();
        assert_eq!(missing.len(), 3, "both means and IMB-MPI1: {missing:?}");
        assert!(missing.iter().all(|row| row.ends_with(": not measured: Intel MPI is not installed")));
        let found: Vec<(String, f64)> = said
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
