//! The tools interface, honestly: it can be initialised, and says that there are no variables and no categories.
//!
//! Its calls return their codes and never raise an error handler, as the standard has it.

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::{Buffer, Place, Text};

/// `MPI_T_ERR_NOT_INITIALIZED`.
const NOT_INITIALIZED: c_int = 60;
/// `MPI_T_ERR_INVALID_INDEX`.
const INVALID_INDEX: c_int = 62;
/// `MPI_T_ERR_INVALID_HANDLE`.
const INVALID_HANDLE: c_int = 64;
/// `MPI_T_ERR_INVALID_SESSION`.
const INVALID_SESSION: c_int = 67;
/// `MPI_T_ERR_INVALID_NAME`.
const INVALID_NAME: c_int = 73;
/// `MPI_T_ERR_INVALID`: a null pointer.
const INVALID: c_int = 74;
/// `MPI_THREAD_MULTIPLE`.
const MULTIPLE: c_int = 3;

/// How often the interface was initialised and not finalised yet.
static USES: AtomicUsize = AtomicUsize::new(0);

/// What sessions and the mark for all handles point to.
static SESSION: u8 = 0;

/// The mark for all handles of a session.
#[repr(transparent)]
struct AllHandles(*const u8);

// SAFETY: the address of a constant, which is never read.
unsafe impl Sync for AllHandles {}

/// The mark for all handles of a session.
#[unsafe(no_mangle)]
static MPI_T_PVAR_ALL_HANDLES: AllHandles = AllHandles(&raw const SESSION);

/// Runs a call of the interface, which has to be initialised.
fn tool(body: impl FnOnce() -> c_int) -> c_int {
    if USES.load(Ordering::Relaxed) == 0 { NOT_INITIALIZED } else { body() }
}

fn put(place: Place<c_int>, value: c_int) -> c_int {
    place.put(value).map_or(INVALID, |()| 0)
}

/// A call that asks for a variable or category by number: there is none.
fn no_index() -> c_int {
    tool(|| INVALID_INDEX)
}

/// A call with a handle: none was ever given out.
fn no_handle() -> c_int {
    tool(|| INVALID_HANDLE)
}

fn in_session(session: Place<u8>, code: c_int) -> c_int {
    tool(|| if session.address().cast_const() == &raw const SESSION { code } else { INVALID_SESSION })
}

pub(crate) fn mpi_t_init_thread(_required: c_int, provided: Place<c_int>) -> c_int {
    USES.fetch_add(1, Ordering::Relaxed);
    put(provided, MULTIPLE)
}

pub(crate) fn mpi_t_finalize() -> c_int {
    let left = USES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |uses| uses.checked_sub(1));
    if left.is_ok() { 0 } else { NOT_INITIALIZED }
}

pub(crate) fn mpi_t_cvar_get_num(num_cvar: Place<c_int>) -> c_int {
    tool(|| put(num_cvar, 0))
}

pub(crate) fn mpi_t_pvar_get_num(num_pvar: Place<c_int>) -> c_int {
    tool(|| put(num_pvar, 0))
}

pub(crate) fn mpi_t_category_get_num(num_cat: Place<c_int>) -> c_int {
    tool(|| put(num_cat, 0))
}

pub(crate) fn mpi_t_category_changed(update_number: Place<c_int>) -> c_int {
    tool(|| put(update_number, 0))
}

pub(crate) fn mpi_t_cvar_get_index(_name: Text, _index: Place<c_int>) -> c_int {
    tool(|| INVALID_NAME)
}

pub(crate) fn mpi_t_pvar_get_index(_name: Text, _class: c_int, _index: Place<c_int>) -> c_int {
    tool(|| INVALID_NAME)
}

pub(crate) fn mpi_t_category_get_index(_name: Text, _index: Place<c_int>) -> c_int {
    tool(|| INVALID_NAME)
}

pub(crate) fn mpi_t_category_get_categories(_index: c_int, _len: c_int, _indices: Place<c_int>) -> c_int {
    no_index()
}

pub(crate) fn mpi_t_category_get_cvars(_index: c_int, _len: c_int, _indices: Place<c_int>) -> c_int {
    no_index()
}

pub(crate) fn mpi_t_category_get_pvars(_index: c_int, _len: c_int, _indices: Place<c_int>) -> c_int {
    no_index()
}

pub(crate) fn mpi_t_category_get_info(
    _index: c_int,
    _name: Place<c_char>,
    _name_len: Place<c_int>,
    _desc: Place<c_char>,
    _desc_len: Place<c_int>,
    _cvars: Place<c_int>,
    _pvars: Place<c_int>,
    _categories: Place<c_int>,
) -> c_int {
    no_index()
}

