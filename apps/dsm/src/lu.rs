//! Factorisation of a matrix into a lower and an upper triangle, by tiles that lie row by row in one array.
//!
//! A column of tiles belongs to one worker. In each step the tile on the diagonal is factored, then the tiles to its right
//! and below, then all later ones; tiles of different workers share pages, as in the paper's LU.

use std::time::{Duration, Instant};

use viaduct_cashmere::node::start::Error;
use viaduct_cashmere::{Array, Dsm};

use crate::team::Team;
use crate::{Outcome, Problem, noise, same};

/// Rows and columns of a tile.
const TILE: usize = 16;

fn element(row: usize, column: usize, size: usize) -> f64 {
    noise(row, column) + if row == column { size as f64 } else { 0.0 }
}

/// A tile, taken out of the matrix to be worked on.
type Tile = [[f64; TILE]; TILE];

/// Factors the tile on the diagonal: below it the lower triangle, whose diagonal is all ones.
fn factor(tile: &mut Tile) {
    for k in 0..TILE {
        for i in k + 1..TILE {
            tile[i][k] /= tile[k][k];
            for j in k + 1..TILE {
                tile[i][j] -= tile[i][k] * tile[k][j];
            }
        }
    }
}

/// A tile to the right of the diagonal.
fn solve_right(tile: &mut Tile, diagonal: &Tile) {
    for k in 0..TILE {
        let done = tile[k];
        for (row, factors) in tile.iter_mut().zip(diagonal).skip(k + 1) {
            row.iter_mut().zip(done).for_each(|(value, other)| *value -= factors[k] * other);
        }
    }
}

/// A tile below the diagonal.
fn solve_below(tile: &mut Tile, diagonal: &Tile) {
    for row in tile.iter_mut() {
        for k in 0..TILE {
            row[k] /= diagonal[k][k];
            for j in k + 1..TILE {
                row[j] -= row[k] * diagonal[k][j];
            }
        }
    }
}

/// A later tile: takes the product of one below and one to the right off it.
fn update(tile: &mut Tile, below: &Tile, right: &Tile) {
    for (row, factors) in tile.iter_mut().zip(below) {
        for (factor, line) in factors.iter().zip(right) {
            row.iter_mut().zip(line).for_each(|(value, other)| *value -= factor * other);
        }
    }
}

/// Where tiles are read from and written to.
trait Matrix {
    fn get(&self, row: usize, column: usize) -> Tile;
    fn put(&mut self, row: usize, column: usize, tile: &Tile);
}

struct Shared<'t, T: Team> {
    team: &'t T,
    array: T::Numbers,
    size: usize,
}

fn line(size: usize, row: usize, column: usize, inner: usize) -> std::ops::Range<usize> {
    let at = (row * TILE + inner) * size + column * TILE;
    at..at + TILE
}

impl<T: Team> Matrix for Shared<'_, T> {
    fn get(&self, row: usize, column: usize) -> Tile {
        let mut tile = [[0.0; TILE]; TILE];
        for (inner, values) in tile.iter_mut().enumerate() {
            values.copy_from_slice(&self.team.read(self.array, line(self.size, row, column, inner)));
        }
        tile
    }

    fn put(&mut self, row: usize, column: usize, tile: &Tile) {
        for (inner, values) in tile.iter().enumerate() {
            self.team.write(self.array, line(self.size, row, column, inner)).copy_from_slice(values);
        }
    }
}

struct Own(Vec<f64>, usize);

impl Matrix for Own {
    fn get(&self, row: usize, column: usize) -> Tile {
        let mut tile = [[0.0; TILE]; TILE];
        for (inner, values) in tile.iter_mut().enumerate() {
            values.copy_from_slice(&self.0[line(self.1, row, column, inner)]);
        }
        tile
    }

    fn put(&mut self, row: usize, column: usize, tile: &Tile) {
        for (inner, values) in tile.iter().enumerate() {
            self.0[line(self.1, row, column, inner)].copy_from_slice(values);
        }
    }
}

