//! Factorisation of a matrix into a lower and an upper triangle, by tiles; the matrix lies column by column in one array.
//!
//! A column of tiles belongs to one worker. In each step the tile on the diagonal is factored, then the tiles to its right
//! and below, then all later ones. Where a column of tiles does not end with a page, two workers share one, as in the paper's
//! LU.

use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

use viaduct_cashmere::node::start::Error;
use viaduct_cashmere::{Array, Dsm, Epoch};

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

/// Where the sequential program reads tiles from and writes them to.
trait Matrix {
    fn get(&self, row: usize, column: usize) -> Tile;
    fn put(&mut self, row: usize, column: usize, tile: &Tile);
}

/// Where a column of a tile lies.
fn line(size: usize, row: usize, column: usize, inner: usize) -> Range<usize> {
    let at = (column * TILE + inner) * size + row * TILE;
    at..at + TILE
}

/// A tile of the columns that `line` gives.
fn gather<L: std::ops::Deref<Target = [f64]>>(line: impl Fn(usize) -> L) -> Tile {
    let mut tile = [[0.0; TILE]; TILE];
    for inner in 0..TILE {
        let values = line(inner);
        tile.iter_mut().zip(values.iter()).for_each(|(row, value)| row[inner] = *value);
    }
    tile
}

fn scatter(tile: &Tile, inner: usize, values: &mut [f64]) {
    values.iter_mut().zip(tile).for_each(|(value, row)| *value = row[inner]);
}

struct Own(Vec<f64>, usize);

impl Matrix for Own {
    fn get(&self, row: usize, column: usize) -> Tile {
        gather(|inner| &self.0[line(self.1, row, column, inner)])
    }

    fn put(&mut self, row: usize, column: usize, tile: &Tile) {
        for inner in 0..TILE {
            scatter(tile, inner, &mut self.0[line(self.1, row, column, inner)]);
        }
    }
}

/// The tiles next to the diagonal in step `k`.
fn perimeter(matrix: &mut impl Matrix, k: usize, tiles: usize) {
    let diagonal = matrix.get(k, k);
    for column in k + 1..tiles {
        let mut tile = matrix.get(k, column);
        solve_right(&mut tile, &diagonal);
        matrix.put(k, column, &tile);
    }
    for row in k + 1..tiles {
        let mut tile = matrix.get(row, k);
        solve_below(&mut tile, &diagonal);
        matrix.put(row, k, &tile);
    }
}

/// The matrix that workers share. What a borrow costs is much for a tile: a worker borrows a column of tiles at a time, whose
/// values lie side by side, where no other worker writes it in this epoch; else the columns of the tiles that it works on.
struct Shared<'t, T: Team> {
    team: &'t T,
    array: T::Numbers,
    size: usize,
}

/// The place of a tile's column within a column of tiles.
fn inside(size: usize, row: usize, inner: usize) -> Range<usize> {
    line(size, row, 0, inner)
}

impl<T: Team> Shared<'_, T> {
    /// A column of tiles.
    fn panel(&self, column: usize) -> Range<usize> {
        column * TILE * self.size..(column + 1) * TILE * self.size
    }

    /// The tile on the diagonal, of a column that its owner may write below.
    fn diagonal(&self, k: usize) -> Tile {
        gather(|inner| self.team.read(self.array, line(self.size, k, k, inner)))
    }

    /// Factors the tile on the diagonal of a column of this worker's.
    fn factor(&self, k: usize) {
        let mut panel = self.team.write(self.array, self.panel(k));
        let mut tile = gather(|inner| &panel[inside(self.size, k, inner)]);
        factor(&mut tile);
        self.put(&mut panel, k, &tile);
    }

    fn put(&self, panel: &mut [f64], row: usize, tile: &Tile) {
        (0..TILE).for_each(|inner| scatter(tile, inner, &mut panel[inside(self.size, row, inner)]));
    }

    /// The tiles next to the diagonal in step `k` whose column is `mine`.
    fn perimeter(&self, k: usize, mine: impl Fn(usize) -> bool) {
        let (size, tiles) = (self.size, self.size / TILE);
        let diagonal = self.diagonal(k);
        for column in (k + 1..tiles).filter(|&column| mine(column)) {
            let mut panel = self.team.write(self.array, self.panel(column));
            let mut tile = gather(|inner| &panel[inside(size, k, inner)]);
            solve_right(&mut tile, &diagonal);
            self.put(&mut panel, k, &tile);
        }
        if mine(k) {
            // Others read the tile above these.
            let below =
                |inner: usize| (k * TILE + inner) * size + (k + 1) * TILE..(k * TILE + inner + 1) * size;
            let mut own: [_; TILE] = std::array::from_fn(|inner| self.team.write(self.array, below(inner)));
            for at in (0..size - (k + 1) * TILE).step_by(TILE) {
                let mut tile = gather(|inner| &own[inner][at..at + TILE]);
                solve_below(&mut tile, &diagonal);
                let lines = own.iter_mut().enumerate();
                lines.for_each(|(inner, own)| scatter(&tile, inner, &mut own[at..at + TILE]));
            }
        }
    }

    /// The later tiles of step `k` whose column is `mine`: no worker writes column `k`.
    fn interior(&self, k: usize, mine: impl Fn(usize) -> bool) {
        let (size, tiles) = (self.size, self.size / TILE);
        let lower = self.team.read(self.array, self.panel(k));
        for column in (k + 1..tiles).filter(|&column| mine(column)) {
            let mut panel = self.team.write(self.array, self.panel(column));
            let panel: &mut [f64] = &mut panel;
            let right = gather(|inner| &panel[inside(size, k, inner)]);
            for row in k + 1..tiles {
                let factors = gather(|inner| &lower[inside(size, row, inner)]);
                let mut tile = gather(|inner| &panel[inside(size, row, inner)]);
                update(&mut tile, &factors, &right);
                self.put(panel, row, &tile);
            }
        }
    }
}