pub(crate) fn mpi_t_cvar_get_info(
    _index: c_int,
    _name: Place<c_char>,
    _name_len: Place<c_int>,
    _verbosity: Place<c_int>,
    _datatype: Place<u32>,
    _enumtype: Place<u8>,
    _desc: Place<c_char>,
    _desc_len: Place<c_int>,
    _bind: Place<c_int>,
    _scope: Place<c_int>,
) -> c_int {
    no_index()
}

pub(crate) fn mpi_t_pvar_get_info(
    _index: c_int,
    _name: Place<c_char>,
    _name_len: Place<c_int>,
    _verbosity: Place<c_int>,
    _class: Place<c_int>,
    _datatype: Place<u32>,
    _enumtype: Place<u8>,
    _desc: Place<c_char>,
    _desc_len: Place<c_int>,
    _bind: Place<c_int>,
    _readonly: Place<c_int>,
    _continuous: Place<c_int>,
    _atomic: Place<c_int>,
) -> c_int {
    no_index()
}

pub(crate) fn mpi_t_cvar_handle_alloc(
    _index: c_int,
    _object: Buffer,
    _handle: Place<u8>,
    _count: Place<c_int>,
) -> c_int {
    no_index()
}

pub(crate) fn mpi_t_cvar_handle_free(_handle: Place<u8>) -> c_int {
    no_handle()
}

pub(crate) fn mpi_t_cvar_read(_handle: Place<u8>, _buf: Buffer) -> c_int {
    no_handle()
}

pub(crate) fn mpi_t_cvar_write(_handle: Place<u8>, _buf: Buffer) -> c_int {
    no_handle()
}

pub(crate) fn mpi_t_enum_get_info(
    _enumtype: Place<u8>,
    _num: Place<c_int>,
    _name: Place<c_char>,
    _name_len: Place<c_int>,
) -> c_int {
    no_handle()
}

pub(crate) fn mpi_t_enum_get_item(
    _enumtype: Place<u8>,
    _index: c_int,
    _value: Place<c_int>,
    _name: Place<c_char>,
    _name_len: Place<c_int>,
) -> c_int {
    no_handle()
}

pub(crate) fn mpi_t_pvar_session_create(session: Place<u8>) -> c_int {
    tool(|| Buffer::at(session.address()).place().put(&raw const SESSION).map_or(INVALID, |()| 0))
}

pub(crate) fn mpi_t_pvar_session_free(session: Place<u8>) -> c_int {
    tool(|| {
        let place = Buffer::at(session.address()).place::<*const u8>();
        match place.get() {
            Ok(given) if given == &raw const SESSION => place.put(std::ptr::null()).map_or(INVALID, |()| 0),
            Ok(_) => INVALID_SESSION,
            Err(_) => INVALID,
        }
    })
}

pub(crate) fn mpi_t_pvar_handle_alloc(
    session: Place<u8>,
    _index: c_int,
    _object: Buffer,
    _handle: Place<u8>,
    _count: Place<c_int>,
) -> c_int {
    in_session(session, INVALID_INDEX)
}

pub(crate) fn mpi_t_pvar_handle_free(session: Place<u8>, _handle: Place<u8>) -> c_int {
    in_session(session, INVALID_HANDLE)
}

pub(crate) fn mpi_t_pvar_read(session: Place<u8>, _handle: Place<u8>, _buf: Buffer) -> c_int {
    in_session(session, INVALID_HANDLE)
}

pub(crate) fn mpi_t_pvar_readreset(session: Place<u8>, _handle: Place<u8>, _buf: Buffer) -> c_int {
    in_session(session, INVALID_HANDLE)
}

pub(crate) fn mpi_t_pvar_write(session: Place<u8>, _handle: Place<u8>, _buf: Buffer) -> c_int {
    in_session(session, INVALID_HANDLE)
}

/// Calls that may name all handles of a session, of which there are none.
fn all_or_none(session: Place<u8>, handle: Place<u8>) -> c_int {
    let all = handle.address().cast_const() == &raw const SESSION;
    in_session(session, if all { 0 } else { INVALID_HANDLE })
}

pub(crate) fn mpi_t_pvar_start(session: Place<u8>, handle: Place<u8>) -> c_int {
    all_or_none(session, handle)
}

pub(crate) fn mpi_t_pvar_stop(session: Place<u8>, handle: Place<u8>) -> c_int {
    all_or_none(session, handle)
}

pub(crate) fn mpi_t_pvar_reset(session: Place<u8>, handle: Place<u8>) -> c_int {
    all_or_none(session, handle)
}
