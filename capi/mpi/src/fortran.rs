//! What the Fortran functions need: marks, text; and those functions whose arguments are not simply those of C.
//!
//! `mpif.h` puts the marks of the standard (`MPI_BOTTOM` and the like) into common blocks. The program has these blocks
//! too, and the loader makes both one, so a mark is known by its address. The names below are as gfortran writes them.

use std::ffi::{CString, c_char, c_int};

use viaduct_mpi::error::Class;

use crate::abi::{Buffer, Function, Place, Status, Text, UNDEFINED};
use crate::attributes::{For, Found, Language, create, of_comm, of_type, set_of_comm, set_of_type};
use crate::entry;
use crate::errors::{call, pure};
use crate::topologies::{unweighted, weights_empty};

/// `MPI_BOTTOM`, `MPI_IN_PLACE` and the five words of `MPI_STATUS_IGNORE`.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name of a common block")]
static mut mpipriv1_: [c_int; 7] = [0; 7];
/// `MPI_STATUSES_IGNORE` and `MPI_ERRCODES_IGNORE`.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name of a common block")]
static mut mpipriv2_: [c_int; 6] = [0; 6];
/// `MPI_ARGVS_NULL` and `MPI_ARGV_NULL`.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name of a common block")]
static mut mpiprivc_: [c_char; 2] = [0; 2];
/// `MPI_UNWEIGHTED`.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name of a common block")]
static mut mpifcmb5_: c_int = 0;
/// `MPI_WEIGHTS_EMPTY`.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name of a common block")]
static mut mpifcmb9_: c_int = 0;

/// A pointer that C programs read: a Fortran mark.
#[repr(transparent)]
struct Mark(*const c_int);

// SAFETY: an address that is compared and never followed.
unsafe impl Sync for Mark {}

/// The Fortran mark as C programs know it.
#[unsafe(no_mangle)]
static MPI_F_STATUS_IGNORE: Mark = Mark((&raw const mpipriv1_).cast::<c_int>().wrapping_add(2));
/// The Fortran mark as C programs know it.
#[unsafe(no_mangle)]
static MPI_F_STATUSES_IGNORE: Mark = Mark((&raw const mpipriv2_).cast::<c_int>());

/// What Fortran 2008 programs hand over for a status to be ignored.
#[unsafe(no_mangle)]
static mut MPIR_F08_MPI_STATUS_IGNORE_OBJ: [c_int; 5] = [0; 5];
/// What Fortran 2008 programs hand over for statuses to be ignored.
#[unsafe(no_mangle)]
static mut MPIR_F08_MPI_STATUSES_IGNORE_OBJ: [c_int; 5] = [0; 5];
/// The mark of Fortran 2008 as C programs know it.
#[unsafe(no_mangle)]
static MPI_F08_STATUS_IGNORE: Mark = Mark((&raw const MPIR_F08_MPI_STATUS_IGNORE_OBJ).cast());
/// The mark of Fortran 2008 as C programs know it.
#[unsafe(no_mangle)]
static MPI_F08_STATUSES_IGNORE: Mark = Mark((&raw const MPIR_F08_MPI_STATUSES_IGNORE_OBJ).cast());

/// Whether this is a mark of Fortran 2008, and no status.
pub(crate) fn is_f08_mark(status: Place<Status>) -> bool {
    let at = status.address().cast_const().cast::<c_int>();
    at == MPI_F08_STATUS_IGNORE.0 || at == MPI_F08_STATUSES_IGNORE.0
}

/// A buffer, with the marks of Fortran turned into those of C.
#[inline]
pub(crate) fn buffer(given: Buffer) -> Buffer {
    let first = (&raw mut mpipriv1_).cast::<c_int>();
    if given.address() == first.cast() {
        Buffer::BOTTOM
    } else if given.address() == first.wrapping_add(1).cast() {
        Buffer::IN_PLACE
    } else {
        given
    }
}

/// A status, or none.
#[inline]
pub(crate) fn status(given: Place<Status>) -> Place<Status> {
    let ignore = (&raw mut mpipriv1_).cast::<c_int>().wrapping_add(2);
    if given.address() == ignore.cast() { Place::NULL } else { given }
}

