//! Communicators.

use std::ffi::{c_char, c_int};

use viaduct_mpi::error::{Class, Error, Result};
use viaduct_mpi::group::{Comparison, Group};
use viaduct_mpi::world::Comm;

use crate::abi::{COMM_NULL, COMM_WORLD, MAX_OBJECT_NAME, Place, Text, UNDEFINED};
use crate::attributes::{copy_all, delete_all};
use crate::errors::call;
use crate::info;
use crate::objects::{CommObject, add_comm, add_group, comm, group, lock, remove_comm};

/// `MPI_COMM_TYPE_SHARED`.
const TYPE_SHARED: c_int = 1;

pub(crate) fn mpi_comm_rank(handle: u32, rank: Place<c_int>) -> c_int {
    call("MPI_Comm_rank", handle, |process| rank.put(comm(process, handle)?.comm.rank()))
}

pub(crate) fn mpi_comm_size(handle: u32, size: Place<c_int>) -> c_int {
    call("MPI_Comm_size", handle, |process| size.put(comm(process, handle)?.comm.size()))
}

pub(crate) fn mpi_comm_group(handle: u32, newgroup: Place<u32>) -> c_int {
    call("MPI_Comm_group", handle, |process| {
        newgroup.put(add_group(comm(process, handle)?.comm.group().clone())?)
    })
}

pub(crate) fn mpi_comm_compare(comm1: u32, comm2: u32, result: Place<c_int>) -> c_int {
    call("MPI_Comm_compare", comm1, |process| {
        let (one, two) = (comm(process, comm1)?, comm(process, comm2)?);
        result.put(match one.comm.group().compare(two.comm.group()) {
            Comparison::Ident if one.comm == two.comm => Comparison::Ident,
            Comparison::Ident => Comparison::Congruent,
            other => other,
        } as c_int)
    })
}

/// The handle of a new communicator, or null for a process that is not part of it.
fn place(parent: &CommObject, made: Option<Comm>) -> Result<u32> {
    made.map_or(Ok(COMM_NULL), |made| add_comm(parent.child(made, None)))
}

fn dup(name: &'static str, handle: u32, hints: Option<u32>, newcomm: Place<u32>) -> c_int {
    call(name, handle, |process| {
        let parent = comm(process, handle)?;
        let hints = match hints {
            Some(hints) => info::copy(hints)?,
            None => lock(&parent.info).clone(),
        };
        let copy = parent.child(process.world.comm_dup(&parent.comm)?, parent.topology.clone());
        copy_all(handle, &parent.attributes, &copy.attributes)?;
        *lock(&copy.info) = hints;
        newcomm.put(add_comm(copy)?)
    })
}

pub(crate) fn mpi_comm_dup(handle: u32, newcomm: Place<u32>) -> c_int {
    dup("MPI_Comm_dup", handle, None, newcomm)
}

pub(crate) fn mpi_comm_dup_with_info(handle: u32, hints: u32, newcomm: Place<u32>) -> c_int {
    dup("MPI_Comm_dup_with_info", handle, Some(hints), newcomm)
}

pub(crate) fn mpi_comm_split(handle: u32, color: c_int, key: c_int, newcomm: Place<u32>) -> c_int {
    call("MPI_Comm_split", handle, |process| {
        let parent = comm(process, handle)?;
        if color < 0 && color != UNDEFINED {
            return Err(Error::new(Class::Arg, format!("a color of {color}")));
        }
        let color = (color != UNDEFINED).then_some(color);
        newcomm.put(place(&parent, process.world.comm_split(&parent.comm, color, key)?)?)
    })
}

pub(crate) fn mpi_comm_split_type(
    handle: u32,
    split_type: c_int,
    key: c_int,
    hints: u32,
    newcomm: Place<u32>,
) -> c_int {
    call("MPI_Comm_split_type", handle, |process| {
        let parent = comm(process, handle)?;
        info::copy(hints)?;
        if !matches!(split_type, TYPE_SHARED | UNDEFINED) {
            return Err(Error::new(Class::Arg, format!("{split_type} is not MPI_COMM_TYPE_SHARED")));
        }
        // All ranks of a host first, also those that want no communicator; these leave in the second step.
        let host = process.world.comm_split_host(&parent.comm, key)?;
        let color = (split_type == TYPE_SHARED).then_some(0);
        newcomm.put(place(&parent, process.world.comm_split(&host, color, key)?)?)
    })
}

