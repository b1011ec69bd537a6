//! Persistent requests: an operation is prepared once and started many times.

use std::ffi::c_int;

use viaduct_mpi::error::{Class, Error, Result};
use viaduct_mpi::raw::Span;
use viaduct_mpi::world::{Comm, Mode, Request, World};

use crate::abi::{Buffer, COMM_WORLD, Place};
use crate::data::span;
use crate::errors::call;
use crate::objects::comm;
use crate::p2p::check_buffered;
use crate::requests::{Pending, REQUESTS, handles, insert, unknown};

/// An operation that can be started.
#[derive(Clone)]
pub(crate) struct Prepared {
    /// The mode of a send; none for a receive.
    mode: Option<Mode>,
    data: Span,
    peer: c_int,
    tag: c_int,
    comm: Comm,
    comm_handle: u32,
}

impl Prepared {
    pub(crate) fn comm_handle(&self) -> u32 {
        self.comm_handle
    }

    fn start(&self, world: &World) -> Result<Request> {
        match self.mode {
            Some(mode) => {
                if mode == Mode::Buffered {
                    check_buffered(world, self.data.bytes())?;
                }
                world.isend(mode, &self.data, self.peer, self.tag, &self.comm)
            }
            None => world.irecv(&self.data, self.peer, self.tag, &self.comm),
        }
    }
}

fn prepare(
    name: &'static str,
    mode: Option<Mode>,
    (buf, count, datatype): (Buffer, c_int, u32),
    (peer, tag, handle): (c_int, c_int, u32),
    request: Place<u32>,
) -> c_int {
    call(name, handle, |process| {
        let object = comm(process, handle)?;
        let data = span(buf, count, datatype)?;
        let prepared = Prepared { mode, data, peer, tag, comm: object.comm.clone(), comm_handle: handle };
        request.put(insert(Pending::Again { prepared, active: None })?)
    })
}

pub(crate) fn mpi_send_init(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    dest: c_int,
    tag: c_int,
    comm: u32,
    request: Place<u32>,
) -> c_int {
    prepare("MPI_Send_init", Some(Mode::Standard), (buf, count, datatype), (dest, tag, comm), request)
}

pub(crate) fn mpi_ssend_init(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    dest: c_int,
    tag: c_int,
    comm: u32,
    request: Place<u32>,
) -> c_int {
    prepare("MPI_Ssend_init", Some(Mode::Synchronous), (buf, count, datatype), (dest, tag, comm), request)
}

pub(crate) fn mpi_rsend_init(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    dest: c_int,
    tag: c_int,
    comm: u32,
    request: Place<u32>,
) -> c_int {
    prepare("MPI_Rsend_init", Some(Mode::Ready), (buf, count, datatype), (dest, tag, comm), request)
}

pub(crate) fn mpi_bsend_init(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    dest: c_int,
    tag: c_int,
    comm: u32,
    request: Place<u32>,
) -> c_int {
    prepare("MPI_Bsend_init", Some(Mode::Buffered), (buf, count, datatype), (dest, tag, comm), request)
}

pub(crate) fn mpi_recv_init(
    buf: Buffer,
    count: c_int,
    datatype: u32,
    source: c_int,
    tag: c_int,
    comm: u32,
    request: Place<u32>,
) -> c_int {
    prepare("MPI_Recv_init", None, (buf, count, datatype), (source, tag, comm), request)
}

/// Starts the operation behind a handle.
fn start(world: &World, handle: u32) -> Result<()> {
    let prepared = match REQUESTS.enter().get(handle) {
        Some(Pending::Again { active: Some(_), .. }) => {
            return Err(Error::new(Class::Request, "it was started and has not been waited for"));
        }
        Some(Pending::Again { prepared, .. }) => prepared.clone(),
        Some(Pending::Once { .. }) => return Err(Error::new(Class::Request, "it is not persistent")),
        None => return Err(unknown(handle)),
    };
    let started = prepared.start(world)?;
    if let Some(Pending::Again { active, .. }) = REQUESTS.enter().get_mut(handle) {
        *active = Some(started);
    }
    Ok(())
}

pub(crate) fn mpi_start(request: Place<u32>) -> c_int {
    call("MPI_Start", COMM_WORLD, |process| start(&process.world, request.get()?))
}

pub(crate) fn mpi_startall(count: c_int, requests: Place<u32>) -> c_int {
    call("MPI_Startall", COMM_WORLD, |process| {
        handles(count, requests)?.into_iter().try_for_each(|handle| start(&process.world, handle))
    })
}
