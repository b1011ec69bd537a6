//! `MPI_Type_create_darray`: the part of a distributed array that one process of a grid owns.

use super::build::{fastest_first, product, recipe};
use super::{Bounds, Combiner, Datatype, Layout};
use crate::error::{Class, Error, Result};

/// Blocks of one length for each process in turn, once.
pub const DISTRIBUTE_BLOCK: i32 = 121;
/// Blocks of one length for each process in turn, until the dimension ends.
pub const DISTRIBUTE_CYCLIC: i32 = 122;
/// The whole dimension for one process.
pub const DISTRIBUTE_NONE: i32 = 123;
/// The length of blocks that fits the distribution.
pub const DISTRIBUTE_DFLT_DARG: i32 = -49767;

/// The arguments of the call, in the order of the standard.
#[derive(Clone, Copy, Debug)]
pub struct Darray<'a> {
    /// How many processes the grid has.
    pub size: i32,
    /// Which of them this is.
    pub rank: i32,
    /// The length of each dimension of the array.
    pub gsizes: &'a [i32],
    /// How each is distributed.
    pub distribs: &'a [i32],
    /// The length of its blocks.
    pub dargs: &'a [i32],
    /// How many processes each has.
    pub psizes: &'a [i32],
    /// `MPI_ORDER_C` or `MPI_ORDER_FORTRAN`.
    pub order: i32,
}

/// Makes the type.
pub fn darray(of: Darray<'_>, old: &Datatype) -> Result<Datatype> {
    let dims = of.gsizes.len();
    if dims == 0 {
        return Err(bad("an array has at least one dimension"));
    }
    let processes: i64 = of.psizes.iter().map(|size| i64::from(*size)).product();
    if of.psizes.iter().any(|size| *size < 1) || processes != i64::from(of.size) {
        return Err(bad(format!("a grid of {:?} has {processes} processes, not {}", of.psizes, of.size)));
    }
    if of.rank < 0 || of.rank >= of.size {
        return Err(bad(format!("rank {} of {}", of.rank, of.size)));
    }
    let places = places(of.rank, of.psizes);
    let mut layout = old.layout().clone();
    let (mut stride, mut copies) = (old.extent(), 1);
    for dim in fastest_first(dims, of.order)? {
        let share = Share::new(of.gsizes[dim], of.distribs[dim], of.dargs[dim], of.psizes[dim], places[dim])?;
        copies = product(copies, share.len())?;
        product(copies, old.size())?;
        layout = share.apply(&layout, stride);
        stride =
            stride.checked_mul(i64::from(of.gsizes[dim])).ok_or_else(|| bad("the array is too large"))?;
    }
    let integers = [of.size, of.rank, dims as i32].into_iter();
    let lists = of.gsizes.iter().chain(of.distribs).chain(of.dargs).chain(of.psizes).copied();
    let integers = integers.chain(lists).chain([of.order]).collect();
    let recipe = recipe(Combiner::Darray, integers, vec![], vec![old.clone()]);
    let bounds = Bounds { lower: 0, upper: stride, lower_is_set: true, upper_is_set: true, ..old.bounds() };
    Ok(Datatype::assemble(None, recipe, layout, bounds, old.signature().repeated(copies)))
}

/// The place of a process in the grid: the last dimension counts fastest, whatever the order of the array.
fn places(rank: i32, psizes: &[i32]) -> Vec<i64> {
    let mut left = i64::from(rank);
    let mut places = vec![0; psizes.len()];
    for (place, size) in places.iter_mut().zip(psizes).rev() {
        *place = left % i64::from(*size);
        left /= i64::from(*size);
    }
    places
}

/// What one process has of one dimension: blocks of `block` indices, `period` apart, from `first` on, below `end`.
#[derive(Clone, Copy, Debug)]
struct Share {
    first: i64,
    block: i64,
    period: i64,
    end: i64,
}

impl Share {
    fn new(gsize: i32, distribution: i32, darg: i32, psize: i32, place: i64) -> Result<Share> {
        if gsize < 1 {
            return Err(bad(format!("a dimension of {gsize}")));
        }
        let (end, processes) = (i64::from(gsize), i64::from(psize));
        let default = darg == DISTRIBUTE_DFLT_DARG;
        let block = match distribution {
            DISTRIBUTE_NONE if psize == 1 => end,
            DISTRIBUTE_NONE => return Err(bad("a dimension that is not distributed has one process")),
            DISTRIBUTE_BLOCK if default => (end + processes - 1) / processes,
            DISTRIBUTE_BLOCK if i64::from(darg) * processes < end => {
                return Err(bad(format!("{processes} blocks of {darg} do not cover {end}")));
            }
            DISTRIBUTE_CYCLIC if default => 1,
            DISTRIBUTE_BLOCK | DISTRIBUTE_CYCLIC if darg >= 1 => i64::from(darg),
            DISTRIBUTE_BLOCK | DISTRIBUTE_CYCLIC => return Err(bad(format!("blocks of {darg}"))),
            _ => return Err(bad(format!("distribution {distribution} is unknown"))),
        };
        Ok(Share { first: place * block, block, period: block * processes, end })
    }

