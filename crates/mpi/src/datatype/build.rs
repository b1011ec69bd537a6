//! The constructors of datatypes. Each checks its arguments, and each result knows the call that made it.

use super::{Bounds, Combiner, Datatype, Layout, Recipe, Signature};
use crate::error::{Class, Error, Result};

/// Fortran's order of dimensions: the first is contiguous.
pub const ORDER_FORTRAN: i32 = 57;
/// C's order of dimensions: the last is contiguous.
pub const ORDER_C: i32 = 56;

/// A copy.
pub fn dup(old: &Datatype) -> Datatype {
    derived(old, recipe(Combiner::Dup, vec![], vec![], vec![old.clone()]))
}

/// A Fortran type that a program has asked for by its precision: `old`, with that request as its recipe.
pub fn precise(combiner: Combiner, request: &[i32], old: &Datatype) -> Datatype {
    derived(old, recipe(combiner, request.to_vec(), vec![], vec![]))
}

/// `count` copies, one after the other.
pub fn contiguous(count: i32, old: &Datatype) -> Result<Datatype> {
    let times = natural(count)?;
    let blocks = [Copies { times, disp: 0, old }];
    combine(recipe(Combiner::Contiguous, vec![count], vec![], vec![old.clone()]), &blocks)
}

/// `count` blocks of `block` copies, `stride` extents apart.
pub fn vector(count: i32, block: i32, stride: i32, old: &Datatype) -> Result<Datatype> {
    let recipe = recipe(Combiner::Vector, vec![count, block, stride], vec![], vec![old.clone()]);
    strided(recipe, count, block, i64::from(stride) * old.extent(), old)
}

/// `count` blocks of `block` copies, `stride` bytes apart.
pub fn hvector(count: i32, block: i32, stride: i64, old: &Datatype) -> Result<Datatype> {
    let recipe = recipe(Combiner::Hvector, vec![count, block], vec![stride], vec![old.clone()]);
    strided(recipe, count, block, stride, old)
}

/// Blocks of several lengths, at displacements in extents.
pub fn indexed(blocks: &[i32], disps: &[i32], old: &Datatype) -> Result<Datatype> {
    let integers = with_count(blocks.len(), blocks.iter().chain(disps));
    let bytes: Vec<i64> = disps.iter().map(|disp| i64::from(*disp) * old.extent()).collect();
    placed(recipe(Combiner::Indexed, integers, vec![], vec![old.clone()]), blocks, &bytes, old)
}

/// Blocks of several lengths, at displacements in bytes.
pub fn hindexed(blocks: &[i32], disps: &[i64], old: &Datatype) -> Result<Datatype> {
    let integers = with_count(blocks.len(), blocks);
    placed(recipe(Combiner::Hindexed, integers, disps.to_vec(), vec![old.clone()]), blocks, disps, old)
}

/// Blocks of one length, at displacements in extents.
pub fn indexed_block(block: i32, disps: &[i32], old: &Datatype) -> Result<Datatype> {
    let integers = with_count(disps.len(), [&block].into_iter().chain(disps));
    let bytes: Vec<i64> = disps.iter().map(|disp| i64::from(*disp) * old.extent()).collect();
    let blocks = vec![block; disps.len()];
    placed(recipe(Combiner::IndexedBlock, integers, vec![], vec![old.clone()]), &blocks, &bytes, old)
}

/// Blocks of one length, at displacements in bytes.
pub fn hindexed_block(block: i32, disps: &[i64], old: &Datatype) -> Result<Datatype> {
    let integers = with_count(disps.len(), [&block]);
    let blocks = vec![block; disps.len()];
    placed(recipe(Combiner::HindexedBlock, integers, disps.to_vec(), vec![old.clone()]), &blocks, disps, old)
}

/// Blocks of several types, at displacements in bytes.
pub fn structure(blocks: &[i32], disps: &[i64], types: &[Datatype]) -> Result<Datatype> {
    let integers = with_count(blocks.len(), blocks);
    let recipe = recipe(Combiner::Struct, integers, disps.to_vec(), types.to_vec());
    let copies = blocks.iter().zip(disps).zip(types);
    let copies: Vec<_> = copies
        .map(|((block, disp), old)| Ok(Copies { times: natural(*block)?, disp: *disp, old }))
        .collect::<Result<_>>()?;
    combine(recipe, &copies)
}

