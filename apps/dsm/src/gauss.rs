//! Gaussian elimination and back-substitution: solves A x = b.
//!
//! Rows are dealt out to the workers in turn. In each step one row is ready, which its owner says by a flag, and every worker
//! takes it off its own later rows: one row goes from one worker to all.

use std::time::Instant;

use viaduct_cashmere::node::start::Error;
use viaduct_cashmere::{Array, Dsm};

use crate::{Outcome, Problem, noise, same};

/// The matrix has large values on its diagonal: no rows need to be exchanged. The last column is b.
fn element(row: usize, column: usize, size: usize) -> f64 {
    noise(row, column) + if row == column { size as f64 } else { 0.0 }
}

/// Takes a multiple of the pivot's row off another.
fn eliminate(row: &mut [f64], pivot: &[f64], at: usize) {
    let factor = row[at] / pivot[at];
    row[at..].iter_mut().zip(&pivot[at..]).for_each(|(value, taken)| *value -= factor * taken);
}

/// Rows of the matrix begin at every `width` numbers.
fn substitute(matrix: &[f64], size: usize, width: usize) -> Vec<f64> {
    let mut solution = vec![0.0; size];
    for row in (0..size).rev() {
        let line = &matrix[row * width..(row + 1) * width];
        let known: f64 = (row + 1..size).map(|column| line[column] * solution[column]).sum();
        solution[row] = (line[size] - known) / line[row];
    }
    solution
}

/// Flags that a program can have.
const MOST: usize = 65_536;

pub(crate) fn run(dsm: &mut Dsm, problem: Problem) -> Result<Outcome, Error> {
    let Problem { size, check, .. } = problem;
    if !(1..=MOST).contains(&size) {
        return Err(Error::Settings(format!(
            "{size} rows: there is a flag for each, and 1 to {MOST} of them"
        )));
    }
    // Rows begin at pages: neighbours belong to different workers.
    let width = (size + 1).next_multiple_of(dsm.page() / size_of::<f64>());
    let matrix: Array<f64> = dsm.array(size * width)?;
    let mut epoch = dsm.epoch();
    let (rank, workers) = (epoch.rank(), epoch.size());
    let line = |row: usize| row * width..row * width + size + 1;
    for row in (rank..size).step_by(workers) {
        let mut values = epoch.write(matrix, line(row));
        values.iter_mut().enumerate().for_each(|(column, value)| *value = element(row, column, size));
    }
    epoch = epoch.barrier(0)?;
    let begun = Instant::now();
    for pivot in 0..size {
        epoch.progress(pivot as f64 / size as f64);
        epoch = if pivot % workers == rank {
            epoch.set_flag(pivot as u32)?
        } else {
            epoch.wait_flag(pivot as u32)?
        };
        let first = pivot + 1 + (rank + workers - (pivot + 1) % workers) % workers;
        for row in (first..size).step_by(workers) {
            let taken = epoch.read(matrix, line(pivot));
            eliminate(&mut epoch.write(matrix, line(row)), &taken, pivot);
        }
    }
    epoch = epoch.barrier(0)?;
    let work = begun.elapsed();
    let outcome = if rank == 0 {
        let solution = substitute(&epoch.read(matrix, 0..size * width), size, width);
        let equal = check.then(|| same(&solution, &sequential(size)));
        Outcome { sum: solution.iter().sum(), equal, work }
    } else {
        Outcome { sum: 0.0, equal: None, work }
    };
    epoch.barrier(0)?;
    Ok(outcome)
}

fn sequential(size: usize) -> Vec<f64> {
    let width = size + 1;
    let mut matrix: Vec<f64> = (0..size * width).map(|at| element(at / width, at % width, size)).collect();
    for pivot in 0..size {
        let (done, left) = matrix.split_at_mut((pivot + 1) * width);
        left.chunks_mut(width).for_each(|row| eliminate(row, &done[pivot * width..], pivot));
    }
    substitute(&matrix, size, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_solution_solves_the_system() {
        let (size, solution) = (24, sequential(24));
        for row in 0..size {
            let left: f64 = (0..size).map(|column| element(row, column, size) * solution[column]).sum();
            assert!((left - element(row, size, size)).abs() < 1e-9, "row {row}");
        }
    }
}
