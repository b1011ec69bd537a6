//! Data of the program: address, count and datatype become one span.

use std::ffi::c_int;

use viaduct_mpi::error::{Class, Error, Result};
use viaduct_mpi::raw::Span;

use crate::abi::{Buffer, natural};
use crate::objects::{TypeObject, committed};

/// The data of a call.
#[inline]
pub(crate) fn span(buffer: Buffer, count: c_int, datatype: u32) -> Result<Span> {
    let object = committed(datatype)?;
    let count = natural(count)?;
    check(buffer, count, &object)?;
    // SAFETY: by the contract of the call the data are there until it, or its request, is done.
    Ok(unsafe { Span::new(buffer.address(), count, &object.kind) })
}

/// As [`span`]; none for `MPI_IN_PLACE`.
pub(crate) fn span_or_in_place(buffer: Buffer, count: c_int, datatype: u32) -> Result<Option<Span>> {
    if buffer == Buffer::IN_PLACE { Ok(None) } else { span(buffer, count, datatype).map(Some) }
}

/// The beginning of data whose counts come in a list of their own.
pub(crate) fn beginning(buffer: Buffer, datatype: u32) -> Result<Span> {
    span(buffer, 0, datatype)
}

#[inline]
fn check(buffer: Buffer, count: usize, object: &TypeObject) -> Result<()> {
    if buffer == Buffer::BOTTOM && count > 0 {
        return absolute(object);
    }
    if buffer == Buffer::IN_PLACE {
        return Err(Error::new(Class::Buffer, "MPI_IN_PLACE is not allowed here"));
    }
    Ok(())
}

/// Data at `MPI_BOTTOM` are those of a type with absolute addresses: the first page is none.
#[cold]
fn absolute(object: &TypeObject) -> Result<()> {
    let (low, len) = object.kind.true_extent();
    if len > 0 && (0..4096).contains(&low) {
        return Err(Error::new(Class::Buffer, "the address is null"));
    }
    Ok(())
}