/// The group of a new communicator, whose members are all in the old one.
fn members(parent: &CommObject, handle: u32) -> Result<Group> {
    let group = group(handle)?;
    let stranger = group.members().iter().find(|member| parent.comm.group().rank(**member).is_none());
    match stranger {
        Some(_) => Err(Error::new(Class::Group, "a process of the group is not part of the communicator")),
        None => Ok(group),
    }
}

pub(crate) fn mpi_comm_create(handle: u32, members_of: u32, newcomm: Place<u32>) -> c_int {
    call("MPI_Comm_create", handle, |process| {
        let parent = comm(process, handle)?;
        let group = members(&parent, members_of)?;
        newcomm.put(place(&parent, process.world.comm_create(&parent.comm, &group)?)?)
    })
}

pub(crate) fn mpi_comm_create_group(handle: u32, members_of: u32, tag: c_int, newcomm: Place<u32>) -> c_int {
    call("MPI_Comm_create_group", handle, |process| {
        let parent = comm(process, handle)?;
        let group = members(&parent, members_of)?;
        let own = process.world.comm_self().group().process(0);
        if own.and_then(|own| group.rank(own)).is_none() {
            return newcomm.put(COMM_NULL);
        }
        newcomm.put(place(&parent, process.world.comm_create_group(&parent.comm, &group, tag)?)?)
    })
}

fn free(name: &'static str, handle: Place<u32>) -> c_int {
    let number = handle.get().unwrap_or(COMM_WORLD);
    call(name, number, |process| {
        let number = handle.get()?;
        let object = comm(process, number)?;
        if number == COMM_WORLD || number == crate::abi::COMM_SELF {
            return Err(Error::new(Class::Comm, "a predefined communicator is not freed"));
        }
        delete_all(number, &object.attributes)?;
        remove_comm(number)?;
        handle.put(COMM_NULL)
    })
}

pub(crate) fn mpi_comm_free(handle: Place<u32>) -> c_int {
    free("MPI_Comm_free", handle)
}

pub(crate) fn mpi_comm_disconnect(handle: Place<u32>) -> c_int {
    free("MPI_Comm_disconnect", handle)
}

pub(crate) fn mpi_comm_get_parent(parent: Place<u32>) -> c_int {
    call("MPI_Comm_get_parent", COMM_WORLD, |_| parent.put(COMM_NULL))
}

pub(crate) fn mpi_comm_test_inter(handle: u32, flag: Place<c_int>) -> c_int {
    call("MPI_Comm_test_inter", handle, |process| {
        comm(process, handle)?;
        flag.put(0)
    })
}

/// There are no intercommunicators yet, so no communicator has a remote group.
fn no_remote(name: &'static str, handle: u32) -> c_int {
    call(name, handle, |process| {
        comm(process, handle)?;
        Err(Error::new(Class::Comm, "it is not an intercommunicator"))
    })
}

pub(crate) fn mpi_comm_remote_group(handle: u32, _newgroup: Place<u32>) -> c_int {
    no_remote("MPI_Comm_remote_group", handle)
}

pub(crate) fn mpi_comm_remote_size(handle: u32, _size: Place<c_int>) -> c_int {
    no_remote("MPI_Comm_remote_size", handle)
}

pub(crate) fn mpi_comm_get_name(handle: u32, name: Place<c_char>, resultlen: Place<c_int>) -> c_int {
    call("MPI_Comm_get_name", handle, |process| {
        resultlen.put(name.write(&comm(process, handle)?.name(), MAX_OBJECT_NAME)?)
    })
}

pub(crate) fn mpi_comm_set_name(handle: u32, name: Text) -> c_int {
    call("MPI_Comm_set_name", handle, |process| {
        comm(process, handle)?.set_name(name.read()?);
        Ok(())
    })
}

pub(crate) fn mpi_comm_get_info(handle: u32, info_used: Place<u32>) -> c_int {
    call("MPI_Comm_get_info", handle, |process| {
        let hints = lock(&comm(process, handle)?.info).clone();
        info_used.put(info::add(hints)?)
    })
}

pub(crate) fn mpi_comm_set_info(handle: u32, hints: u32) -> c_int {
    call("MPI_Comm_set_info", handle, |process| {
        *lock(&comm(process, handle)?.info) = info::copy(hints)?;
        Ok(())
    })
}
