//! Packing and unpacking by the program.

use std::ffi::c_int;

use viaduct_mpi::datatype::external;
use viaduct_mpi::error::{Class, Error, Result};
use viaduct_mpi::raw;

use crate::abi::{Buffer, Place, Text, natural};
use crate::data::span;
use crate::errors::{call, pure};
use crate::objects::{comm, committed, datatype};

/// The bytes that `count` copies of a type have when they are packed.
fn packed_size(count: c_int, handle: u32) -> Result<usize> {
    let size = datatype(handle)?.kind.size();
    natural(count)?
        .checked_mul(size)
        .ok_or_else(|| Error::new(Class::Count, "more bytes than there are addresses"))
}

/// The rest of a buffer of `size` bytes from `position` on, if it has room for `needed`.
fn room(position: i64, size: i64, needed: usize) -> Result<usize> {
    let left = size.checked_sub(position).filter(|left| position >= 0 && *left >= 0);
    match left {
        Some(left) if left as u64 >= needed as u64 => Ok(position as usize),
        _ => Err(Error::new(Class::Truncate, format!("{needed} bytes from {position} on, of {size}"))),
    }
}

/// Packs; returns the new position.
fn pack(inbuf: Buffer, count: c_int, handle: u32, outbuf: Buffer, size: i64, position: i64) -> Result<i64> {
    let needed = packed_size(count, handle)?;
    let at = room(position, size, needed)?;
    if needed > 0 {
        span(inbuf, count, handle)?;
        let object = committed(handle)?;
        // SAFETY: by the contract of the call the program's data are there, and the buffer has `size` bytes, of which
        // `needed` from `at` on were checked to be inside.
        unsafe {
            let out = std::slice::from_raw_parts_mut(outbuf.address().add(at), needed);
            raw::pack(inbuf.address(), &object.kind, count as usize, 0, out);
        }
    }
    Ok(position + needed as i64)
}

/// Unpacks; returns the new position.
fn unpack(inbuf: Buffer, size: i64, position: i64, outbuf: Buffer, count: c_int, handle: u32) -> Result<i64> {
    let needed = packed_size(count, handle)?;
    let at = room(position, size, needed)?;
    if needed > 0 {
        span(outbuf, count, handle)?;
        let object = committed(handle)?;
        // SAFETY: by the contract of the call the buffer has `size` bytes, of which `needed` from `at` on were checked to
        // be inside, and there is room for the data.
        unsafe {
            let data = std::slice::from_raw_parts(inbuf.address().add(at), needed);
            raw::unpack(outbuf.address(), &object.kind, count as usize, 0, data);
        }
    }
    Ok(position + needed as i64)
}

pub(crate) fn mpi_pack(
    inbuf: Buffer,
    incount: c_int,
    datatype: u32,
    outbuf: Buffer,
    outsize: c_int,
    position: Place<c_int>,
    handle: u32,
) -> c_int {
    call("MPI_Pack", handle, |process| {
        comm(process, handle)?;
        let at = i64::from(position.get()?);
        position.put(pack(inbuf, incount, datatype, outbuf, i64::from(outsize), at)? as c_int)
    })
}

pub(crate) fn mpi_unpack(
    inbuf: Buffer,
    insize: c_int,
    position: Place<c_int>,
    outbuf: Buffer,
    outcount: c_int,
    datatype: u32,
    handle: u32,
) -> c_int {
    call("MPI_Unpack", handle, |process| {
        comm(process, handle)?;
        let at = i64::from(position.get()?);
        position.put(unpack(inbuf, i64::from(insize), at, outbuf, outcount, datatype)? as c_int)
    })
}

pub(crate) fn mpi_pack_size(incount: c_int, datatype: u32, handle: u32, size: Place<c_int>) -> c_int {
    call("MPI_Pack_size", handle, |process| {
        comm(process, handle)?;
        let bytes = packed_size(incount, datatype)?;
        size.put(
            c_int::try_from(bytes)
                .map_err(|_| Error::new(Class::Count, format!("{bytes} bytes are more than an int holds")))?,
        )
    })
}

/// The one representation that the standard names.
fn external32(datarep: Text) -> Result<()> {
    match datarep.read()?.as_str() {
        "external32" => Ok(()),
        other => Err(Error::new(Class::UnsupportedDatarep, format!("{other:?}; only external32 is known"))),
    }
}

/// The bytes that `count` copies of a type have in external32.
fn external_size(count: c_int, handle: u32) -> Result<usize> {
    let size = external::size(&datatype(handle)?.kind);
    natural(count)?
        .checked_mul(size)
        .ok_or_else(|| Error::new(Class::Count, "more bytes than there are addresses"))
}

pub(crate) fn mpi_pack_external(
    datarep: Text,
    inbuf: Buffer,
    incount: c_int,
    datatype: u32,
    outbuf: Buffer,
    outsize: i64,
    position: Place<i64>,
) -> c_int {
    pure("MPI_Pack_external", || {
        external32(datarep)?;
        let at = position.get()?;
        let needed = external_size(incount, datatype)?;
        let from = room(at, outsize, needed)?;
        let mut native = vec![0u8; packed_size(incount, datatype)?];
        let len = native.len() as i64;
        pack(inbuf, incount, datatype, Buffer::at(native.as_mut_ptr()), len, 0)?;
        if needed > 0 {
            // SAFETY: `room` has checked that so many bytes are inside of the program's buffer.
            let out = unsafe { std::slice::from_raw_parts_mut(outbuf.address().add(from), needed) };
            out.copy_from_slice(&external::encode(&self::datatype(datatype)?.kind, &native));
        }
        position.put(at + needed as i64)
    })
}

pub(crate) fn mpi_unpack_external(
    datarep: Text,
    inbuf: Buffer,
    insize: i64,
    position: Place<i64>,
    outbuf: Buffer,
    outcount: c_int,
    datatype: u32,
) -> c_int {
    pure("MPI_Unpack_external", || {
        external32(datarep)?;
        let at = position.get()?;
        let needed = external_size(outcount, datatype)?;
        let from = room(at, insize, needed)?;
        if needed > 0 {
            // SAFETY: `room` has checked that so many bytes are inside of the program's buffer.
            let data = unsafe { std::slice::from_raw_parts(inbuf.address().add(from), needed) };
            let mut native = external::decode(&self::datatype(datatype)?.kind, data);
            let len = native.len() as i64;
            unpack(Buffer::at(native.as_mut_ptr()), len, 0, outbuf, outcount, datatype)?;
        }
        position.put(at + needed as i64)
    })
}

pub(crate) fn mpi_pack_external_size(
    datarep: Text,
    incount: c_int,
    datatype: u32,
    size: Place<i64>,
) -> c_int {
    pure("MPI_Pack_external_size", || {
        external32(datarep)?;
        size.put(external_size(incount, datatype)? as i64)
    })
}
