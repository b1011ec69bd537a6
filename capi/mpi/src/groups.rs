//! Groups.

use std::ffi::c_int;

use viaduct_mpi::error::Result;
use viaduct_mpi::group::{Group, Range};

use crate::abi::{COMM_WORLD, GROUP_NULL, PROC_NULL, Place, UNDEFINED};
use crate::errors::{call, pure};
use crate::objects::{add_group, group, remove_group};

/// A rank of a group, or `MPI_UNDEFINED`.
fn or_undefined(rank: Option<usize>) -> c_int {
    rank.map_or(UNDEFINED, |rank| rank as c_int)
}

pub(crate) fn mpi_group_size(handle: u32, size: Place<c_int>) -> c_int {
    pure("MPI_Group_size", || size.put(group(handle)?.size() as c_int))
}

pub(crate) fn mpi_group_rank(handle: u32, rank: Place<c_int>) -> c_int {
    call("MPI_Group_rank", COMM_WORLD, |process| {
        let group = group(handle)?;
        let own = process.world.comm_self().group().process(0);
        rank.put(or_undefined(own.and_then(|own| group.rank(own))))
    })
}

pub(crate) fn mpi_group_translate_ranks(
    group1: u32,
    n: c_int,
    ranks1: Place<c_int>,
    group2: u32,
    ranks2: Place<c_int>,
) -> c_int {
    pure("MPI_Group_translate_ranks", || {
        let (one, two) = (group(group1)?, group(group2)?);
        let (from, into) = (ranks1.list(n)?, ranks2.list_mut(n)?);
        let named: Vec<c_int> = from.iter().copied().filter(|rank| *rank != PROC_NULL).collect();
        let mut found = one.translate(&named, &two)?.into_iter();
        for (rank, translated) in from.iter().zip(into) {
            *translated = if *rank == PROC_NULL { PROC_NULL } else { or_undefined(found.next().flatten()) };
        }
        Ok(())
    })
}

pub(crate) fn mpi_group_compare(group1: u32, group2: u32, result: Place<c_int>) -> c_int {
    pure("MPI_Group_compare", || result.put(group(group1)?.compare(&group(group2)?) as c_int))
}

fn combined(
    name: &'static str,
    group1: u32,
    group2: u32,
    newgroup: Place<u32>,
    make: fn(&Group, &Group) -> Group,
) -> c_int {
    pure(name, || newgroup.put(add_group(make(&group(group1)?, &group(group2)?))?))
}

pub(crate) fn mpi_group_union(group1: u32, group2: u32, newgroup: Place<u32>) -> c_int {
    combined("MPI_Group_union", group1, group2, newgroup, Group::union)
}

pub(crate) fn mpi_group_intersection(group1: u32, group2: u32, newgroup: Place<u32>) -> c_int {
    combined("MPI_Group_intersection", group1, group2, newgroup, Group::intersection)
}

pub(crate) fn mpi_group_difference(group1: u32, group2: u32, newgroup: Place<u32>) -> c_int {
    combined("MPI_Group_difference", group1, group2, newgroup, Group::difference)
}

fn chosen(
    name: &'static str,
    handle: u32,
    newgroup: Place<u32>,
    make: impl FnOnce(&Group) -> Result<Group>,
) -> c_int {
    pure(name, || newgroup.put(add_group(make(&group(handle)?)?)?))
}

pub(crate) fn mpi_group_incl(handle: u32, n: c_int, ranks: Place<c_int>, newgroup: Place<u32>) -> c_int {
    chosen("MPI_Group_incl", handle, newgroup, |group| group.include(ranks.list(n)?))
}

pub(crate) fn mpi_group_excl(handle: u32, n: c_int, ranks: Place<c_int>, newgroup: Place<u32>) -> c_int {
    chosen("MPI_Group_excl", handle, newgroup, |group| group.exclude(ranks.list(n)?))
}

fn ranges(n: c_int, list: Place<[c_int; 3]>) -> Result<Vec<Range>> {
    Ok(list
        .list(n)?
        .iter()
        .map(|[first, last, stride]| Range { first: *first, last: *last, stride: *stride })
        .collect())
}

pub(crate) fn mpi_group_range_incl(
    handle: u32,
    n: c_int,
    list: Place<[c_int; 3]>,
    newgroup: Place<u32>,
) -> c_int {
    chosen("MPI_Group_range_incl", handle, newgroup, |group| group.include_ranges(&ranges(n, list)?))
}

pub(crate) fn mpi_group_range_excl(
    handle: u32,
    n: c_int,
    list: Place<[c_int; 3]>,
    newgroup: Place<u32>,
) -> c_int {
    chosen("MPI_Group_range_excl", handle, newgroup, |group| group.exclude_ranges(&ranges(n, list)?))
}

pub(crate) fn mpi_group_free(handle: Place<u32>) -> c_int {
    pure("MPI_Group_free", || {
        remove_group(handle.get()?)?;
        handle.put(GROUP_NULL)
    })
}