/// An array of statuses, or none.
pub(crate) fn statuses(given: Place<Status>) -> Place<Status> {
    let ignore = (&raw mut mpipriv2_).cast::<Status>();
    if given.address() == ignore { Place::NULL } else { status(given) }
}

/// Weights of edges.
fn weights(given: Place<c_int>) -> Place<c_int> {
    if given.address() == &raw mut mpifcmb5_ {
        unweighted()
    } else if given.address() == &raw mut mpifcmb9_ {
        weights_empty()
    } else {
        given
    }
}

/// Stores the error code.
#[inline]
pub(crate) fn finish(ierror: Place<c_int>, code: c_int) {
    // A null address is only possible from C; then there is no place for the code.
    let _ = ierror.put(code);
}

/// Text of a Fortran program, without the blanks at its end.
pub(crate) struct Owned(CString);

impl Owned {
    pub(crate) fn read(text: Text, len: usize) -> Owned {
        if text.address().is_null() {
            return Owned(CString::default());
        }
        // SAFETY: by the calling convention the text has `len` characters.
        let bytes = unsafe { std::slice::from_raw_parts(text.address().cast::<u8>(), len) };
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(len);
        let bytes = bytes[..end].trim_ascii();
        Owned(CString::new(bytes).unwrap_or_default())
    }

    pub(crate) fn text(&self) -> Text {
        Text::of(&self.0)
    }
}

/// Room for text that goes to a Fortran program: as long as the longest text of the standard.
pub(crate) struct Answer(Vec<c_char>);

impl Answer {
    pub(crate) fn new() -> Answer {
        Answer(vec![0; 8193])
    }

    pub(crate) fn place(&mut self) -> Place<c_char> {
        Place::new(self.0.as_mut_ptr())
    }

    /// Copies the text, filled up with blanks.
    pub(crate) fn write(&self, into: Place<c_char>, len: usize) {
        let Ok(room) = into.list_mut(c_int::try_from(len).unwrap_or(c_int::MAX)) else { return };
        let text = self.0.iter().copied().take_while(|byte| *byte != 0);
        let filled = text.chain(std::iter::repeat(b' ' as c_char));
        room.iter_mut().zip(filled).for_each(|(room, byte)| *room = byte);
    }
}

/// Each function under its own name and the name that tools call it by.
macro_rules! both {
    ($(fn $mpi:ident / $pmpi:ident ($($arg:ident: $kind:ty),* $(,)?) $(-> $returns:ty)? $body:block)*) => {
        /// The exported functions that are written by hand.
        #[allow(clippy::missing_safety_doc, clippy::too_many_arguments, reason = "the standard's arguments")]
        mod by_hand {
            use super::*;

            $(
                #[unsafe(no_mangle)]
                unsafe extern "C" fn $mpi($($arg: $kind),*) $(-> $returns)? $body
                #[unsafe(no_mangle)]
                unsafe extern "C" fn $pmpi($($arg: $kind),*) $(-> $returns)? $body
            )*
        }
    };
}

/// Numbers of entries count from 1 in Fortran.
fn from_one(index: Place<c_int>) {
    if let Ok(at) = index.get()
        && at >= 0
    {
        let _ = index.put(at + 1);
    }
}

fn all_from_one(count: Place<c_int>, indices: Place<c_int>) {
    let some = count.value();
    if some != UNDEFINED
        && let Ok(list) = indices.list_mut(some)
    {
        list.iter_mut().for_each(|at| *at += 1);
    }
}

/// A predefined or attached value for a place of 64 bits.
fn store(
    found: viaduct_mpi::error::Result<Option<Found>>,
    value: Place<i64>,
    flag: Place<c_int>,
) -> viaduct_mpi::error::Result<()> {
    let found = found?;
    if let Some(found) = &found {
        value.put(found.number())?;
    }
    flag.put(c_int::from(found.is_some()))
}

