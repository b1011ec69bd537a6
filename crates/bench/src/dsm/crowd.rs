//! More workers than cores: the work of two workers on two nodes done by eight.

use std::io;

use viaduct_results::table::Better;

use super::{Bench, Emit, Progress, bar};

/// At most so many times the time of two workers.
const WANTED: f64 = 2.0;

const VARIANTS: [&str; 2] = ["ms-mg", "none-mg"];

/// Measures SOR and Gauss by two and by eight workers of two nodes, in turn; their results are equal.
///
/// # Errors
/// If a run fails, or a line cannot be written.
pub fn crowd(bench: &Bench<'_>, progress: Progress<'_>, emit: Emit<'_>) -> io::Result<()> {
    let table = bench.table("dsm-bars");
    let problems: [(&str, [&str; 2]); 2] = if bench.quick {
        [("sor", ["64", "4"]), ("gauss", ["64", "1"])]
    } else {
        [("sor", ["2048", "60"]), ("gauss", ["1000", "1"])]
    };
    let steps = (problems.len() * VARIANTS.len() * bench.rounds) as f64;
    let mut step = 0.0;
    for (app, [size, rounds]) in problems {
        for variant in VARIANTS {
            let row = format!("{app}, {variant}, 8 workers / 2 workers on 2 cores");
            let run = |procs: &str| {
                let layout = ["--nodes", "2", "--procs", procs, "--variant", variant];
                bench.app(&[&[app, "--size", size, "--rounds", rounds][..], &layout].concat())
            };
            let (mut few, mut many) = (Vec::new(), Vec::new());
            for round in 0..bench.rounds {
                progress(&format!("{app} {variant}"), step / steps);
                step += 1.0;
                // Each goes first every other time.
                let [first, second] = if round % 2 == 0 { ["1", "4"] } else { ["4", "1"] };
                let (first, second) = (run(first)?, run(second)?);
                if first.sum.to_bits() != second.sum.to_bits() {
                    let why = format!("the results differ: {} and {}", first.sum, second.sum);
                    return emit(table.cell(row, "ratio", "", Better::Less).wrong(why));
                }
                let (two, eight) = if round % 2 == 0 { (first, second) } else { (second, first) };
                few.push(two.seconds);
                many.push(eight.seconds);
            }
            emit(table.cell(&row, "ours", "s", Better::Less).of(&many))?;
            emit(table.cell(&row, "theirs", "s", Better::Less).of(&few))?;
            let ratios: Vec<f64> = many.iter().zip(&few).map(|(many, few)| many / few).collect();
            bar(&table, &row, &ratios, WANTED, emit)?;
        }
    }
    Ok(())
}
