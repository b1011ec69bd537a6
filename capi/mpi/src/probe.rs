//! Probing, and receiving a message that a probe has taken.

use std::ffi::c_int;
use std::sync::{LazyLock, Mutex};

use viaduct_mpi::error::{Class, Error, Result};
use viaduct_mpi::handle::{Object, Table};
use viaduct_mpi::world::{self, Message};

use crate::abi::{Buffer, COMM_WORLD, MESSAGE_NO_PROC, MESSAGE_NULL, PROC_NULL, Place, Status};
use crate::data::span;
use crate::errors::call;
use crate::objects::{comm, lock};
use crate::requests::add;

/// Messages that were taken and not received yet, with the communicator they came by.
static MESSAGES: LazyLock<Mutex<Table<(Message, u32)>>> =
    LazyLock::new(|| Mutex::new(Table::new(Object::Message)));

pub(crate) fn mpi_probe(source: c_int, tag: c_int, handle: u32, status: Place<Status>) -> c_int {
    call("MPI_Probe", handle, |process| {
        let found = process.world.probe(source, tag, &comm(process, handle)?.comm)?;
        status.fill(|status| status.set(&found));
        Ok(())
    })
}

pub(crate) fn mpi_iprobe(
    source: c_int,
    tag: c_int,
    handle: u32,
    flag: Place<c_int>,
    status: Place<Status>,
) -> c_int {
    call("MPI_Iprobe", handle, |process| {
        let found = process.world.iprobe(source, tag, &comm(process, handle)?.comm)?;
        if let Some(found) = &found {
            status.fill(|status| status.set(found));
        }
        flag.put(c_int::from(found.is_some()))
    })
}

/// A handle for a message that a probe has taken.
fn keep(message: Message, source: c_int, comm: u32) -> Result<u32> {
    if source == PROC_NULL {
        return Ok(MESSAGE_NO_PROC);
    }
    lock(&MESSAGES)
        .insert((message, comm))
        .ok_or_else(|| Error::new(Class::Other, "there are a million messages"))
}

pub(crate) fn mpi_mprobe(
    source: c_int,
    tag: c_int,
    handle: u32,
    message: Place<u32>,
    status: Place<Status>,
) -> c_int {
    call("MPI_Mprobe", handle, |process| {
        let (taken, found) = process.world.mprobe(source, tag, &comm(process, handle)?.comm)?;
        status.fill(|status| status.set(&found));
        message.put(keep(taken, source, handle)?)
    })
}

pub(crate) fn mpi_improbe(
    source: c_int,
    tag: c_int,
    handle: u32,
    flag: Place<c_int>,
    message: Place<u32>,
    status: Place<Status>,
) -> c_int {
    call("MPI_Improbe", handle, |process| {
        match process.world.improbe(source, tag, &comm(process, handle)?.comm)? {
            None => {
                message.put(MESSAGE_NULL)?;
                flag.put(0)
            }
            Some((taken, found)) => {
                status.fill(|status| status.set(&found));
                message.put(keep(taken, source, handle)?)?;
                flag.put(1)
            }
        }
    })
}

/// Takes the message behind a handle, which becomes null.
fn take(handle: Place<u32>) -> Result<Option<(Message, u32)>> {
    let number = handle.get()?;
    let taken =
        match number {
            MESSAGE_NO_PROC => None,
            MESSAGE_NULL => return Err(Error::new(Class::Request, "it is MPI_MESSAGE_NULL")),
            _ => Some(lock(&MESSAGES).remove(number).ok_or_else(|| {
                Error::new(Class::Request, format!("handle {number:#010x} names no message"))
            })?),
        };
    handle.put(MESSAGE_NULL)?;
    Ok(taken)
}

/// The communicator that a message came by.
fn comm_of(handle: Place<u32>) -> u32 {
    let number = handle.get().unwrap_or(MESSAGE_NULL);
    lock(&MESSAGES).get(number).map_or(COMM_WORLD, |(_, comm)| *comm)
}

pub(crate) fn mpi_mrecv(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    message: Place<u32>,
    status: Place<Status>,
) -> c_int {
    call("MPI_Mrecv", comm_of(message), |process| {
        let data = span(buf, count, datatype)?;
        let came = match take(message)? {
            None => world::Status::PROC_NULL,
            Some((taken, _)) => process.world.mrecv(taken, &data)?,
        };
        status.fill(|status| status.set(&came));
        Ok(())
    })
}

pub(crate) fn mpi_imrecv(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    message: Place<u32>,
    request: Place<u32>,
) -> c_int {
    call("MPI_Imrecv", comm_of(message), |process| {
        let data = span(buf, count, datatype)?;
        let (taken, comm) = take(message)?.unwrap_or((Message::NO_PROC, COMM_WORLD));
        request.put(add(process.world.imrecv(taken, &data)?, comm)?)
    })
}
