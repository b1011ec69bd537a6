//! Datatypes: constructors, and what can be asked of a type.

use std::ffi::{c_char, c_int};
use std::sync::Mutex;

use viaduct_mpi::datatype::darray::{Darray, darray};
use viaduct_mpi::datatype::{Combiner, Datatype, build};
use viaduct_mpi::error::{Class, Error, Result};

use crate::abi::{Buffer, DATATYPE_NULL, MAX_OBJECT_NAME, Place, Status, Text, UNDEFINED};
use crate::attributes::{copy_all, delete_all};
use crate::errors::pure;
use crate::objects::{add_datatype, datatype, handle_of, lock, remove_datatype};

/// Runs a constructor and stores the new handle.
fn make(name: &'static str, newtype: Place<u32>, body: impl FnOnce() -> Result<Datatype>) -> c_int {
    pure(name, || newtype.put(add_datatype(body()?, false)?))
}

fn kind(handle: u32) -> Result<Datatype> {
    Ok(datatype(handle)?.kind.clone())
}

pub(crate) fn mpi_type_contiguous(count: c_int, old: u32, newtype: Place<u32>) -> c_int {
    make("MPI_Type_contiguous", newtype, || build::contiguous(count, &kind(old)?))
}

pub(crate) fn mpi_type_vector(
    count: c_int,
    block: c_int,
    stride: c_int,
    old: u32,
    newtype: Place<u32>,
) -> c_int {
    make("MPI_Type_vector", newtype, || build::vector(count, block, stride, &kind(old)?))
}

pub(crate) fn mpi_type_create_hvector(
    count: c_int,
    block: c_int,
    stride: i64,
    old: u32,
    newtype: Place<u32>,
) -> c_int {
    make("MPI_Type_create_hvector", newtype, || build::hvector(count, block, stride, &kind(old)?))
}

pub(crate) fn mpi_type_hvector(
    count: c_int,
    block: c_int,
    stride: i64,
    old: u32,
    newtype: Place<u32>,
) -> c_int {
    make("MPI_Type_hvector", newtype, || build::hvector(count, block, stride, &kind(old)?))
}

pub(crate) fn mpi_type_indexed(
    count: c_int,
    blocks: Place<c_int>,
    disps: Place<c_int>,
    old: u32,
    newtype: Place<u32>,
) -> c_int {
    make("MPI_Type_indexed", newtype, || build::indexed(blocks.list(count)?, disps.list(count)?, &kind(old)?))
}

fn hindexed(
    name: &'static str,
    count: c_int,
    blocks: Place<c_int>,
    disps: Place<i64>,
    old: u32,
    newtype: Place<u32>,
) -> c_int {
    make(name, newtype, || build::hindexed(blocks.list(count)?, disps.list(count)?, &kind(old)?))
}

pub(crate) fn mpi_type_create_hindexed(
    count: c_int,
    blocks: Place<c_int>,
    disps: Place<i64>,
    old: u32,
    newtype: Place<u32>,
) -> c_int {
    hindexed("MPI_Type_create_hindexed", count, blocks, disps, old, newtype)
}

pub(crate) fn mpi_type_hindexed(
    count: c_int,
    blocks: Place<c_int>,
    disps: Place<i64>,
    old: u32,
    newtype: Place<u32>,
) -> c_int {
    hindexed("MPI_Type_hindexed", count, blocks, disps, old, newtype)
}

pub(crate) fn mpi_type_create_indexed_block(
    count: c_int,
    block: c_int,
    disps: Place<c_int>,
    old: u32,
    newtype: Place<u32>,
) -> c_int {
    make("MPI_Type_create_indexed_block", newtype, || {
        build::indexed_block(block, disps.list(count)?, &kind(old)?)
    })
}

pub(crate) fn mpi_type_create_hindexed_block(
    count: c_int,
    block: c_int,
    disps: Place<i64>,
    old: u32,
    newtype: Place<u32>,
) -> c_int {
    make("MPI_Type_create_hindexed_block", newtype, || {
        build::hindexed_block(block, disps.list(count)?, &kind(old)?)
    })
}

fn structure(
    name: &'static str,
    count: c_int,
    blocks: Place<c_int>,
    disps: Place<i64>,
    types: Place<u32>,
    newtype: Place<u32>,
) -> c_int {
    make(name, newtype, || {
        let types: Vec<Datatype> =
            types.list(count)?.iter().map(|handle| kind(*handle)).collect::<Result<_>>()?;
        build::structure(blocks.list(count)?, disps.list(count)?, &types)
    })
}

pub(crate) fn mpi_type_create_struct(
    count: c_int,
    blocks: Place<c_int>,
    disps: Place<i64>,
    types: Place<u32>,
    newtype: Place<u32>,
) -> c_int {
    structure("MPI_Type_create_struct", count, blocks, disps, types, newtype)
}

