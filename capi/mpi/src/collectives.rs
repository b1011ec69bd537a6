//! Blocking collective operations. Arguments that are not significant at a rank are not looked at.

use std::ffi::c_int;

use viaduct_mpi::datatype::Datatype;
use viaduct_mpi::error::{Class, Error, Result};
use viaduct_mpi::raw::Span;
use viaduct_mpi::world::{Comm, Operation, Parts, World};

use crate::abi::{Buffer, Place};
use crate::data::{beginning, span, span_or_in_place};
use crate::errors::call;
use crate::objects::{CommObject, Held, comm, committed};
use crate::ops::operation;
use crate::state::Process;

/// The communicator of a collective call.
fn members(process: &'static Process, handle: u32) -> Result<Held<CommObject>> {
    comm(process, handle)
}

/// Whether this rank is the root.
fn is_root(comm: &Comm, root: c_int) -> Result<bool> {
    if (0..comm.size()).contains(&root) {
        return Ok(comm.rank() == root);
    }
    Err(Error::new(Class::Root, format!("root {root} of {} ranks", comm.size())))
}

pub(crate) fn mpi_barrier(handle: u32) -> c_int {
    call("MPI_Barrier", handle, |process| process.world.barrier(&members(process, handle)?.comm))
}

pub(crate) fn mpi_bcast(buffer: Buffer, count: c_int, datatype: u32, root: c_int, handle: u32) -> c_int {
    call("MPI_Bcast", handle, |process| {
        let object = members(process, handle)?;
        is_root(&object.comm, root)?;
        process.world.bcast(&span(buffer, count, datatype)?, root, &object.comm)
    })
}

pub(crate) fn mpi_gather(
    sendbuf: Buffer,
    sendcount: c_int,
    sendtype: u32,
    recvbuf: Buffer,
    recvcount: c_int,
    recvtype: u32,
    root: c_int,
    handle: u32,
) -> c_int {
    call("MPI_Gather", handle, |process| {
        let object = members(process, handle)?;
        let into = is_root(&object.comm, root)?.then(|| span(recvbuf, recvcount, recvtype)).transpose()?;
        let from = span_or_in_place(sendbuf, sendcount, sendtype)?;
        process.world.gather(from.as_ref(), into.as_ref(), root, &object.comm)
    })
}

pub(crate) fn mpi_gatherv(
    sendbuf: Buffer,
    sendcount: c_int,
    sendtype: u32,
    recvbuf: Buffer,
    recvcounts: Place<c_int>,
    displs: Place<c_int>,
    recvtype: u32,
    root: c_int,
    handle: u32,
) -> c_int {
    call("MPI_Gatherv", handle, |process| {
        let object = members(process, handle)?;
        let from = span_or_in_place(sendbuf, sendcount, sendtype)?;
        if !is_root(&object.comm, root)? {
            return process.world.gatherv(from.as_ref(), None, root, &object.comm);
        }
        let into = beginning(recvbuf, recvtype)?;
        let (counts, displs) = lists(&object.comm, recvcounts, displs)?;
        process.world.gatherv(from.as_ref(), Some((&into, counts, displs)), root, &object.comm)
    })
}

pub(crate) fn mpi_scatter(
    sendbuf: Buffer,
    sendcount: c_int,
    sendtype: u32,
    recvbuf: Buffer,
    recvcount: c_int,
    recvtype: u32,
    root: c_int,
    handle: u32,
) -> c_int {
    call("MPI_Scatter", handle, |process| {
        let object = members(process, handle)?;
        let from = is_root(&object.comm, root)?.then(|| span(sendbuf, sendcount, sendtype)).transpose()?;
        let into = span_or_in_place(recvbuf, recvcount, recvtype)?;
        process.world.scatter(from.as_ref(), into.as_ref(), root, &object.comm)
    })
}

pub(crate) fn mpi_scatterv(
    sendbuf: Buffer,
    sendcounts: Place<c_int>,
    displs: Place<c_int>,
    sendtype: u32,
    recvbuf: Buffer,
    recvcount: c_int,
    recvtype: u32,
    root: c_int,
    handle: u32,
) -> c_int {
    call("MPI_Scatterv", handle, |process| {
        let object = members(process, handle)?;
        let into = span_or_in_place(recvbuf, recvcount, recvtype)?;
        if !is_root(&object.comm, root)? {
            return process.world.scatterv(None, into.as_ref(), root, &object.comm);
        }
        let from = beginning(sendbuf, sendtype)?;
        let (counts, displs) = lists(&object.comm, sendcounts, displs)?;
        process.world.scatterv(Some((&from, counts, displs)), into.as_ref(), root, &object.comm)
    })
}