/// The bytes of `old` with other bounds.
pub fn resized(old: &Datatype, lower: i64, extent: i64) -> Datatype {
    let recipe = recipe(Combiner::Resized, vec![], vec![lower, extent], vec![old.clone()]);
    let bounds =
        Bounds { lower, upper: lower + extent, lower_is_set: true, upper_is_set: true, ..old.bounds() };
    Datatype::assemble(None, recipe, old.layout().clone(), bounds, old.signature().clone())
}

/// A box cut out of an array.
pub fn subarray(
    sizes: &[i32],
    subsizes: &[i32],
    starts: &[i32],
    order: i32,
    old: &Datatype,
) -> Result<Datatype> {
    let dims = sizes.len();
    if dims == 0 {
        return Err(Error::new(Class::Arg, "a subarray has at least one dimension"));
    }
    for dim in 0..dims {
        let (size, subsize, start) = (sizes[dim], subsizes[dim], starts[dim]);
        if size < 1 || subsize < 1 || start < 0 || subsize > size || start > size - subsize {
            let cause = format!("dimension {dim}: {subsize} from {start} on do not fit into {size}");
            return Err(Error::new(Class::Arg, cause));
        }
    }
    let mut layout = old.layout().clone();
    let (mut stride, mut copies) = (old.extent(), 1);
    for dim in fastest_first(dims, order)? {
        let subsize = natural(subsizes[dim])?;
        copies = product(copies, subsize)?;
        layout = layout.repeated(subsize, stride).shifted(i64::from(starts[dim]) * stride);
        stride = stride.checked_mul(i64::from(sizes[dim])).ok_or_else(too_large)?;
    }
    product(copies, old.size())?;
    let integers = with_count(dims, sizes.iter().chain(subsizes).chain(starts).chain([&order]));
    let recipe = recipe(Combiner::Subarray, integers, vec![], vec![old.clone()]);
    let bounds = Bounds { lower: 0, upper: stride, lower_is_set: true, upper_is_set: true, ..old.bounds() };
    Ok(Datatype::assemble(None, recipe, layout, bounds, old.signature().repeated(copies)))
}

/// The numbers of the dimensions, the contiguous one first.
pub(super) fn fastest_first(dims: usize, order: i32) -> Result<Vec<usize>> {
    match order {
        ORDER_FORTRAN => Ok((0..dims).collect()),
        ORDER_C => Ok((0..dims).rev().collect()),
        _ => {
            Err(Error::new(Class::Arg, format!("order {order} is neither MPI_ORDER_C nor MPI_ORDER_FORTRAN")))
        }
    }
}

/// A datatype with everything of `old` but its recipe.
fn derived(old: &Datatype, recipe: Recipe) -> Datatype {
    Datatype::assemble(None, recipe, old.layout().clone(), old.bounds(), old.signature().clone())
}

/// `times` copies of a type, one extent apart, from `disp` on.
struct Copies<'a> {
    times: usize,
    disp: i64,
    old: &'a Datatype,
}

impl Copies<'_> {
    fn layout(&self) -> Layout {
        self.old.layout().clone().repeated(self.times, self.old.extent()).shifted(self.disp)
    }

    /// The bounds of all copies together. None without copies.
    fn bounds(&self) -> Option<Bounds> {
        let far = self.old.extent().checked_mul(self.times.checked_sub(1)? as i64)?;
        let old = self.old.bounds();
        Some(Bounds {
            lower: self.disp + old.lower + far.min(0),
            upper: self.disp + old.upper + far.max(0),
            ..old
        })
    }
}