pub(crate) fn mpi_type_struct(
    count: c_int,
    blocks: Place<c_int>,
    disps: Place<i64>,
    types: Place<u32>,
    newtype: Place<u32>,
) -> c_int {
    structure("MPI_Type_struct", count, blocks, disps, types, newtype)
}

pub(crate) fn mpi_type_create_resized(old: u32, lower: i64, extent: i64, newtype: Place<u32>) -> c_int {
    make("MPI_Type_create_resized", newtype, || Ok(build::resized(&kind(old)?, lower, extent)))
}

pub(crate) fn mpi_type_create_subarray(
    ndims: c_int,
    sizes: Place<c_int>,
    subsizes: Place<c_int>,
    starts: Place<c_int>,
    order: c_int,
    old: u32,
    newtype: Place<u32>,
) -> c_int {
    make("MPI_Type_create_subarray", newtype, || {
        build::subarray(sizes.list(ndims)?, subsizes.list(ndims)?, starts.list(ndims)?, order, &kind(old)?)
    })
}

pub(crate) fn mpi_type_create_darray(
    size: c_int,
    rank: c_int,
    ndims: c_int,
    gsizes: Place<c_int>,
    distribs: Place<c_int>,
    dargs: Place<c_int>,
    psizes: Place<c_int>,
    order: c_int,
    old: u32,
    newtype: Place<u32>,
) -> c_int {
    make("MPI_Type_create_darray", newtype, || {
        let of = Darray {
            size,
            rank,
            gsizes: gsizes.list(ndims)?,
            distribs: distribs.list(ndims)?,
            dargs: dargs.list(ndims)?,
            psizes: psizes.list(ndims)?,
            order,
        };
        darray(of, &kind(old)?)
    })
}

pub(crate) fn mpi_type_dup(old: u32, newtype: Place<u32>) -> c_int {
    pure("MPI_Type_dup", || {
        let from = datatype(old)?;
        let handle = add_datatype(build::dup(&from.kind), from.is_committed())?;
        copy_all(old, &from.attributes, &datatype(handle)?.attributes)?;
        newtype.put(handle)
    })
}

pub(crate) fn mpi_type_commit(handle: Place<u32>) -> c_int {
    pure("MPI_Type_commit", || {
        datatype(handle.get()?)?.commit();
        Ok(())
    })
}

pub(crate) fn mpi_type_free(handle: Place<u32>) -> c_int {
    pure("MPI_Type_free", || {
        let number = handle.get()?;
        if datatype(number)?.kind.handle().is_none() {
            delete_all(number, &datatype(number)?.attributes)?;
        }
        remove_datatype(number)?;
        handle.put(DATATYPE_NULL)
    })
}

pub(crate) fn mpi_type_size(handle: u32, size: Place<c_int>) -> c_int {
    pure("MPI_Type_size", || size.put(c_int::try_from(datatype(handle)?.kind.size()).unwrap_or(UNDEFINED)))
}

pub(crate) fn mpi_type_size_x(handle: u32, size: Place<i64>) -> c_int {
    pure("MPI_Type_size_x", || size.put(datatype(handle)?.kind.size() as i64))
}

fn extent(name: &'static str, handle: u32, lower: Place<i64>, extent: Place<i64>) -> c_int {
    pure(name, || {
        let object = datatype(handle)?;
        lower.put(object.kind.lower())?;
        extent.put(object.kind.extent())
    })
}

pub(crate) fn mpi_type_get_extent(handle: u32, lower: Place<i64>, length: Place<i64>) -> c_int {
    extent("MPI_Type_get_extent", handle, lower, length)
}

pub(crate) fn mpi_type_get_extent_x(handle: u32, lower: Place<i64>, length: Place<i64>) -> c_int {
    extent("MPI_Type_get_extent_x", handle, lower, length)
}

fn true_extent(name: &'static str, handle: u32, lower: Place<i64>, length: Place<i64>) -> c_int {
    pure(name, || {
        let (low, len) = datatype(handle)?.kind.true_extent();
        lower.put(low)?;
        length.put(len)
    })
}

pub(crate) fn mpi_type_get_true_extent(handle: u32, lower: Place<i64>, length: Place<i64>) -> c_int {
    true_extent("MPI_Type_get_true_extent", handle, lower, length)
}

pub(crate) fn mpi_type_get_true_extent_x(handle: u32, lower: Place<i64>, length: Place<i64>) -> c_int {
    true_extent("MPI_Type_get_true_extent_x", handle, lower, length)
}