/// Counts and displacements, one of each for every rank.
fn lists(
    comm: &Comm,
    counts: Place<c_int>,
    displs: Place<c_int>,
) -> Result<(&'static [c_int], &'static [c_int])> {
    Ok((counts.list(comm.size())?, displs.list(comm.size())?))
}

pub(crate) fn mpi_allgather(
    sendbuf: Buffer,
    sendcount: c_int,
    sendtype: u32,
    recvbuf: Buffer,
    recvcount: c_int,
    recvtype: u32,
    handle: u32,
) -> c_int {
    call("MPI_Allgather", handle, |process| {
        let object = members(process, handle)?;
        let from = span_or_in_place(sendbuf, sendcount, sendtype)?;
        process.world.allgather(from.as_ref(), &span(recvbuf, recvcount, recvtype)?, &object.comm)
    })
}

pub(crate) fn mpi_allgatherv(
    sendbuf: Buffer,
    sendcount: c_int,
    sendtype: u32,
    recvbuf: Buffer,
    recvcounts: Place<c_int>,
    displs: Place<c_int>,
    recvtype: u32,
    handle: u32,
) -> c_int {
    call("MPI_Allgatherv", handle, |process| {
        let object = members(process, handle)?;
        let from = span_or_in_place(sendbuf, sendcount, sendtype)?;
        let (counts, displs) = lists(&object.comm, recvcounts, displs)?;
        let into = beginning(recvbuf, recvtype)?;
        process.world.allgatherv(from.as_ref(), &into, counts, displs, &object.comm)
    })
}

pub(crate) fn mpi_alltoall(
    sendbuf: Buffer,
    sendcount: c_int,
    sendtype: u32,
    recvbuf: Buffer,
    recvcount: c_int,
    recvtype: u32,
    handle: u32,
) -> c_int {
    call("MPI_Alltoall", handle, |process| {
        let object = members(process, handle)?;
        let from = span_or_in_place(sendbuf, sendcount, sendtype)?;
        process.world.alltoall(from.as_ref(), &span(recvbuf, recvcount, recvtype)?, &object.comm)
    })
}

pub(crate) fn mpi_alltoallv(
    sendbuf: Buffer,
    sendcounts: Place<c_int>,
    sdispls: Place<c_int>,
    sendtype: u32,
    recvbuf: Buffer,
    recvcounts: Place<c_int>,
    rdispls: Place<c_int>,
    recvtype: u32,
    handle: u32,
) -> c_int {
    call("MPI_Alltoallv", handle, |process| {
        let object = members(process, handle)?;
        let (counts, displs) = lists(&object.comm, recvcounts, rdispls)?;
        let into = beginning(recvbuf, recvtype)?;
        if sendbuf == Buffer::IN_PLACE {
            return process.world.alltoallv(None, (&into, counts, displs), &object.comm);
        }
        let from = beginning(sendbuf, sendtype)?;
        let (sendcounts, sdispls) = lists(&object.comm, sendcounts, sdispls)?;
        process.world.alltoallv(Some((&from, sendcounts, sdispls)), (&into, counts, displs), &object.comm)
    })
}

/// The types of the parts of `MPI_Alltoallw`.
fn kinds(comm: &Comm, types: Place<u32>) -> Result<Vec<Datatype>> {
    types.list(comm.size())?.iter().map(|handle| Ok(committed(*handle)?.kind.clone())).collect()
}

pub(crate) fn mpi_alltoallw(
    sendbuf: Buffer,
    sendcounts: Place<c_int>,
    sdispls: Place<c_int>,
    sendtypes: Place<u32>,
    recvbuf: Buffer,
    recvcounts: Place<c_int>,
    rdispls: Place<c_int>,
    recvtypes: Place<u32>,
    handle: u32,
) -> c_int {
    /// `MPI_BYTE`: displacements are in bytes.
    const BYTE: u32 = 0x4c00_010d;
    call("MPI_Alltoallw", handle, |process| {
        let object = members(process, handle)?;
        let (counts, displs) = lists(&object.comm, recvcounts, rdispls)?;
        let (base, into_kinds) = (beginning(recvbuf, BYTE)?, kinds(&object.comm, recvtypes)?);
        let into = Parts { base: &base, counts, displs, kinds: &into_kinds };
        if sendbuf == Buffer::IN_PLACE {
            return process.world.alltoallw(None, into, &object.comm);
        }
        let (counts, displs) = lists(&object.comm, sendcounts, sdispls)?;
        let (base, from_kinds) = (beginning(sendbuf, BYTE)?, kinds(&object.comm, sendtypes)?);
        let from = Parts { base: &base, counts, displs, kinds: &from_kinds };
        process.world.alltoallw(Some(from), into, &object.comm)
    })
}