/// Displacements of MPI 1, which are 32 bits long in Fortran.
fn widened(count: c_int, disps: Place<c_int>) -> Vec<i64> {
    disps.list(count).unwrap_or(&[]).iter().map(|disp| i64::from(*disp)).collect()
}

/// A result of MPI 1, which is 32 bits long in Fortran.
fn narrowed(into: Place<c_int>, run: impl FnOnce(Place<i64>) -> c_int) -> c_int {
    let mut wide = 0i64;
    let code = run(Place::new(&raw mut wide));
    if code != Class::Success as c_int {
        return code;
    }
    into.put(wide as c_int).map_or(Class::Arg as c_int, |()| code)
}

both! {
    fn mpi_init_ / pmpi_init_(ierror: Place<c_int>) {
        finish(ierror, entry::mpi_init(Place::NULL, Place::NULL));
    }
    fn mpi_init_thread_ / pmpi_init_thread_(required: Place<c_int>, provided: Place<c_int>, ierror: Place<c_int>) {
        finish(ierror, entry::mpi_init_thread(Place::NULL, Place::NULL, required.value(), provided));
    }
    fn mpi_wtime_ / pmpi_wtime_() -> f64 { entry::mpi_wtime() }
    fn mpi_wtick_ / pmpi_wtick_() -> f64 { entry::mpi_wtick() }
    fn mpi_pcontrol_ / pmpi_pcontrol_(level: Place<c_int>) {
        let _ = entry::mpi_pcontrol(level.value());
    }
    // The buffer itself is the program's argument: where it lies is no news, and must not be written into it.
    fn mpi_buffer_detach_ / pmpi_buffer_detach_(_buffer: Buffer, size: Place<c_int>, ierror: Place<c_int>) {
        let mut address = 0usize;
        finish(ierror, entry::mpi_buffer_detach(Buffer::at((&raw mut address).cast()), size));
    }
    // A call that the compiler cannot see into: it keeps no buffer in registers beyond it.
    fn mpi_f_sync_reg_ / pmpi_f_sync_reg_(_buffer: Buffer) {}
    fn mpi_aint_add_ / pmpi_aint_add_(base: Place<i64>, disp: Place<i64>) -> i64 {
        entry::mpi_aint_add(base.value(), disp.value())
    }
    fn mpi_aint_diff_ / pmpi_aint_diff_(one: Place<i64>, two: Place<i64>) -> i64 {
        entry::mpi_aint_diff(one.value(), two.value())
    }
    fn mpi_waitany_ / pmpi_waitany_(count: Place<c_int>, requests: Place<u32>, index: Place<c_int>, one: Place<Status>, ierror: Place<c_int>) {
        let code = entry::mpi_waitany(count.value(), requests, index, status(one));
        from_one(index);
        finish(ierror, code);
    }
    fn mpi_testany_ / pmpi_testany_(count: Place<c_int>, requests: Place<u32>, index: Place<c_int>, flag: Place<c_int>, one: Place<Status>, ierror: Place<c_int>) {
        let code = entry::mpi_testany(count.value(), requests, index, flag, status(one));
        from_one(index);
        finish(ierror, code);
    }
    fn mpi_waitsome_ / pmpi_waitsome_(incount: Place<c_int>, requests: Place<u32>, outcount: Place<c_int>, indices: Place<c_int>, some: Place<Status>, ierror: Place<c_int>) {
        let code = entry::mpi_waitsome(incount.value(), requests, outcount, indices, statuses(some));
        all_from_one(outcount, indices);
        finish(ierror, code);
    }
    fn mpi_testsome_ / pmpi_testsome_(incount: Place<c_int>, requests: Place<u32>, outcount: Place<c_int>, indices: Place<c_int>, some: Place<Status>, ierror: Place<c_int>) {
        let code = entry::mpi_testsome(incount.value(), requests, outcount, indices, statuses(some));
        all_from_one(outcount, indices);
        finish(ierror, code);
    }
    fn mpi_keyval_create_ / pmpi_keyval_create_(copy: Function, delete: Function, keyval: Place<c_int>, extra: Place<c_int>, ierror: Place<c_int>) {
        let functions = (copy, delete, extra.value() as isize as usize);
        finish(ierror, create("MPI_Keyval_create", For::Comm, Language::OldFortran, functions, keyval));
    }
    fn mpi_comm_create_keyval_ / pmpi_comm_create_keyval_(copy: Function, delete: Function, keyval: Place<c_int>, extra: Place<i64>, ierror: Place<c_int>) {
        let functions = (copy, delete, extra.value() as usize);
        finish(ierror, create("MPI_Comm_create_keyval", For::Comm, Language::Fortran, functions, keyval));
    }
    fn mpi_type_create_keyval_ / pmpi_type_create_keyval_(copy: Function, delete: Function, keyval: Place<c_int>, extra: Place<i64>, ierror: Place<c_int>) {
        let functions = (copy, delete, extra.value() as usize);
        finish(ierror, create("MPI_Type_create_keyval", For::Type, Language::Fortran, functions, keyval));
    }
    fn mpi_attr_put_ / pmpi_attr_put_(comm: Place<u32>, keyval: Place<c_int>, value: Place<c_int>, ierror: Place<c_int>) {
        let (handle, value) = (comm.value(), value.value() as isize as usize);
        finish(ierror, call("MPI_Attr_put", handle, |process| set_of_comm(process, handle, keyval.value(), value)));
    }
    fn mpi_attr_get_ / pmpi_attr_get_(comm: Place<u32>, keyval: Place<c_int>, value: Place<c_int>, flag: Place<c_int>, ierror: Place<c_int>) {
        let handle = comm.value();
        let code = call("MPI_Attr_get", handle, |process| {
            let found = of_comm(process, handle, keyval.value())?;
            if let Some(found) = &found {
                value.put(found.number() as c_int)?;
            }
            flag.put(c_int::from(found.is_some()))
        });
        finish(ierror, code);
    }
    fn mpi_comm_set_attr_ / pmpi_comm_set_attr_(comm: Place<u32>, keyval: Place<c_int>, value: Place<i64>, ierror: Place<c_int>) {
        let (handle, value) = (comm.value(), value.value() as usize);
        finish(ierror, call("MPI_Comm_set_attr", handle, |process| set_of_comm(process, handle, keyval.value(), value)));
    }
    fn mpi_comm_get_attr_ / pmpi_comm_get_attr_(comm: Place<u32>, keyval: Place<c_int>, value: Place<i64>, flag: Place<c_int>, ierror: Place<c_int>) {
        let handle = comm.value();
        let code = call("MPI_Comm_get_attr", handle, |process| {
            store(of_comm(process, handle, keyval.value()), value, flag)
        });
        finish(ierror, code);
    }
    fn mpi_type_set_attr_ / pmpi_type_set_attr_(kind: Place<u32>, keyval: Place<c_int>, value: Place<i64>, ierror: Place<c_int>) {
        let value = value.value() as usize;
        finish(ierror, pure("MPI_Type_set_attr", || set_of_type(kind.value(), keyval.value(), value)));
    }
    fn mpi_type_get_attr_ / pmpi_type_get_attr_(kind: Place<u32>, keyval: Place<c_int>, value: Place<i64>, flag: Place<c_int>, ierror: Place<c_int>) {
        finish(ierror, pure("MPI_Type_get_attr", || store(of_type(kind.value(), keyval.value()), value, flag)));
    }
    fn mpi_address_ / pmpi_address_(location: Buffer, address: Place<c_int>, ierror: Place<c_int>) {
        finish(ierror, narrowed(address, |wide| entry::mpi_address(buffer(location), wide)));
    }
    fn mpi_type_extent_ / pmpi_type_extent_(kind: Place<u32>, extent: Place<c_int>, ierror: Place<c_int>) {
        finish(ierror, narrowed(extent, |wide| entry::mpi_type_extent(kind.value(), wide)));
    }
    fn mpi_type_lb_ / pmpi_type_lb_(kind: Place<u32>, displacement: Place<c_int>, ierror: Place<c_int>) {
        finish(ierror, narrowed(displacement, |wide| entry::mpi_type_lb(kind.value(), wide)));
    }
    fn mpi_type_ub_ / pmpi_type_ub_(kind: Place<u32>, displacement: Place<c_int>, ierror: Place<c_int>) {
        finish(ierror, narrowed(displacement, |wide| entry::mpi_type_ub(kind.value(), wide)));
    }
    fn mpi_type_hvector_ / pmpi_type_hvector_(count: Place<c_int>, block: Place<c_int>, stride: Place<c_int>, old: Place<u32>, newtype: Place<u32>, ierror: Place<c_int>) {
        let stride = i64::from(stride.value());
        finish(ierror, entry::mpi_type_hvector(count.value(), block.value(), stride, old.value(), newtype));
    }
    fn mpi_type_hindexed_ / pmpi_type_hindexed_(count: Place<c_int>, blocks: Place<c_int>, disps: Place<c_int>, old: Place<u32>, newtype: Place<u32>, ierror: Place<c_int>) {
        let mut disps = widened(count.value(), disps);
        finish(ierror, entry::mpi_type_hindexed(count.value(), blocks, Place::new(disps.as_mut_ptr()), old.value(), newtype));
    }
    fn mpi_type_struct_ / pmpi_type_struct_(count: Place<c_int>, blocks: Place<c_int>, disps: Place<c_int>, types: Place<u32>, newtype: Place<u32>, ierror: Place<c_int>) {
        let mut disps = widened(count.value(), disps);
        finish(ierror, entry::mpi_type_struct(count.value(), blocks, Place::new(disps.as_mut_ptr()), types, newtype));
    }
    fn mpi_info_get_ / pmpi_info_get_(info: Place<u32>, key: Text, valuelen: Place<c_int>, value: Place<c_char>, flag: Place<c_int>, ierror: Place<c_int>, key_len: usize, value_len: usize) {
        let (key, mut answer) = (Owned::read(key, key_len), Answer::new());
        let code = entry::mpi_info_get(info.value(), key.text(), valuelen.value().clamp(0, 1024), answer.place(), flag);
        if code == Class::Success as c_int && flag.value() != 0 {
            answer.write(value, value_len);
        }
        finish(ierror, code);
    }
    fn mpi_dist_graph_create_ / pmpi_dist_graph_create_(comm: Place<u32>, n: Place<c_int>, sources: Place<c_int>, degrees: Place<c_int>, destinations: Place<c_int>, edge_weights: Place<c_int>, info: Place<u32>, reorder: Place<c_int>, made: Place<u32>, ierror: Place<c_int>) {
        let code = entry::mpi_dist_graph_create(comm.value(), n.value(), sources, degrees, destinations, weights(edge_weights), info.value(), reorder.value(), made);
        finish(ierror, code);
    }
    fn mpi_dist_graph_create_adjacent_ / pmpi_dist_graph_create_adjacent_(comm: Place<u32>, indegree: Place<c_int>, sources: Place<c_int>, sourceweights: Place<c_int>, outdegree: Place<c_int>, destinations: Place<c_int>, destweights: Place<c_int>, info: Place<u32>, reorder: Place<c_int>, made: Place<u32>, ierror: Place<c_int>) {
        let code = entry::mpi_dist_graph_create_adjacent(comm.value(), indegree.value(), sources, weights(sourceweights), outdegree.value(), destinations, weights(destweights), info.value(), reorder.value(), made);
        finish(ierror, code);
    }
    fn mpi_dist_graph_neighbors_ / pmpi_dist_graph_neighbors_(comm: Place<u32>, maxin: Place<c_int>, sources: Place<c_int>, sourceweights: Place<c_int>, maxout: Place<c_int>, destinations: Place<c_int>, destweights: Place<c_int>, ierror: Place<c_int>) {
        let code = entry::mpi_dist_graph_neighbors(comm.value(), maxin.value(), sources, weights(sourceweights), maxout.value(), destinations, weights(destweights));
        finish(ierror, code);
    }
}