pub(crate) fn mpi_type_extent(handle: u32, length: Place<i64>) -> c_int {
    pure("MPI_Type_extent", || length.put(datatype(handle)?.kind.extent()))
}

pub(crate) fn mpi_type_lb(handle: u32, displacement: Place<i64>) -> c_int {
    pure("MPI_Type_lb", || displacement.put(datatype(handle)?.kind.lower()))
}

pub(crate) fn mpi_type_ub(handle: u32, displacement: Place<i64>) -> c_int {
    pure("MPI_Type_ub", || {
        let object = datatype(handle)?;
        displacement.put(object.kind.lower() + object.kind.extent())
    })
}

pub(crate) fn mpi_type_get_name(handle: u32, name: Place<c_char>, resultlen: Place<c_int>) -> c_int {
    pure("MPI_Type_get_name", || resultlen.put(name.write(&datatype(handle)?.name(), MAX_OBJECT_NAME)?))
}

pub(crate) fn mpi_type_set_name(handle: u32, name: Text) -> c_int {
    pure("MPI_Type_set_name", || {
        datatype(handle)?.set_name(name.read()?);
        Ok(())
    })
}

pub(crate) fn mpi_type_get_envelope(
    handle: u32,
    integers: Place<c_int>,
    addresses: Place<c_int>,
    datatypes: Place<c_int>,
    combiner: Place<c_int>,
) -> c_int {
    pure("MPI_Type_get_envelope", || {
        let object = datatype(handle)?;
        let recipe = object.kind.recipe();
        integers.put(recipe.integers.len() as c_int)?;
        addresses.put(recipe.addresses.len() as c_int)?;
        datatypes.put(recipe.types.len() as c_int)?;
        combiner.put(recipe.combiner as c_int)
    })
}

pub(crate) fn mpi_type_get_contents(
    handle: u32,
    max_integers: c_int,
    max_addresses: c_int,
    max_datatypes: c_int,
    integers: Place<c_int>,
    addresses: Place<i64>,
    datatypes: Place<u32>,
) -> c_int {
    pure("MPI_Type_get_contents", || {
        let object = datatype(handle)?;
        let recipe = object.kind.recipe();
        if recipe.combiner == Combiner::Named {
            return Err(Error::new(Class::Type, "a predefined type has no contents"));
        }
        copy(&recipe.integers, integers, max_integers)?;
        copy(&recipe.addresses, addresses, max_addresses)?;
        let types: Vec<u32> = recipe.types.iter().map(handle_of).collect::<Result<_>>()?;
        copy(&types, datatypes, max_datatypes)
    })
}

/// Copies a list into the program's, which has to be long enough.
fn copy<T: Copy>(from: &[T], into: Place<T>, most: c_int) -> Result<()> {
    if from.len() as i64 > i64::from(most) {
        return Err(Error::new(Class::Arg, format!("room for {most}, {} are needed", from.len())));
    }
    into.list_mut(from.len() as c_int)?.copy_from_slice(from);
    Ok(())
}

/// Classes of `MPI_Type_match_size`, with their types by size.
const SIZED: [(c_int, &[(c_int, u32)]); 3] = [
    (1, &[(4, 0x4c00_0427), (8, 0x4c00_0829), (16, 0x4c00_102b)]),
    (2, &[(1, 0x4c00_012d), (2, 0x4c00_022f), (4, 0x4c00_0430), (8, 0x4c00_0831)]),
    (3, &[(8, 0x4c00_0828), (16, 0x4c00_102a), (32, 0x4c00_202c)]),
];

fn sized(class: c_int, size: c_int) -> Result<u32> {
    let types = SIZED.iter().find(|(known, _)| *known == class);
    let (_, types) = types.ok_or_else(|| Error::new(Class::Arg, format!("{class} is no type class")))?;
    let found = types.iter().find(|(known, _)| *known == size);
    found
        .map(|(_, handle)| *handle)
        .ok_or_else(|| Error::new(Class::Arg, format!("no such type has {size} bytes")))
}

pub(crate) fn mpi_type_match_size(class: c_int, size: c_int, newtype: Place<u32>) -> c_int {
    pure("MPI_Type_match_size", || newtype.put(sized(class, size)?))
}

/// Types that were asked for by precision: the same request gives the same handle, which is never freed.
static PRECISE: Mutex<Vec<(Combiner, Vec<c_int>, u32)>> = Mutex::new(Vec::new());

