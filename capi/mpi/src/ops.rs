//! Reduction operations of programs.

use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex};

use viaduct_mpi::error::{Class, Error, Result};
use viaduct_mpi::handle::{Object, Table};
use viaduct_mpi::op::{self, Op};
use viaduct_mpi::world::Operation;

use crate::abi::{Buffer, COMM_WORLD, Function, OP_NULL, Place};
use crate::data::span;
use crate::errors::{call, pure};
use crate::objects::{committed, lock};

/// An operation that a program has made.
#[derive(Clone, Copy)]
struct Made {
    function: Function,
    commutes: bool,
}

static OPS: LazyLock<Mutex<Table<Made>>> = LazyLock::new(|| Mutex::new(Table::new(Object::Op)));

fn made(handle: u32) -> Result<Made> {
    let known = lock(&OPS).get(handle).copied();
    known.ok_or_else(|| Error::new(Class::Op, format!("handle {handle:#010x} names none")))
}

/// The operation with a handle, for data of a type.
pub(crate) fn operation(handle: u32, datatype: u32) -> Result<Operation> {
    if let Some(op) = Op::of(handle) {
        op::check(op, &committed(datatype)?.kind)?;
        return Ok(Operation::predefined(op));
    }
    let Made { function, commutes } = made(handle)?;
    if function.is_null() {
        return Err(Error::new(Class::Op, "its function is null"));
    }
    // SAFETY: the program gave the address of a function of this type to MPI_Op_create.
    let function = unsafe {
        std::mem::transmute::<*const c_void, extern "C" fn(*const u8, *mut u8, *mut c_int, *mut u32)>(
            function.address(),
        )
    };
    Ok(Operation::user(
        commutes,
        Box::new(move |from, into, count| {
            let (mut count, mut datatype) = (count as c_int, datatype);
            function(from, into, &mut count, &mut datatype);
        }),
    ))
}

pub(crate) fn mpi_op_create(function: Function, commute: c_int, op: Place<u32>) -> c_int {
    pure("MPI_Op_create", || {
        let made = lock(&OPS).insert(Made { function, commutes: commute != 0 });
        op.put(made.ok_or_else(|| Error::new(Class::Other, "there are a million operations"))?)
    })
}

pub(crate) fn mpi_op_free(op: Place<u32>) -> c_int {
    pure("MPI_Op_free", || {
        let handle = op.get()?;
        let gone = lock(&OPS).remove(handle);
        gone.ok_or_else(|| Error::new(Class::Op, format!("handle {handle:#010x} is none of the program's")))?;
        op.put(OP_NULL)
    })
}

pub(crate) fn mpi_op_commutative(op: u32, commute: Place<c_int>) -> c_int {
    pure("MPI_Op_commutative", || {
        let commutes = match Op::of(op) {
            Some(op) => !matches!(op, Op::Replace | Op::NoOp),
            None => made(op)?.commutes,
        };
        commute.put(c_int::from(commutes))
    })
}

pub(crate) fn mpi_reduce_local(
    inbuf: Buffer,
    inoutbuf: Buffer,
    count: c_int,
    datatype: u32,
    op: u32,
) -> c_int {
    call("MPI_Reduce_local", COMM_WORLD, |process| {
        let (from, into) = (span(inbuf, count, datatype)?, span(inoutbuf, count, datatype)?);
        process.world.reduce_local(&from, &into, &operation(op, datatype)?)
    })
}
