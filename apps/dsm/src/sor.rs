//! Red-black successive over-relaxation: each point moves towards the mean of its four neighbours.
//!
//! Red and black points lie in arrays of their own, so that a half step reads one and writes the other. Workers have bands
//! of rows; a row of another worker is read at each edge of a band.

use std::ops::Range;
use std::time::{Duration, Instant};

use viaduct_cashmere::node::start::Error;
use viaduct_cashmere::{Array, Dsm, Epoch};

use crate::team::Team;
use crate::{Outcome, Problem, band, noise, same};

const OMEGA: f64 = 1.2;

/// New values of one colour in a row, from the other colour above, below and beside.
fn relax(row: &mut [f64], up: &[f64], own: &[f64], down: &[f64], shifted: bool) {
    let last = row.len() - 1;
    for (j, point) in row.iter_mut().enumerate() {
        let (left, right) = if shifted {
            (Some(j), j.checked_add(1).filter(|&j| j <= last))
        } else {
            (j.checked_sub(1), Some(j))
        };
        let beside = |at: Option<usize>| at.map_or(1.0, |at| own[at]);
        let mean = (up[j] + down[j] + beside(left) + beside(right)) / 4.0;
        *point += OMEGA * (mean - *point);
    }
}

/// Whether the points of this colour (0 red, 1 black) in this row stand one place to the right.
fn is_shifted(row: usize, colour: usize) -> bool {
    row % 2 != colour
}

pub(crate) fn check_size(size: usize) -> Result<(), Error> {
    match size / 2 {
        0 | 1 => {
            Err(Error::Settings(format!("a grid of {size} by {size} is too small; 4 or more are wanted")))
        }
        _ => Ok(()),
    }
}

pub(crate) fn run(dsm: &mut Dsm, problem: Problem) -> Result<Outcome, Error> {
    let Problem { size, rounds, check } = problem;
    check_size(size)?;
    let half = size / 2;
    let grid: [Array<f64>; 2] = [dsm.array(size * half)?, dsm.array(size * half)?];
    let (epoch, work) = compute(dsm.epoch(), grid, problem)?;
    let all = |epoch: &Epoch<'_>, array| epoch.read(array, 0..size * half).to_vec();
    let outcome = if epoch.rank() == 0 {
        let (red, black) = (all(&epoch, grid[0]), all(&epoch, grid[1]));
        let sum = red.iter().chain(&black).sum();
        let equal = check.then(|| {
            let [wanted_red, wanted_black] = sequential(size, rounds);
            same(&red, &wanted_red) && same(&black, &wanted_black)
        });
        Outcome { sum, equal, work }
    } else {
        Outcome { sum: 0.0, equal: None, work }
    };
    epoch.barrier(0)?;
    Ok(outcome)
}

/// All rounds, and the time of those after the first, in which every worker touches what it needs.
pub(crate) fn compute<T: Team>(
    mut team: T,
    grid: [T::Numbers; 2],
    problem: Problem,
) -> Result<(T, Duration), Error> {
    let Problem { size, rounds, .. } = problem;
    let half = size / 2;
    let rows = band(size, team.rank(), team.size());
    for (colour, &array) in grid.iter().enumerate() {
        for row in rows.clone() {
            let mut points = team.write(array, row * half..(row + 1) * half);
            points.iter_mut().enumerate().for_each(|(j, point)| *point = noise(row, 2 * j + colour));
        }
    }
    team = team.barrier()?;
    let mut begun = Instant::now();
    for round in 0..rounds {
        team.progress(round as f64 / rounds as f64);
        for colour in 0..2 {
            step(&team, grid, half, rows.start.max(1)..rows.end.min(size - 1), colour);
            team = team.barrier()?;
        }
        if round == 0 {
            begun = Instant::now();
        }
    }
    Ok((team, begun.elapsed()))
}

/// A half step of a worker's rows. What it needs is borrowed once: no worker changes the other colour in this epoch, and no
/// other one these rows.
fn step<T: Team>(team: &T, grid: [T::Numbers; 2], half: usize, rows: Range<usize>, colour: usize) {
    if rows.is_empty() {
        return;
    }
    let around = team.read(grid[1 - colour], (rows.start - 1) * half..(rows.end + 1) * half);
    let mut own = team.write(grid[colour], rows.start * half..rows.end * half);
    relax_rows(&mut own, &around, half, rows.start, colour);
}

/// New values of one colour in some rows, from the other colour in these, in the one above and in the one below.
fn relax_rows(own: &mut [f64], around: &[f64], half: usize, first: usize, colour: usize) {
    for (index, row) in own.chunks_exact_mut(half).enumerate() {
        let line = |above: usize| &around[(index + above) * half..(index + above + 1) * half];
        relax(row, line(0), line(1), line(2), is_shifted(first + index, colour));
    }
}

fn sequential(size: usize, rounds: usize) -> [Vec<f64>; 2] {
    let half = size / 2;
    let fill =
        |colour: usize| (0..size * half).map(move |at| noise(at / half, 2 * (at % half) + colour)).collect();
    let mut grid: [Vec<f64>; 2] = [fill(0), fill(1)];
    for _ in 0..rounds {
        for colour in 0..2 {
            let (red, black) = grid.split_at_mut(1);
            let (ours, other) = if colour == 0 { (&mut red[0], &black[0]) } else { (&mut black[0], &red[0]) };
            relax_rows(&mut ours[half..(size - 1) * half], other, half, 1, colour);
        }
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_grid_with_its_edge_stays_as_it_is() {
        let (mut row, ones) = (vec![1.0; 8], vec![1.0; 8]);
        for shifted in [false, true] {
            relax(&mut row, &ones, &ones, &ones, shifted);
        }
        assert_eq!(row, ones);
    }

    #[test]
    fn relaxation_converges_to_the_edge() {
        let spread = |rounds: usize| {
            let grid = sequential(16, rounds);
            grid.iter().flatten().fold(0.0_f64, |most, point| most.max((point - 1.0).abs()))
        };
        assert!(spread(0) > 0.5 && spread(0) >= spread(200));
    }
}