fn interior(matrix: &mut impl Matrix, k: usize, tiles: usize) {
    for row in k + 1..tiles {
        let below = matrix.get(row, k);
        for column in k + 1..tiles {
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
    let mut epoch = fill(dsm.epoch(), array, size)?;
    let all = |epoch: &Epoch<'_>| epoch.read(array, 0..size * size).to_vec();
    let wanted = (check && epoch.rank() == 0).then(|| row_sums(&all(&epoch), size));
    epoch = epoch.barrier(0)?;
    let (epoch, work) = factorise(epoch, array, problem)?;
    let outcome = if epoch.rank() == 0 {
        let values = all(&epoch);
        let right = |wanted: Vec<f64>| agree(&wanted, &sums_of_product(&values, size));
        let equal = wanted.map(|wanted| right(wanted) && same(&values, &sequential(size)));
        Outcome { sum: values.iter().sum(), equal, work }
    } else {
        Outcome { sum: 0.0, equal: None, work }
    };
    epoch.barrier(0)?;
    Ok(outcome)
}

/// The sums of the rows of a matrix. They are taken before the factorisation and of the triangles' product after it.
fn row_sums(matrix: &[f64], size: usize) -> Vec<f64> {
    let mut sums = vec![0.0; size];
    for column in matrix.chunks(size) {
        sums.iter_mut().zip(column).for_each(|(sum, value)| *sum += value);
    }
    sums
}

/// The sums of the rows of the triangles' product: the lower one times the sums of the upper one's rows.
fn sums_of_product(triangles: &[f64], size: usize) -> Vec<f64> {
    let at = |row: usize, column: usize| triangles[column * size + row];
    let upper: Vec<f64> = (0..size).map(|row| (row..size).map(|column| at(row, column)).sum()).collect();
    let sum = |row: usize| (0..row).map(|k| at(row, k) * upper[k]).sum::<f64>() + upper[row];
    (0..size).map(sum).collect()
}

fn agree(some: &[f64], others: &[f64]) -> bool {
    some.iter().zip(others).all(|(some, other)| (some - other).abs() <= 1e-9 * some.abs().max(1.0))
}

/// The factorisation, and its time after every worker has filled its part and, where all share one memory, touched the rest.
pub(crate) fn compute<T: Team>(team: T, array: T::Numbers, problem: Problem) -> Result<(T, Duration), Error> {
    factorise(fill(team, array, problem.size)?, array, problem)
}

/// Every worker fills its columns.
fn fill<T: Team>(team: T, array: T::Numbers, size: usize) -> Result<T, Error> {
    let (rank, workers) = (team.rank(), team.size());
    for column in (0..size / TILE).filter(|&column| column % workers == rank) {
        for column in column * TILE..(column + 1) * TILE {
            let mut values = team.write(array, column * size..(column + 1) * size);
            values.iter_mut().enumerate().for_each(|(row, value)| *value = element(row, column, size));
        }
    }
    let team = team.barrier()?;
    if !team.is_together() {
        return Ok(team);
    }
    // What others filled is touched before the clock starts. Between nodes it would be fetched, and all would share every page.
    for column in 0..size {
        black_box(team.read(array, column * size..(column + 1) * size).iter().sum::<f64>());
    }
    team.barrier()
}

fn factorise<T: Team>(mut team: T, array: T::Numbers, problem: Problem) -> Result<(T, Duration), Error> {
    let size = problem.size;
    let tiles = size / TILE;
    let (rank, workers) = (team.rank(), team.size());
    let mine = |column: usize| column % workers == rank;
    let begun = Instant::now();
    for k in 0..tiles {
        team.progress(k as f64 / tiles as f64);
        if mine(k) {
            Shared { team: &team, array, size }.factor(k);
        }
        team = team.barrier()?;
        Shared { team: &team, array, size }.perimeter(k, mine);
        team = team.barrier()?;
        Shared { team: &team, array, size }.interior(k, mine);
        team = team.barrier()?;
    }
    Ok((team, begun.elapsed()))
}

fn sequential(size: usize) -> Vec<f64> {
    let tiles = size / TILE;
    let mut matrix = Own((0..size * size).map(|at| element(at % size, at / size, size)).collect(), size);
    for k in 0..tiles {
        diagonal(&mut matrix, k);
        perimeter(&mut matrix, k, tiles);
        interior(&mut matrix, k, tiles);
    }
    matrix.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_rows_show_a_wrong_value() {
        let size = 2 * TILE;
        let matrix: Vec<f64> = (0..size * size).map(|at| element(at % size, at / size, size)).collect();
        let mut factors = sequential(size);
        assert!(agree(&row_sums(&matrix, size), &sums_of_product(&factors, size)));
        factors[5 * size + 3] += 0.01;
        assert!(!agree(&row_sums(&matrix, size), &sums_of_product(&factors, size)));
    }

    #[test]
    fn the_triangles_multiply_to_the_matrix() {
        let (size, factors) = (2 * TILE, sequential(2 * TILE));
        for row in 0..size {
            for column in 0..size {
                let at = |row: usize, column: usize| factors[column * size + row];
                let lower = |k: usize| if k == row { 1.0 } else { at(row, k) };
                let product: f64 = (0..=row.min(column)).map(|k| lower(k) * at(k, column)).sum();
                assert!((product - element(row, column, size)).abs() < 1e-9, "{row}, {column}");
            }
        }
    }
}
