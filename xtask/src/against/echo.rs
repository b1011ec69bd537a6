//! The example `echo` of two trees: hyper, axum and tonic over Viaduct against TCP.
//!
//! It prints no results that `viaduct report` reads, but ratios to TCP of the same run, with intervals; those are compared. What
//! one of the two programs does not have is left out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::WORSE;
use super::score::Score;
use crate::workspace;

/// What it is called among the cases.
pub(super) const CASE: &str = "example echo";
/// How much less a ratio has to be.
const BOUND: f64 = 0.95;

/// The median and its interval, by runtime and program.
type Ratios = BTreeMap<String, [f64; 3]>;

/// Builds the example of a tree.
pub(super) fn build(source: &Path, target: &Path) -> Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--release", "-p", "viaduct-sockets", "--example", "echo"]);
    cargo.current_dir(source).env("CARGO_TARGET_DIR", target).stdin(Stdio::null());
    ensure!(cargo.status()?.success(), "the example echo of {} does not build", source.display());
    Ok(target.join("release/examples/echo"))
}

/// Runs one of the programs.
pub(super) fn measure(program: &Path) -> Result<Ratios> {
    let output = Command::new(program).stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    let ratios = read(&String::from_utf8_lossy(&output.stdout));
    ensure!(!ratios.is_empty(), "{} printed no ratios", program.display());
    Ok(ratios)
}

/// How many ratios have which verdict, and a line for each that is worse for sure: by more than 5 %, in an interval of its own.
pub(super) fn compare(old: &Ratios, new: &Ratios) -> (Score, String) {
    let (mut score, mut talk) = (Score::default(), String::new());
    for (name, old, new) in old.iter().filter_map(|(name, old)| Some((name, old, new.get(name)?))) {
        match (new[1] > old[2], new[2] < old[1]) {
            (true, _) => score.better += 1,
            (_, false) => score.same += 1,
            (_, true) => score.worse += 1,
        }
        if new[2] < old[1] && new[0] < old[0] * BOUND {
            let much = (1.0 - new[0] / old[0]) * 100.0;
            talk += &format!("{WORSE}{much:.0} %: echo, {name} (requests a second, of TCP's)\n");
        }
    }
    (score, talk)
}

/// Reads "one, hyper: via has 8.12 [7.90, 8.33] times …"; a program of one runtime names none.
fn read(text: &str) -> Ratios {
    text.lines().filter_map(|line| ratio(line).ok()).collect()
}

fn ratio(line: &str) -> Result<(String, [f64; 3])> {
    let (name, rest) = line.split_once(": via has ").context("no ratio")?;
    let (numbers, _) = rest.split_once(" times").context("no ratio")?;
    let words = numbers.split([' ', ',', '[', ']']).filter(|word| !word.is_empty());
    let numbers = words.map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    let name = if name.contains(", ") { name.to_owned() } else { format!("one, {name}") };
    Ok((name, numbers.try_into().ok().context("three numbers are wanted")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worse_ratios_are_named_where_the_intervals_are_apart() {
        let old = read(
            "hyper: via has 8.00 [7.90, 8.10] times the requests per second of tcp, and 0.1 [0.1, 0.1] times its p50\n\
            tonic: via has 4.00 [3.00, 5.00] times the requests\ngone: via has 2 [2, 2] times\nprogram  network  p50\n",
        );
        let new = read(
            "one, hyper: via has 7.20 [7.10, 7.30] times the requests per second\none, tonic: via has 3.10 [2.90, 3.20] times\n\
            many, hyper: via has 1.00 [1.00, 1.00] times\n",
        );
        assert_eq!(old["one, hyper"], [8.0, 7.9, 8.1]);
        assert_eq!(new.len(), 3);
        let (score, talk) = compare(&old, &new);
        assert_eq!(score, Score { worse: 1, same: 1, ..Score::default() });
        assert_eq!(talk, "worse by 10 %: echo, one, hyper (requests a second, of TCP's)\n");
        let better = Score { better: 1, same: 1, ..Score::default() };
        assert_eq!(compare(&new, &old), (better, String::new()));
    }
}