/// A Fortran type by its precision and range: the first of `sizes` (bytes, digits, range) that has both.
fn precise(
    name: &'static str,
    (class, combiner): (c_int, Combiner),
    sizes: &[(c_int, c_int, c_int)],
    request: &[c_int],
    newtype: Place<u32>,
) -> c_int {
    pure(name, || {
        let mut made = lock(&PRECISE);
        if let Some((.., handle)) = made.iter().find(|(how, asked, _)| *how == combiner && asked == request) {
            return newtype.put(*handle);
        }
        let enough = |has: c_int, asked: c_int| asked == UNDEFINED || asked <= has;
        let fits = sizes.iter().find(|(_, digits, range)| match *request {
            [p, r] => enough(*digits, p) && enough(*range, r),
            _ => request.iter().all(|r| enough(*range, *r)),
        });
        let cause = || Error::new(Class::Arg, format!("no type has precision and range {request:?}"));
        let (size, ..) = fits.ok_or_else(cause)?;
        let kind = build::precise(combiner, request, &kind(sized(class, *size)?)?);
        let handle = add_datatype(kind, true)?;
        made.push((combiner, request.to_vec(), handle));
        newtype.put(handle)
    })
}

pub(crate) fn mpi_type_create_f90_real(p: c_int, r: c_int, newtype: Place<u32>) -> c_int {
    let sizes = [(4, 6, 37), (8, 15, 307), (16, 33, 4931)];
    precise("MPI_Type_create_f90_real", (1, Combiner::F90Real), &sizes, &[p, r], newtype)
}

pub(crate) fn mpi_type_create_f90_complex(p: c_int, r: c_int, newtype: Place<u32>) -> c_int {
    let sizes = [(8, 6, 37), (16, 15, 307), (32, 33, 4931)];
    precise("MPI_Type_create_f90_complex", (3, Combiner::F90Complex), &sizes, &[p, r], newtype)
}

pub(crate) fn mpi_type_create_f90_integer(r: c_int, newtype: Place<u32>) -> c_int {
    let sizes = [(1, 0, 2), (2, 0, 4), (4, 0, 9), (8, 0, 18)];
    precise("MPI_Type_create_f90_integer", (2, Combiner::F90Integer), &sizes, &[r], newtype)
}

pub(crate) fn mpi_get_address(location: Buffer, address: Place<i64>) -> c_int {
    pure("MPI_Get_address", || address.put(location.address() as i64))
}

pub(crate) fn mpi_address(location: Buffer, address: Place<i64>) -> c_int {
    pure("MPI_Address", || address.put(location.address() as i64))
}

pub(crate) fn mpi_aint_add(base: i64, disp: i64) -> i64 {
    base.wrapping_add(disp)
}

pub(crate) fn mpi_aint_diff(addr1: i64, addr2: i64) -> i64 {
    addr1.wrapping_sub(addr2)
}

pub(crate) fn mpi_get_count(status: Place<Status>, handle: u32, count: Place<c_int>) -> c_int {
    pure("MPI_Get_count", || {
        let (bytes, size) = (status.read()?.bytes(), datatype(handle)?.kind.size() as u64);
        let whole = match (bytes, size) {
            (0, _) => Some(0),
            (_, 0) => None,
            _ => (bytes % size == 0).then_some(bytes / size),
        };
        count.put(whole.and_then(|whole| c_int::try_from(whole).ok()).unwrap_or(UNDEFINED))
    })
}

/// How many basic elements came.
fn elements(status: Place<Status>, handle: u32) -> Result<Option<i64>> {
    let bytes = status.read()?.bytes() as usize;
    let object = datatype(handle)?;
    Ok(object.kind.signature().elements_in(bytes).map(|count| count as i64))
}

pub(crate) fn mpi_get_elements(status: Place<Status>, handle: u32, count: Place<c_int>) -> c_int {
    pure("MPI_Get_elements", || {
        let found = elements(status, handle)?.and_then(|found| c_int::try_from(found).ok());
        count.put(found.unwrap_or(UNDEFINED))
    })
}

pub(crate) fn mpi_get_elements_x(status: Place<Status>, handle: u32, count: Place<i64>) -> c_int {
    pure("MPI_Get_elements_x", || count.put(elements(status, handle)?.unwrap_or(i64::from(UNDEFINED))))
}

fn set_elements(name: &'static str, status: Place<Status>, handle: u32, count: i64) -> c_int {
    pure(name, || {
        let size = datatype(handle)?.kind.size() as u64;
        let count =
            u64::try_from(count).map_err(|_| Error::new(Class::Count, format!("{count} is negative")))?;
        status.read()?;
        status.fill(|status| status.set_bytes(size * count));
        Ok(())
    })
}

pub(crate) fn mpi_status_set_elements(status: Place<Status>, handle: u32, count: c_int) -> c_int {
    set_elements("MPI_Status_set_elements", status, handle, i64::from(count))
}

pub(crate) fn mpi_status_set_elements_x(status: Place<Status>, handle: u32, count: i64) -> c_int {
    set_elements("MPI_Status_set_elements_x", status, handle, count)
}
