//! Grids of processes. Ranks count the last dimension fastest.

use crate::error::{Class, Error, Result};

/// A grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cart {
    dims: Vec<i32>,
    periods: Vec<bool>,
}

impl Cart {
    /// A grid with these lengths. A dimension may be periodic: its ends are neighbours.
    ///
    /// # Errors
    /// [`Class::Dims`]: a length is not positive, or the grid has more places than an `int` can count.
    pub fn new(dims: &[i32], periods: &[bool]) -> Result<Cart> {
        let mut size = 1i32;
        for dim in dims {
            let longer = (*dim > 0).then(|| size.checked_mul(*dim)).flatten();
            size = longer.ok_or_else(|| Error::new(Class::Dims, format!("a grid of {dims:?}")))?;
        }
        Ok(Cart { dims: dims.to_vec(), periods: periods.to_vec() })
    }

    /// The lengths.
    pub fn dims(&self) -> &[i32] {
        &self.dims
    }

    /// Which dimensions are periodic.
    pub fn periods(&self) -> &[bool] {
        &self.periods
    }

    /// How many places there are; one for a grid without dimensions.
    pub fn size(&self) -> usize {
        self.dims.iter().map(|dim| *dim as usize).product()
    }

    /// The place of a rank.
    ///
    /// # Errors
    /// [`Class::Rank`]: the grid has no such rank.
    pub fn coords(&self, rank: i32) -> Result<Vec<i32>> {
        if usize::try_from(rank).ok().is_none_or(|rank| rank >= self.size()) {
            return Err(Error::new(Class::Rank, format!("rank {rank} of a grid of {:?}", self.dims)));
        }
        let mut left = rank;
        let mut coords = vec![0; self.dims.len()];
        for (coord, dim) in coords.iter_mut().zip(&self.dims).rev() {
            *coord = left % dim;
            left /= dim;
        }
        Ok(coords)
    }

    /// The rank at a place. A coordinate of a periodic dimension may lie outside.
    ///
    /// # Errors
    /// [`Class::Arg`]: another one does.
    pub fn rank(&self, coords: &[i32]) -> Result<i32> {
        let mut rank = 0;
        for ((coord, dim), periodic) in coords.iter().zip(&self.dims).zip(&self.periods) {
            let inside = (0..*dim).contains(coord);
            if !inside && !periodic {
                return Err(Error::new(
                    Class::Arg,
                    format!("{coords:?} is outside of a grid of {:?}", self.dims),
                ));
            }
            rank = rank * dim + coord.rem_euclid(*dim);
        }
        Ok(rank)
    }

    /// The ranks `by` steps down and up in a direction: from where a shift receives and to where it sends. None: beyond
    /// the edge.
    ///
    /// # Errors
    /// [`Class::Dims`]: the grid has no such direction. [`Class::Rank`]: it has no such rank.
    pub fn shift(&self, rank: i32, direction: usize, by: i32) -> Result<(Option<i32>, Option<i32>)> {
        let Some(dim) = self.dims.get(direction) else {
            let cause = format!("direction {direction} of a grid of {:?}", self.dims);
            return Err(Error::new(Class::Dims, cause));
        };
        let coords = self.coords(rank)?;
        let neighbour = |step: i64| {
            let mut there = coords.clone();
            let at = i64::from(coords[direction]) + step;
            let at = if self.periods[direction] { at.rem_euclid(i64::from(*dim)) } else { at };
            there[direction] = i32::try_from(at).ok()?;
            self.rank(&there).ok()
        };
        Ok((neighbour(-i64::from(by)), neighbour(i64::from(by))))
    }

    /// The grid of the dimensions that remain, with the part (color) and the rank in it that a rank gets.
    ///
    /// # Errors
    /// [`Class::Rank`]: the grid has no such rank.
    pub fn sub(&self, rank: i32, remain: &[bool]) -> Result<(Cart, i32, i32)> {
        let coords = self.coords(rank)?;
        let (mut color, mut key) = (0, 0);
        let (mut dims, mut periods) = (Vec::new(), Vec::new());
        for (index, stays) in remain.iter().enumerate().take(self.dims.len()) {
            if *stays {
                dims.push(self.dims[index]);
                periods.push(self.periods[index]);
                key = key * self.dims[index] + coords[index];
            } else {
                color = color * self.dims[index] + coords[index];
            }
        }
        Ok((Cart { dims, periods }, color, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Cart {
        Cart::new(&[2, 3, 4], &[false, true, false]).unwrap()
    }

    #[test]
    fn ranks_and_places_belong_together() {
        for rank in 0..24 {
            let coords = grid().coords(rank).unwrap();
            assert_eq!(grid().rank(&coords).unwrap(), rank);
        }
        assert_eq!(grid().coords(23).unwrap(), [1, 2, 3]);
        assert_eq!(grid().rank(&[0, -1, 0]).unwrap(), 8, "periodic");
        assert!(grid().rank(&[2, 0, 0]).is_err() && grid().coords(24).is_err() && grid().coords(-1).is_err());
    }

    #[test]
    fn shifts_end_at_edges_and_wrap_in_periods() {
        assert_eq!(grid().shift(0, 0, 1).unwrap(), (None, Some(12)));
        assert_eq!(grid().shift(0, 1, 1).unwrap(), (Some(8), Some(4)));
        assert_eq!(grid().shift(0, 1, -4).unwrap(), (Some(4), Some(8)));
        assert_eq!(grid().shift(3, 2, 3).unwrap(), (Some(0), None));
        assert_eq!(grid().shift(0, 3, 1).unwrap_err().class(), Class::Dims);
    }

    #[test]
    fn parts_of_a_grid_are_grids() {
        let (part, color, key) = grid().sub(23, &[true, false, true]).unwrap();
        assert_eq!((part.dims(), color, key), (&[2, 4][..], 2, 7));
        let (none, color, key) = grid().sub(23, &[false; 3]).unwrap();
        assert_eq!((none.size(), color, key), (1, 23, 0));
    }

    #[test]
    fn impossible_grids_are_refused() {
        assert!(Cart::new(&[0], &[false]).is_err() && Cart::new(&[1 << 20, 1 << 20], &[false; 2]).is_err());
        assert_eq!(Cart::new(&[], &[]).unwrap().size(), 1);
    }
}