/// One type out of copies of others.
fn combine(recipe: Recipe, copies: &[Copies<'_>]) -> Result<Datatype> {
    let mut size = 0usize;
    for part in copies {
        let bytes = product(part.times, part.old.size())?;
        size = size.checked_add(bytes).filter(|size| *size <= i64::MAX as usize).ok_or_else(too_large)?;
    }
    let layout = Layout::sequence(copies.iter().map(Copies::layout));
    let signature = Signature::sequence(copies.iter().map(|part| part.old.signature().repeated(part.times)));
    let pad = recipe.combiner == Combiner::Struct;
    let bounds = joined(copies.iter().filter_map(Copies::bounds), pad);
    Ok(Datatype::assemble(None, recipe, layout, bounds, signature))
}

/// The bounds of parts together: set bounds win over others; an upper bound that is not set is rounded up in a struct.
fn joined(parts: impl Iterator<Item = Bounds>, pad: bool) -> Bounds {
    let parts: Vec<_> = parts.collect();
    let lower_is_set = parts.iter().any(|part| part.lower_is_set);
    let upper_is_set = parts.iter().any(|part| part.upper_is_set);
    let lowers = parts.iter().filter(|part| part.lower_is_set == lower_is_set).map(|part| part.lower);
    let uppers = parts.iter().filter(|part| part.upper_is_set == upper_is_set).map(|part| part.upper);
    let alignment = parts.iter().map(|part| part.alignment).max().unwrap_or(1).max(1);
    let lower = lowers.min().unwrap_or(0);
    let mut upper = uppers.max().unwrap_or(0);
    if pad && !upper_is_set {
        let alignment = alignment as i64;
        upper = lower + (upper - lower).max(0).next_multiple_of_signed(alignment);
    }
    Bounds { lower, upper, lower_is_set, upper_is_set, alignment }
}

/// Rounding up for numbers that are not negative.
trait NextMultiple {
    fn next_multiple_of_signed(self, of: i64) -> i64;
}

impl NextMultiple for i64 {
    fn next_multiple_of_signed(self, of: i64) -> i64 {
        (self + of - 1) / of * of
    }
}

fn strided(recipe: Recipe, count: i32, block: i32, stride: i64, old: &Datatype) -> Result<Datatype> {
    let (count, times) = (natural(count)?, natural(block)?);
    let copies = product(count, times)?;
    product(copies, old.size())?;
    let one = Copies { times, disp: 0, old };
    let layout = one.layout().repeated(count, stride);
    let far = stride.checked_mul(count.saturating_sub(1) as i64).ok_or_else(too_large)?;
    let whole = one.bounds().filter(|_| count > 0).map(|part| Bounds {
        lower: part.lower + far.min(0),
        upper: part.upper + far.max(0),
        ..part
    });
    let bounds = joined(whole.into_iter(), false);
    Ok(Datatype::assemble(None, recipe, layout, bounds, old.signature().repeated(copies)))
}

fn placed(recipe: Recipe, blocks: &[i32], disps: &[i64], old: &Datatype) -> Result<Datatype> {
    let copies = blocks.iter().zip(disps);
    let copies: Vec<_> = copies
        .map(|(block, disp)| Ok(Copies { times: natural(*block)?, disp: *disp, old }))
        .collect::<Result<_>>()?;
    combine(recipe, &copies)
}

pub(super) fn recipe(
    combiner: Combiner,
    integers: Vec<i32>,
    addresses: Vec<i64>,
    types: Vec<Datatype>,
) -> Recipe {
    Recipe { combiner, integers, addresses, types }
}

/// The integer arguments of a constructor, which begin with their count.
fn with_count<'a>(count: usize, integers: impl IntoIterator<Item = &'a i32>) -> Vec<i32> {
    std::iter::once(count as i32).chain(integers.into_iter().copied()).collect()
}

/// A count that is not negative.
fn natural(count: i32) -> Result<usize> {
    usize::try_from(count).map_err(|_| Error::new(Class::Count, format!("{count} is negative")))
}

pub(super) fn product(one: usize, two: usize) -> Result<usize> {
    one.checked_mul(two).filter(|product| *product <= i64::MAX as usize).ok_or_else(too_large)
}

fn too_large() -> Error {
    Error::new(Class::Arg, "the type would have more bytes than there are addresses")
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