/// The tiles next to the diagonal in step `k` whose column is `mine`.
fn perimeter(matrix: &mut impl Matrix, k: usize, tiles: usize, mine: impl Fn(usize) -> bool) {
    let diagonal = matrix.get(k, k);
    for column in (k + 1..tiles).filter(|&column| mine(column)) {
        let mut tile = matrix.get(k, column);
        solve_right(&mut tile, &diagonal);
        matrix.put(k, column, &tile);
    }
    if mine(k) {
        for row in k + 1..tiles {
            let mut tile = matrix.get(row, k);
            solve_below(&mut tile, &diagonal);
            matrix.put(row, k, &tile);
        }
    }
}

fn interior(matrix: &mut impl Matrix, k: usize, tiles: usize, mine: impl Fn(usize) -> bool) {
    for row in k + 1..tiles {
        let below = matrix.get(row, k);
        for column in (k + 1..tiles).filter(|&column| mine(column)) {
            let mut tile = matrix.get(row, column);
            update(&mut tile, &below, &matrix.get(k, column));
            matrix.put(row, column, &tile);
        }
    }
}

fn diagonal(matrix: &mut impl Matrix, k: usize) {
    let mut tile = matrix.get(k, k);
    factor(&mut tile);
    matrix.put(k, k, &tile);
}

pub(crate) fn check_size(size: usize) -> Result<(), Error> {
    if size == 0 || !size.is_multiple_of(TILE) {
        return Err(Error::Settings(format!("{size} rows: a multiple of {TILE} is wanted")));
    }
    Ok(())
}

pub(crate) fn run(dsm: &mut Dsm, problem: Problem) -> Result<Outcome, Error> {
    let Problem { size, check, .. } = problem;
    check_size(size)?;
    let array: Array<f64> = dsm.array(size * size)?;
    let (epoch, work) = compute(dsm.epoch(), array, problem)?;
    let outcome = if epoch.rank() == 0 {
        let values = epoch.read(array, 0..size * size).to_vec();
        let equal = check.then(|| same(&values, &sequential(size)));
        Outcome { sum: values.iter().sum(), equal, work }
    } else {
        Outcome { sum: 0.0, equal: None, work }
    };
    epoch.barrier(0)?;
    Ok(outcome)
}

/// The factorisation, and its time after every worker has filled its part.
pub(crate) fn compute<T: Team>(
    mut team: T,
    array: T::Numbers,
    problem: Problem,
) -> Result<(T, Duration), Error> {
    let size = problem.size;
    let tiles = size / TILE;
    let (rank, workers) = (team.rank(), team.size());
    let mine = |column: usize| column % workers == rank;
    for column in (0..tiles).filter(|&column| mine(column)) {
        for row in 0..size {
            let mut values = team.write(array, row * size + column * TILE..row * size + (column + 1) * TILE);
            values
                .iter_mut()
                .enumerate()
                .for_each(|(j, value)| *value = element(row, column * TILE + j, size));
        }
    }
    team = team.barrier()?;
    let begun = Instant::now();
    for k in 0..tiles {
        team.progress(k as f64 / tiles as f64);
        if mine(k) {
            diagonal(&mut Shared { team: &team, array, size }, k);
        }
        team = team.barrier()?;
        perimeter(&mut Shared { team: &team, array, size }, k, tiles, mine);
        team = team.barrier()?;
        interior(&mut Shared { team: &team, array, size }, k, tiles, mine);
        team = team.barrier()?;
    }
    Ok((team, begun.elapsed()))
}

fn sequential(size: usize) -> Vec<f64> {
    let tiles = size / TILE;
    let mut matrix = Own((0..size * size).map(|at| element(at / size, at % size, size)).collect(), size);
    for k in 0..tiles {
        diagonal(&mut matrix, k);
        perimeter(&mut matrix, k, tiles, |_| true);
        interior(&mut matrix, k, tiles, |_| true);
    }
    matrix.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_triangles_multiply_to_the_matrix() {
        let (size, factors) = (2 * TILE, sequential(2 * TILE));
        for row in 0..size {
            for column in 0..size {
                let lower = |k: usize| if k == row { 1.0 } else { factors[row * size + k] };
                let product: f64 = (0..=row.min(column)).map(|k| lower(k) * factors[k * size + column]).sum();
                assert!((product - element(row, column, size)).abs() < 1e-9, "{row}, {column}");
            }
        }
    }
}