pub(crate) fn mpi_reduce(
    sendbuf: Buffer,
    recvbuf: Buffer,
    count: c_int,
    datatype: u32,
    op: u32,
    root: c_int,
    handle: u32,
) -> c_int {
    call("MPI_Reduce", handle, |process| {
        let object = members(process, handle)?;
        let into = is_root(&object.comm, root)?.then(|| span(recvbuf, count, datatype)).transpose()?;
        let from = span_or_in_place(sendbuf, count, datatype)?;
        let op = operation(op, datatype)?;
        process.world.reduce(from.as_ref(), into.as_ref(), &op, root, &object.comm)
    })
}

/// A reduction whose result every rank has.
type Everywhere = fn(&World, Option<&Span>, &Span, &Operation, &Comm) -> Result<()>;

fn everywhere(
    name: &'static str,
    (sendbuf, recvbuf): (Buffer, Buffer),
    (count, datatype, op): (c_int, u32, u32),
    handle: u32,
    run: Everywhere,
) -> c_int {
    call(name, handle, |process| {
        let object = members(process, handle)?;
        let from = span_or_in_place(sendbuf, count, datatype)?;
        let into = span(recvbuf, count, datatype)?;
        run(&process.world, from.as_ref(), &into, &operation(op, datatype)?, &object.comm)
    })
}

pub(crate) fn mpi_allreduce(
    sendbuf: Buffer,
    recvbuf: Buffer,
    count: c_int,
    datatype: u32,
    op: u32,
    handle: u32,
) -> c_int {
    everywhere("MPI_Allreduce", (sendbuf, recvbuf), (count, datatype, op), handle, World::allreduce)
}

pub(crate) fn mpi_scan(
    sendbuf: Buffer,
    recvbuf: Buffer,
    count: c_int,
    datatype: u32,
    op: u32,
    handle: u32,
) -> c_int {
    everywhere("MPI_Scan", (sendbuf, recvbuf), (count, datatype, op), handle, World::scan)
}

pub(crate) fn mpi_exscan(
    sendbuf: Buffer,
    recvbuf: Buffer,
    count: c_int,
    datatype: u32,
    op: u32,
    handle: u32,
) -> c_int {
    everywhere("MPI_Exscan", (sendbuf, recvbuf), (count, datatype, op), handle, World::exscan)
}

pub(crate) fn mpi_reduce_scatter(
    sendbuf: Buffer,
    recvbuf: Buffer,
    recvcounts: Place<c_int>,
    datatype: u32,
    op: u32,
    handle: u32,
) -> c_int {
    call("MPI_Reduce_scatter", handle, |process| {
        let object = members(process, handle)?;
        let counts = recvcounts.list(object.comm.size())?;
        let all = counts.iter().try_fold(0, |sum: c_int, count| sum.checked_add(*count));
        let all = all.ok_or_else(|| Error::new(Class::Count, "the sum of the counts is too large"))?;
        let own = counts[object.comm.rank() as usize];
        let from = span_or_in_place(sendbuf, all, datatype)?;
        // In place the data of all come out of the receive buffer.
        let into = span(recvbuf, if from.is_some() { own } else { all }, datatype)?;
        let op = operation(op, datatype)?;
        process.world.reduce_scatter(from.as_ref(), &into, counts, &op, &object.comm)
    })
}

pub(crate) fn mpi_reduce_scatter_block(
    sendbuf: Buffer,
    recvbuf: Buffer,
    recvcount: c_int,
    datatype: u32,
    op: u32,
    handle: u32,
) -> c_int {
    call("MPI_Reduce_scatter_block", handle, |process| {
        let object = members(process, handle)?;
        let all = recvcount.checked_mul(object.comm.size());
        let all = all.ok_or_else(|| Error::new(Class::Count, "the sum of the counts is too large"))?;
        let from = span_or_in_place(sendbuf, all, datatype)?;
        let into = span(recvbuf, recvcount, datatype)?;
        process.world.reduce_scatter_block(from.as_ref(), &into, &operation(op, datatype)?, &object.comm)
    })
}