    /// Whole blocks, and the length of the one that the end cuts.
    fn blocks(&self) -> (usize, usize) {
        let room = (self.end - self.first).max(0);
        let whole = room / self.period + i64::from(room % self.period >= self.block);
        let rest = if room % self.period < self.block { room % self.period } else { 0 };
        (whole as usize, rest as usize)
    }

    fn len(&self) -> usize {
        let (whole, rest) = self.blocks();
        whole * self.block as usize + rest
    }

    fn apply(&self, inner: &Layout, stride: i64) -> Layout {
        let (whole, rest) = self.blocks();
        let full = inner.clone().repeated(self.block as usize, stride).repeated(whole, self.period * stride);
        let last = inner.clone().repeated(rest, stride).shifted(whole as i64 * self.period * stride);
        Layout::sequence([full, last]).shifted(self.first * stride)
    }
}

fn bad(cause: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Class::Arg, cause)
}

#[cfg(test)]
mod tests {
    use super::super::{Run, basic, build};
    use super::*;

    fn byte() -> Datatype {
        Datatype::of_basic(basic::find(0x4c00010d).unwrap())
    }

    fn places_of(kind: &Datatype) -> Vec<i64> {
        let mut all = Vec::new();
        kind.layout().visit(0, kind.size(), &mut |run: Run| {
            for block in 0..run.count as i64 {
                all.extend((0..run.len as i64).map(|byte| run.disp + block * run.stride + byte));
            }
        });
        all
    }

    /// Every element of an array belongs to exactly one process, whatever the distributions are.
    #[test]
    fn the_parts_of_all_processes_make_the_array() {
        for order in [build::ORDER_C, build::ORDER_FORTRAN] {
            for (one, two) in [
                (DISTRIBUTE_BLOCK, DISTRIBUTE_CYCLIC),
                (DISTRIBUTE_CYCLIC, DISTRIBUTE_BLOCK),
                (DISTRIBUTE_CYCLIC, DISTRIBUTE_CYCLIC),
            ] {
                for darg in [DISTRIBUTE_DFLT_DARG, 4] {
                    let mut seen = Vec::new();
                    for rank in 0..6 {
                        let of = Darray {
                            size: 6,
                            rank,
                            gsizes: &[7, 11],
                            distribs: &[one, two],
                            dargs: &[darg, darg],
                            psizes: &[2, 3],
                            order,
                        };
                        let part = darray(of, &byte()).unwrap();
                        assert_eq!((part.lower(), part.extent()), (0, 77));
                        seen.extend(places_of(&part));
                    }
                    seen.sort_unstable();
                    assert_eq!(seen, (0..77).collect::<Vec<_>>(), "{order} {one} {two} {darg}");
                }
            }
        }
    }

    #[test]
    fn a_process_of_a_cyclic_dimension_has_every_third_block() {
        let of = Darray {
            size: 3,
            rank: 1,
            gsizes: &[17],
            distribs: &[DISTRIBUTE_CYCLIC],
            dargs: &[2],
            psizes: &[3],
            order: build::ORDER_C,
        };
        assert_eq!(places_of(&darray(of, &byte()).unwrap()), [2, 3, 8, 9, 14, 15]);
    }

    #[test]
    fn wrong_grids_are_refused() {
        let of = |psizes: &'static [i32], distribs: &'static [i32], dargs: &'static [i32]| {
            let size = psizes.iter().product();
            let of = Darray { size, rank: 0, gsizes: &[8], distribs, dargs, psizes, order: build::ORDER_C };
            darray(of, &byte())
        };
        assert!(of(&[2], &[DISTRIBUTE_BLOCK], &[3]).is_err(), "does not cover the dimension");
        assert!(of(&[2], &[DISTRIBUTE_NONE], &[DISTRIBUTE_DFLT_DARG]).is_err());
        assert!(of(&[2], &[7], &[1]).is_err());
        assert!(of(&[2], &[DISTRIBUTE_CYCLIC], &[0]).is_err());
        assert!(of(&[2], &[DISTRIBUTE_CYCLIC], &[3]).is_ok());
    }
}
