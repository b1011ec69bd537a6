//! The predefined functions that copy and delete attributes, which programs name when they make keys.

use std::ffi::c_int;

use viaduct_mpi::error::Class;

use crate::abi::{Buffer, Place};

/// `MPI_COMM_DUP_FN`, `MPI_TYPE_DUP_FN` and `MPI_WIN_DUP_FN` of C: the value is copied.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name in MPICH's interface")]
#[allow(clippy::missing_safety_doc, reason = "called by programs through MPI alone")]
unsafe extern "C" fn MPIR_Dup_fn(
    _object: u32,
    _keyval: c_int,
    _extra: usize,
    value: usize,
    copy: Place<usize>,
    flag: Place<c_int>,
) -> c_int {
    copied(value, copy, flag)
}

fn copied<T: Copy>(value: T, copy: Place<T>, flag: Place<c_int>) -> c_int {
    let done = copy.put(value).and_then(|()| flag.put(1));
    done.map_or_else(|error| error.class() as c_int, |()| 0)
}

/// Copying functions of Fortran under all their names.
macro_rules! functions {
    ($($dup:ident, $null_copy:ident, $null_delete:ident: $number:ty;)*) => {$(
        /// The value is copied.
        #[unsafe(no_mangle)]
        #[allow(clippy::missing_safety_doc, reason = "called by programs through MPI alone")]
        unsafe extern "C" fn $dup(
            _object: Place<u32>,
            _keyval: Place<c_int>,
            _extra: Place<$number>,
            value: Place<$number>,
            copy: Place<$number>,
            flag: Place<c_int>,
            ierror: Place<c_int>,
        ) {
            let _ = ierror.put(copied(value.value(), copy, flag));
        }

        /// The value is not copied.
        #[unsafe(no_mangle)]
        #[allow(clippy::missing_safety_doc, reason = "called by programs through MPI alone")]
        unsafe extern "C" fn $null_copy(
            _object: Place<u32>,
            _keyval: Place<c_int>,
            _extra: Place<$number>,
            _value: Place<$number>,
            _copy: Place<$number>,
            flag: Place<c_int>,
            ierror: Place<c_int>,
        ) {
            let _ = flag.put(0).and_then(|()| ierror.put(0));
        }

        /// There is nothing to delete.
        #[unsafe(no_mangle)]
        #[allow(clippy::missing_safety_doc, reason = "called by programs through MPI alone")]
        unsafe extern "C" fn $null_delete(
            _object: Place<u32>,
            _keyval: Place<c_int>,
            _value: Place<$number>,
            _extra: Place<$number>,
            ierror: Place<c_int>,
        ) {
            let _ = ierror.put(0);
        }
    )*};
}

functions! {
    mpi_dup_fn_, mpi_null_copy_fn_, mpi_null_delete_fn_: c_int;
    mpi_comm_dup_fn_, mpi_comm_null_copy_fn_, mpi_comm_null_delete_fn_: i64;
    mpi_type_dup_fn_, mpi_type_null_copy_fn_, mpi_type_null_delete_fn_: i64;
    mpi_win_dup_fn_, mpi_win_null_copy_fn_, mpi_win_null_delete_fn_: i64;
}

/// No conversion: a name that programs hand over, and that is never called.
#[unsafe(no_mangle)]
#[allow(clippy::missing_safety_doc, reason = "called by programs through MPI alone")]
unsafe extern "C" fn mpi_conversion_fn_null_(
    _user: Buffer,
    _kind: Place<u32>,
    _count: Place<c_int>,
    _file: Buffer,
    _position: Place<i64>,
    _extra: Place<i64>,
    ierror: Place<c_int>,
) {
    let _ = ierror.put(Class::UnsupportedOperation as c_int);
}
