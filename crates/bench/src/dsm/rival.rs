//! An empty barrier of two nodes, whose workers spin on cores of their own, against that of two ranks of Open MPI.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use viaduct_results::table::Better;

use super::{Bench, Emit, Progress, bar, points};
use crate::mpi::open_mpi;

const SOURCE: &str = include_str!("barrier.c");
const LIMIT: Duration = Duration::from_secs(60);

/// Variants whose synchronisation goes by remote write.
const WAYS: [&str; 2] = ["dms", "ms-mg"];

/// At most so many times Open MPI's time.
const WANTED: f64 = 3.0;

/// Measures the barrier of each variant and of Open MPI, in turn.
///
/// # Errors
/// If a run of ours fails, or a line cannot be written. A rival that is missing or fails is said to be.
pub fn barriers(bench: &Bench<'_>, progress: Progress<'_>, emit: Emit<'_>) -> io::Result<()> {
    let table = bench.table("dsm-bars");
    let rival = compile(bench);
    let (mut ours, mut theirs) = ([Vec::new(), Vec::new()], Vec::new());
    // A value of each round, or none where it failed: ratios are of one round.
    let turns = if bench.quick { "24" } else { "20000" };
    for round in 0..bench.rounds {
        progress("barrier", round as f64 / bench.rounds as f64);
        for (way, values) in WAYS.into_iter().zip(&mut ours) {
            // Problem 2 is the barrier alone.
            let said = bench.dsm(&["costs", "--size", "2", "--variant", way, "--rounds", turns])?;
            values.push(points(&said).get("barrier").copied());
        }
        theirs.push(rival.as_ref().ok().and_then(|program| run(bench, program)));
    }
    for (way, values) in WAYS.into_iter().zip(&ours) {
        let row = format!("empty barrier, {way} / Open MPI");
        let known = |values: &[Option<f64>]| values.iter().flatten().copied().collect::<Vec<_>>();
        emit(table.cell(&row, "ours", "us", Better::Less).of(&known(values)))?;
        match &rival {
            Ok(_) => {
                emit(table.cell(&row, "theirs", "us", Better::Less).of(&known(&theirs)))?;
                let ratios = ratios(values, &theirs);
                bar(&table, &row, &ratios, WANTED, emit)?;
            }
            Err(why) => emit(table.cell(&row, "ratio", "", Better::Less).missing(why.as_str()))?,
        }
    }
    Ok(())
}

/// The ratios of rounds in which both were measured.
fn ratios(ours: &[Option<f64>], theirs: &[Option<f64>]) -> Vec<f64> {
    ours.iter().zip(theirs).filter_map(|(ours, theirs)| Some((*ours)? / (*theirs)?)).collect()
}

/// The rival's program, or why there is none.
fn compile(bench: &Bench<'_>) -> Result<PathBuf, String> {
    let missing = || "Open MPI is missing: apt-get install openmpi-bin libopenmpi-dev gcc".to_owned();
    let compiler = bench.launcher.find("mpicc.openmpi").ok_or_else(missing)?;
    let (source, program) = (bench.folder.join("barrier.c"), bench.folder.join("barrier"));
    std::fs::write(&source, SOURCE).map_err(|error| error.to_string())?;
    let words = ["-O2", "-w", "-o"].map(str::to_owned).into_iter();
    let args: Vec<String> = words.chain([&program, &source].map(|path| path.display().to_string())).collect();
    bench.launcher.whole_in(&compiler, &args, &[], LIMIT).map_err(|error| error.to_string())?;
    Ok(program)
}

fn run(bench: &Bench<'_>, program: &Path) -> Option<f64> {
    let start = bench.launcher.find("mpiexec.openmpi")?;
    let turns = if bench.quick { "1000" } else { "200000" };
    let [one, other] = bench.cpus.map(|cpu| cpu.to_string());
    let head = ["-n".to_owned(), "2".into(), program.display().to_string(), one, other, turns.into()];
    let words = [&open_mpi(&[])[..], &head].concat();
    let said = bench.launcher.whole_on(&bench.cpus, &start, &words, &[], LIMIT).ok()?;
    points(&said).get("barrier").copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_fails_leaves_out_its_round_alone() {
        let (ours, theirs) =
            ([Some(2.0), Some(4.0), None, Some(9.0)], [Some(1.0), None, Some(5.0), Some(3.0)]);
        assert_eq!(ratios(&ours, &theirs), [2.0, 3.0]);
    }
}
