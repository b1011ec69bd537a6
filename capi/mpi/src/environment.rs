//! Start and end, versions, time, memory.

use std::ffi::{c_char, c_int};
use std::sync::LazyLock;
use std::time::Instant;

use viaduct_mpi::error::{Class, Error};

use crate::abi::{Buffer, COMM_WORLD, MAX_PROCESSOR_NAME, Place};
use crate::attributes::delete_all;
use crate::errors::{call, pure};
use crate::objects::comm;
use crate::state;

/// `MPI_THREAD_MULTIPLE`: what is always granted.
const MULTIPLE: c_int = 3;
/// `MPI_MAX_LIBRARY_VERSION_STRING`.
const MAX_VERSION: usize = 8192;

/// Time is counted from the first call.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

pub(crate) fn mpi_init(_argc: Place<c_int>, _argv: Place<u8>) -> c_int {
    LazyLock::force(&START);
    pure("MPI_Init", state::start)
}

pub(crate) fn mpi_init_thread(
    _argc: Place<c_int>,
    _argv: Place<u8>,
    _required: c_int,
    provided: Place<c_int>,
) -> c_int {
    LazyLock::force(&START);
    pure("MPI_Init_thread", || {
        state::start()?;
        provided.put(MULTIPLE)
    })
}

pub(crate) fn mpi_initialized(flag: Place<c_int>) -> c_int {
    pure("MPI_Initialized", || flag.put(c_int::from(state::initialized())))
}

pub(crate) fn mpi_finalized(flag: Place<c_int>) -> c_int {
    pure("MPI_Finalized", || flag.put(c_int::from(state::finalized())))
}

pub(crate) fn mpi_finalize() -> c_int {
    call("MPI_Finalize", COMM_WORLD, |process| {
        // The standard has the attributes of MPI_COMM_SELF deleted before anything else ends.
        delete_all(crate::abi::COMM_SELF, &process.comm_self.attributes)?;
        delete_all(COMM_WORLD, &process.comm_world.attributes)?;
        state::end()
    })
}

pub(crate) fn mpi_query_thread(provided: Place<c_int>) -> c_int {
    call("MPI_Query_thread", COMM_WORLD, |_| provided.put(MULTIPLE))
}

pub(crate) fn mpi_is_thread_main(flag: Place<c_int>) -> c_int {
    call("MPI_Is_thread_main", COMM_WORLD, |process| flag.put(c_int::from(process.is_main_thread())))
}

pub(crate) fn mpi_abort(handle: u32, errorcode: c_int) -> c_int {
    call("MPI_Abort", handle, |process| {
        comm(process, handle)?;
        let rank = process.world.comm_world().rank();
        state::abort(process, errorcode, &format!("rank {rank} called MPI_Abort({errorcode})"))
    })
}

pub(crate) fn mpi_wtime() -> f64 {
    START.elapsed().as_secs_f64()
}

pub(crate) fn mpi_wtick() -> f64 {
    1e-9
}

pub(crate) fn mpi_get_version(version: Place<c_int>, subversion: Place<c_int>) -> c_int {
    pure("MPI_Get_version", || {
        version.put(3)?;
        subversion.put(1)
    })
}

pub(crate) fn mpi_get_library_version(version: Place<c_char>, resultlen: Place<c_int>) -> c_int {
    pure("MPI_Get_library_version", || {
        let text =
            concat!("Viaduct ", env!("CARGO_PKG_VERSION"), ", MPI 3.1 over VIA, binary interface of MPICH");
        resultlen.put(version.write(text, MAX_VERSION)?)
    })
}

pub(crate) fn mpi_get_processor_name(name: Place<c_char>, resultlen: Place<c_int>) -> c_int {
    call("MPI_Get_processor_name", COMM_WORLD, |process| {
        resultlen.put(name.write(&process.world.processor_name(), MAX_PROCESSOR_NAME)?)
    })
}

pub(crate) fn mpi_alloc_mem(size: i64, _info: u32, baseptr: Buffer) -> c_int {
    call("MPI_Alloc_mem", COMM_WORLD, |process| {
        let size =
            usize::try_from(size).map_err(|_| Error::new(Class::Arg, format!("a size of {size} bytes")))?;
        baseptr.place::<*mut u8>().put(process.world.alloc_mem(size.max(1))?)
    })
}

pub(crate) fn mpi_free_mem(base: Buffer) -> c_int {
    call("MPI_Free_mem", COMM_WORLD, |process| {
        if base == Buffer::BOTTOM { Ok(()) } else { process.world.free_mem(base.address()) }
    })
}

pub(crate) fn mpi_pcontrol(_level: c_int) -> c_int {
    Class::Success as c_int
}
