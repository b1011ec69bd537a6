//! Sends and receives.

use std::ffi::c_int;
use std::sync::Mutex;

use viaduct_mpi::error::{Class, Error, Result};
use viaduct_mpi::world::{Mode, World};

use crate::abi::{BSEND_OVERHEAD, Buffer, COMM_WORLD, Place, Status};
use crate::data::span;
use crate::errors::call;
use crate::objects::{comm, lock};
use crate::requests::add;

/// Memory that the program has attached for buffered sends: address and size. The engine keeps copies of its own; this says
/// how much of them the program has asked for.
static ATTACHED: Mutex<Option<(usize, usize)>> = Mutex::new(None);

/// Whether a buffered send of so many bytes is within what the program attached.
pub(crate) fn check_buffered(world: &World, bytes: usize) -> Result<()> {
    let size = lock(&ATTACHED).map_or(0, |(_, size)| size);
    let used = world.buffered();
    if used + bytes + BSEND_OVERHEAD <= size {
        return Ok(());
    }
    // What has been received meanwhile gives room.
    world.progress();
    let used = world.buffered();
    if used + bytes + BSEND_OVERHEAD <= size {
        return Ok(());
    }
    let cause = format!("{bytes} bytes do not fit into the attached buffer: {used} of {size} are in use");
    Err(Error::new(Class::Buffer, cause))
}

#[inline]
fn send(
    name: &'static str,
    mode: Mode,
    (buf, count, datatype): (Buffer, c_int, u32),
    dest: c_int,
    tag: c_int,
    handle: u32,
) -> c_int {
    call(name, handle, |process| {
        let object = comm(process, handle)?;
        let data = span(buf, count, datatype)?;
        if mode == Mode::Buffered {
            check_buffered(&process.world, data.bytes())?;
        }
        process.world.send(mode, &data, dest, tag, &object.comm)
    })
}

pub(crate) fn mpi_send(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    dest: c_int,
    tag: c_int,
    comm: u32,
) -> c_int {
    send("MPI_Send", Mode::Standard, (buf, count, datatype), dest, tag, comm)
}

pub(crate) fn mpi_ssend(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    dest: c_int,
    tag: c_int,
    comm: u32,
) -> c_int {
    send("MPI_Ssend", Mode::Synchronous, (buf, count, datatype), dest, tag, comm)
}

pub(crate) fn mpi_rsend(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    dest: c_int,
    tag: c_int,
    comm: u32,
) -> c_int {
    send("MPI_Rsend", Mode::Ready, (buf, count, datatype), dest, tag, comm)
}

pub(crate) fn mpi_bsend(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    dest: c_int,
    tag: c_int,
    comm: u32,
) -> c_int {
    send("MPI_Bsend", Mode::Buffered, (buf, count, datatype), dest, tag, comm)
}

#[inline]
fn isend(
    name: &'static str,
    mode: Mode,
    (buf, count, datatype): (Buffer, c_int, u32),
    (dest, tag, handle): (c_int, c_int, u32),
    request: Place<u32>,
) -> c_int {
    call(name, handle, |process| {
        let object = comm(process, handle)?;
        let data = span(buf, count, datatype)?;
        if mode == Mode::Buffered {
            check_buffered(&process.world, data.bytes())?;
        }
        let started = process.world.isend(mode, &data, dest, tag, &object.comm)?;
        request.put(add(started, handle)?)
    })
}

pub(crate) fn mpi_isend(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    dest: c_int,
    tag: c_int,
    comm: u32,
    request: Place<u32>,
) -> c_int {
    isend("MPI_Isend", Mode::Standard, (buf, count, datatype), (dest, tag, comm), request)
}

pub(crate) fn mpi_issend(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    dest: c_int,
    tag: c_int,
    comm: u32,
    request: Place<u32>,
) -> c_int {
    isend("MPI_Issend", Mode::Synchronous, (buf, count, datatype), (dest, tag, comm), request)
}

pub(crate) fn mpi_irsend(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    dest: c_int,
    tag: c_int,
    comm: u32,
    request: Place<u32>,
) -> c_int {
    isend("MPI_Irsend", Mode::Ready, (buf, count, datatype), (dest, tag, comm), request)
}

pub(crate) fn mpi_ibsend(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    dest: c_int,
    tag: c_int,
    comm: u32,
    request: Place<u32>,
) -> c_int {
    isend("MPI_Ibsend", Mode::Buffered, (buf, count, datatype), (dest, tag, comm), request)
}

pub(crate) fn mpi_recv(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    source: c_int,
    tag: c_int,
    handle: u32,
    status: Place<Status>,
) -> c_int {
    call("MPI_Recv", handle, |process| {
        let object = comm(process, handle)?;
        let came = process.world.recv(&span(buf, count, datatype)?, source, tag, &object.comm)?;
        status.fill(|status| status.set(&came));
        Ok(())
    })
}

pub(crate) fn mpi_irecv(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    source: c_int,
    tag: c_int,
    handle: u32,
    request: Place<u32>,
) -> c_int {
    call("MPI_Irecv", handle, |process| {
        let object = comm(process, handle)?;
        let started = process.world.irecv(&span(buf, count, datatype)?, source, tag, &object.comm)?;
        request.put(add(started, handle)?)
    })
}

pub(crate) fn mpi_sendrecv(
    sendbuf: Buffer,
    sendcount: c_int,
    sendtype: u32,
    dest: c_int,
    sendtag: c_int,
    recvbuf: Buffer,
    recvcount: c_int,
    recvtype: u32,
    source: c_int,
    recvtag: c_int,
    handle: u32,
    status: Place<Status>,
) -> c_int {
    call("MPI_Sendrecv", handle, |process| {
        let object = comm(process, handle)?;
        let (out, into) = (span(sendbuf, sendcount, sendtype)?, span(recvbuf, recvcount, recvtype)?);
        let came = process.world.sendrecv(&out, dest, sendtag, &into, source, recvtag, &object.comm)?;
        status.fill(|status| status.set(&came));
        Ok(())
    })
}

pub(crate) fn mpi_sendrecv_replace(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    handle: u32,
    status: Place<Status>,
) -> c_int {
    call("MPI_Sendrecv_replace", handle, |process| {
        let object = comm(process, handle)?;
        let data = span(buf, count, datatype)?;
        let came = process.world.sendrecv_replace(&data, dest, sendtag, source, recvtag, &object.comm)?;
        status.fill(|status| status.set(&came));
        Ok(())
    })
}

pub(crate) fn mpi_buffer_attach(buffer: Buffer, size: c_int) -> c_int {
    call("MPI_Buffer_attach", COMM_WORLD, |_| {
        let size = usize::try_from(size).map_err(|_| Error::new(Class::Arg, format!("a size of {size}")))?;
        let mut attached = lock(&ATTACHED);
        if attached.is_some() {
            return Err(Error::new(Class::Buffer, "a buffer is attached; detach it first"));
        }
        *attached = Some((buffer.address() as usize, size));
        Ok(())
    })
}

pub(crate) fn mpi_buffer_detach(buffer_addr: Buffer, size: Place<c_int>) -> c_int {
    call("MPI_Buffer_detach", COMM_WORLD, |process| {
        process.world.flush_buffered()?;
        let (address, bytes) = lock(&ATTACHED).take().unwrap_or((0, 0));
        buffer_addr.place::<usize>().put(address)?;
        size.put(bytes as c_int)
    })
}
