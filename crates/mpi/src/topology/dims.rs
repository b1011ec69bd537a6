//! `MPI_Dims_create`: lengths of a grid that are as close to each other as possible.

use crate::error::{Class, Error, Result};

/// Fills the zeros of `dims` so that their product with the given lengths is `nodes`, in falling order.
///
/// # Errors
/// [`Class::Dims`]: a length is negative, or the given lengths do not divide `nodes`.
pub fn dims_create(nodes: i32, dims: &mut [i32]) -> Result<()> {
    let bad = |cause: String| Err(Error::new(Class::Dims, cause));
    if nodes < 1 {
        return bad(format!("{nodes} nodes"));
    }
    let mut given = 1i64;
    for dim in dims.iter() {
        if *dim < 0 {
            return bad(format!("a length of {dim}"));
        }
        given = given.saturating_mul(i64::from((*dim).max(1)));
    }
    if i64::from(nodes) % given != 0 {
        return bad(format!("{nodes} nodes are no multiple of {given}"));
    }
    let free = dims.iter().filter(|dim| **dim == 0).count();
    let share = (i64::from(nodes) / given) as i32;
    if free == 0 {
        return if share == 1 { Ok(()) } else { bad(format!("a grid of {dims:?} has not {nodes} places")) };
    }
    let mut lengths = balanced(share, free);
    lengths.sort_unstable_by(|one, two| two.cmp(one));
    let open = dims.iter_mut().filter(|dim| **dim == 0);
    open.zip(lengths).for_each(|(dim, length)| *dim = length);
    Ok(())
}

/// The factors of `nodes` whose largest and smallest differ least.
fn balanced(nodes: i32, count: usize) -> Vec<i32> {
    let mut best = vec![1; count];
    best[0] = nodes;
    let mut chosen = Vec::with_capacity(count);
    search(nodes, count, nodes, &mut chosen, &mut best);
    best
}

/// Tries falling factors; a number has few divisors, so the search is short.
fn search(left: i32, count: usize, most: i32, chosen: &mut Vec<i32>, best: &mut Vec<i32>) {
    let spread = |list: &[i32]| (list[0] - list[list.len() - 1], list[0]);
    if count == 1 {
        chosen.push(left);
        if left <= most && spread(chosen) < spread(best) {
            best.clone_from(chosen);
        }
        chosen.pop();
        return;
    }
    for factor in divisors(left) {
        let enough = i64::from(factor).checked_pow(count as u32).is_none_or(|power| power >= i64::from(left));
        if factor <= most && enough {
            chosen.push(factor);
            search(left / factor, count - 1, factor, chosen, best);
            chosen.pop();
        }
    }
}

fn divisors(number: i32) -> Vec<i32> {
    let low: Vec<i32> = (1..)
        .take_while(|d| i64::from(*d) * i64::from(*d) <= i64::from(number))
        .filter(|d| number % d == 0)
        .collect();
    let high = low.iter().rev().map(|divisor| number / divisor).filter(|high| !low.contains(high));
    low.iter().copied().chain(high).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(nodes: i32, dims: &[i32]) -> Option<Vec<i32>> {
        let mut dims = dims.to_vec();
        dims_create(nodes, &mut dims).ok().map(|()| dims)
    }

    #[test]
    fn the_examples_of_the_standard() {
        assert_eq!(made(6, &[0, 0]), Some(vec![3, 2]));
        assert_eq!(made(7, &[0, 0]), Some(vec![7, 1]));
        assert_eq!(made(6, &[0, 3, 0]), Some(vec![2, 3, 1]));
        assert_eq!(made(7, &[0, 3, 0]), None);
    }

    #[test]
    fn lengths_are_balanced() {
        assert_eq!(made(16, &[0, 0]), Some(vec![4, 4]));
        assert_eq!(made(72, &[0, 0, 0]), Some(vec![6, 4, 3]));
        assert_eq!(made(1 << 20, &[0, 0, 0]), Some(vec![128, 128, 64]));
        assert_eq!(made(2_147_483_647, &[0, 0]), Some(vec![2_147_483_647, 1]));
        assert_eq!(made(12, &[0]), Some(vec![12]));
    }

    #[test]
    fn full_grids_are_checked() {
        assert_eq!(
            (made(6, &[2, 3]), made(6, &[2, 2]), made(0, &[0]), made(4, &[-1])),
            (Some(vec![2, 3]), None, None, None)
        );
        assert_eq!(made(1, &[]), Some(vec![]));
    }
}
