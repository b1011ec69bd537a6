//! Programs of the Cashmere paper (section 3.2) on shared memory: each runs in every worker, and can check itself.

#![forbid(unsafe_code)]

mod costs;
mod gauss;
mod litmus;
mod locks;
mod lu;
mod sor;
mod team;
mod typed;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use viaduct_cashmere::Dsm;
use viaduct_cashmere::node::start::Error;

pub use team::Team;

/// A program of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum App {
    /// Red-black successive over-relaxation: bands of rows, neighbours exchange their edges.
    Sor,
    /// Gaussian elimination: rows dealt out in turn, one row goes to all in each step.
    Gauss,
    /// Factorisation into triangular matrices by tiles.
    Lu,
    /// Not of the paper: programs that check what shared memory promises. The size of the problem is a seed.
    Litmus,
    /// Not of the paper's suite: what the basic operations of section 3.1 cost, for `viaduct bench dsm`.
    Costs,
}

impl App {
    /// All programs of the paper that are there.
    pub const ALL: [App; 3] = [App::Sor, App::Gauss, App::Lu];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            App::Sor => "sor",
            App::Gauss => "gauss",
            App::Lu => "lu",
            App::Litmus => "litmus",
            App::Costs => "costs",
        }
    }

    /// The size of its problem if none is given: rows and columns.
    pub fn usual_size(self) -> usize {
        match self {
            App::Sor => 1024,
            App::Gauss | App::Lu => 512,
            App::Litmus | App::Costs => 1,
        }
    }

    /// Bytes of shared memory that a problem of this size takes, at most.
    pub fn memory(self, size: usize) -> usize {
        match self {
            App::Litmus => litmus::MEMORY,
            App::Costs => costs::MEMORY,
            // Rows take whole pages, of any size.
            App::Gauss => size * ((size + 1) * size_of::<f64>()).next_multiple_of(1 << 15),
            _ => size * size * size_of::<f64>() + (1 << 20),
        }
    }

    /// Runs the program in this worker, to the end.
    ///
    /// # Errors
    /// A node that is gone, or a size that is refused.
    pub fn run(self, dsm: &mut Dsm, problem: Problem) -> Result<Outcome, Error> {
        match self {
            App::Sor => sor::run(dsm, problem),
            App::Gauss => gauss::run(dsm, problem),
            App::Lu => lu::run(dsm, problem),
            App::Litmus => litmus::run(dsm, problem),
            App::Costs => costs::run(dsm, problem),
        }
    }

    /// How many numbers each of the arrays has that [`run_on`](App::run_on) wants.
    ///
    /// # Errors
    /// A size that is refused, or a program that needs more than barriers.
    pub fn arrays(self, size: usize) -> Result<Vec<usize>, Error> {
        match self {
            App::Sor => sor::check_size(size).map(|()| vec![size * (size / 2); 2]),
            App::Lu => lu::check_size(size).map(|()| vec![size * size]),
            _ => Err(Error::Settings(format!("{self} runs on nodes only"))),
        }
    }

    /// Runs the program in a worker of any team, on arrays of zeroes as [`arrays`](App::arrays) says. Gives the team back, and the
    /// time of the work without that of first touches.
    ///
    /// # Errors
    /// A worker that is gone, or what `arrays` refuses.
    pub fn run_on<T: Team>(
        self,
        team: T,
        arrays: &[T::Numbers],
        problem: Problem,
    ) -> Result<(T, Duration), Error> {
        match (self, arrays) {
            (App::Sor, &[red, black]) => sor::compute(team, [red, black], problem),
            (App::Lu, &[matrix]) => lu::compute(team, matrix, problem),
            _ => Err(Error::Settings(format!("{self} runs on nodes only"))),
        }
    }
}

impl fmt::Display for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for App {
    type Err = String;

    fn from_str(word: &str) -> Result<App, String> {
        let found = App::ALL.into_iter().chain([App::Litmus, App::Costs]).find(|app| app.name() == word);
        found.ok_or_else(|| format!("no program `{word}`; there are sor, gauss and lu"))
    }
}

/// What is to be computed.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    /// Rows and columns.
    pub size: usize,
    /// Rounds, where the program has them.
    pub rounds: usize,
    /// Compare with the sequential program, bit by bit.
    pub check: bool,
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The sum of all results: the same for every number of workers.
    pub sum: f64,
    /// Whether the results equal those of the sequential program; None if that was not asked, or by another worker.
    pub equal: Option<bool>,
    /// The time of the work itself, without that of the first touches.
    pub work: Duration,
}

/// The rows of a worker among `rows`, in one band.
fn band(rows: usize, rank: usize, size: usize) -> std::ops::Range<usize> {
    rows * rank / size..rows * (rank + 1) / size
}

/// Whether two results are the same, bit by bit.
fn same(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// A number for each place of a matrix, the same everywhere: between 0 and 1.
fn noise(row: usize, column: usize) -> f64 {
    let mixed = (row as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ (column as u64).wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_cover_all_rows_once() {
        for size in 1..9 {
            let rows: Vec<usize> = (0..size).flat_map(|rank| band(37, rank, size)).collect();
            assert_eq!(rows, (0..37).collect::<Vec<_>>());
        }
    }

    #[test]
    fn words_name_programs() {
        for app in App::ALL {
            assert_eq!(app.name().parse(), Ok(app));
        }
        assert!("water".parse::<App>().unwrap_err().contains("sor"));
    }
}
