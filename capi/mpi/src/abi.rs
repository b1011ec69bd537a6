//! What C hands over: places, buffers, text, functions; and the constants that programs have compiled in.
//!
//! The pointers of a call stand behind types of their own. By the contract of MPI each of them is null or points to what
//! the prototype says for as long as the call (or its request) lasts; the methods check what can be checked, null and
//! counts, and rely on that contract for the rest.

use std::ffi::{CStr, c_char, c_int, c_void};

use viaduct_mpi::error::{Class, Error, Result};

/// `MPI_COMM_WORLD`.
pub(crate) const COMM_WORLD: u32 = 0x4400_0000;
/// `MPI_COMM_SELF`.
pub(crate) const COMM_SELF: u32 = 0x4400_0001;
/// `MPI_COMM_NULL`.
pub(crate) const COMM_NULL: u32 = 0x0400_0000;
/// `MPI_GROUP_NULL`.
pub(crate) const GROUP_NULL: u32 = 0x0800_0000;
/// `MPI_GROUP_EMPTY`.
pub(crate) const GROUP_EMPTY: u32 = 0x4800_0000;
/// `MPI_DATATYPE_NULL`.
pub(crate) const DATATYPE_NULL: u32 = 0x0c00_0000;
/// `MPI_REQUEST_NULL`.
pub(crate) const REQUEST_NULL: u32 = 0x2c00_0000;
/// The request of every send that was done when its call ended. It names no entry of a table, and so needs none.
pub(crate) const REQUEST_SENT: u32 = 0x6c00_0001;
/// `MPI_MESSAGE_NULL`: the value of `MPI_REQUEST_NULL`.
pub(crate) const MESSAGE_NULL: u32 = 0x2c00_0000;
/// `MPI_MESSAGE_NO_PROC`.
pub(crate) const MESSAGE_NO_PROC: u32 = 0x6c00_0000;
/// `MPI_OP_NULL`.
pub(crate) const OP_NULL: u32 = 0x1800_0000;
/// `MPI_ERRHANDLER_NULL`.
pub(crate) const ERRHANDLER_NULL: u32 = 0x1400_0000;
/// `MPI_ERRORS_ARE_FATAL`.
pub(crate) const ERRORS_ARE_FATAL: u32 = 0x5400_0000;
/// `MPI_ERRORS_RETURN`.
pub(crate) const ERRORS_RETURN: u32 = 0x5400_0001;
/// `MPI_ERRORS_ABORT`, of MPI 4: as fatal.
pub(crate) const ERRORS_ABORT: u32 = 0x5400_0003;
/// `MPI_INFO_NULL`.
pub(crate) const INFO_NULL: u32 = 0x1c00_0000;
/// `MPI_INFO_ENV`.
pub(crate) const INFO_ENV: u32 = 0x5c00_0001;
/// `MPI_KEYVAL_INVALID`.
pub(crate) const KEYVAL_INVALID: c_int = 0x2400_0000;
/// `MPI_UNDEFINED`.
pub(crate) const UNDEFINED: c_int = -32766;
/// `MPI_PROC_NULL`.
pub(crate) const PROC_NULL: c_int = -1;
/// `MPI_ERR_LASTCODE`: codes that programs add are above it.
pub(crate) const ERR_LASTCODE: c_int = 0x3fff_ffff;
/// `MPI_MAX_PROCESSOR_NAME`.
pub(crate) const MAX_PROCESSOR_NAME: usize = 128;
/// `MPI_MAX_ERROR_STRING`.
pub(crate) const MAX_ERROR_STRING: usize = 512;
/// `MPI_MAX_OBJECT_NAME`.
pub(crate) const MAX_OBJECT_NAME: usize = 128;
/// `MPI_BSEND_OVERHEAD`.
pub(crate) const BSEND_OVERHEAD: usize = 96;

/// `MPI_Status`: 20 bytes, in C and, as five integers, in Fortran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Status {
    count_lo: c_int,
    /// Bit 0: cancelled. The others: the higher bits of the count.
    count_hi_and_cancelled: c_int,
    pub(crate) source: c_int,
    pub(crate) tag: c_int,
    pub(crate) error: c_int,
}

impl Status {
    /// The status of an end; the field for errors keeps what it had.
    pub(crate) fn set(&mut self, of: &viaduct_mpi::world::Status) {
        (self.source, self.tag) = (of.source, of.tag);
        self.set_bytes(of.bytes);
        self.set_cancelled(of.cancelled);
    }

    /// How many bytes came.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.count_lo as u32) | u64::from(self.count_hi_and_cancelled as u32 >> 1) << 32
    }

    pub(crate) fn set_bytes(&mut self, bytes: u64) {
        self.count_lo = bytes as u32 as c_int;
        let high = (bytes >> 32) as u32;
        self.count_hi_and_cancelled = (high << 1 | self.count_hi_and_cancelled as u32 & 1) as c_int;
    }

    pub(crate) fn cancelled(&self) -> bool {
        self.count_hi_and_cancelled & 1 != 0
    }

    pub(crate) fn set_cancelled(&mut self, cancelled: bool) {
        self.count_hi_and_cancelled = self.count_hi_and_cancelled & !1 | c_int::from(cancelled);
    }
}

/// Where the program has one or more values, to read or to write.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Place<T>(*mut T);

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Place<T> {}

impl<T> Place<T> {
    /// No place.
    pub(crate) const NULL: Place<T> = Place(std::ptr::null_mut());

    pub(crate) fn new(at: *mut T) -> Place<T> {
        Place(at)
    }

    pub(crate) fn address(self) -> *mut T {
        self.0
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// `MPI_STATUS_IGNORE` and `MPI_STATUSES_IGNORE` are the address 1.
    pub(crate) fn is_ignored(self) -> bool {
        self.0 as usize <= 1
    }

    /// The place of the value `by` further on.
    pub(crate) fn further(self, by: usize) -> Place<T> {
        Place(self.0.wrapping_add(by))
    }
}

impl<T: Copy> Place<T> {
    /// Stores a value.
    pub(crate) fn put(self, value: T) -> Result<()> {
        if self.0.is_null() {
            return Err(null());
        }
        // SAFETY: not null, so by the contract of the call a place for such a value; it may be unaligned.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// The value.
    pub(crate) fn get(self) -> Result<T> {
        if self.0.is_null() {
            return Err(null());
        }
        // SAFETY: not null, so by the contract of the call such a value is there.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// `count` values.
    pub(crate) fn list<'a>(self, count: c_int) -> Result<&'a [T]> {
        let count = natural(count)?;
        match (count, self.0.is_null()) {
            (0, _) => Ok(&[]),
            (_, true) => Err(null()),
            // SAFETY: not null, so by the contract of the call an array of so many, which nothing else writes meanwhile.
            _ => Ok(unsafe { std::slice::from_raw_parts(self.0, count) }),
        }
    }

    /// `count` values, to be changed.
    pub(crate) fn list_mut<'a>(self, count: c_int) -> Result<&'a mut [T]> {
        let count = natural(count)?;
        match (count, self.0.is_null()) {
            (0, _) => Ok(&mut []),
            (_, true) => Err(null()),
            // SAFETY: not null, so by the contract of the call an array of so many, which nothing else uses meanwhile.
            _ => Ok(unsafe { std::slice::from_raw_parts_mut(self.0, count) }),
        }
    }
}

impl Place<c_int> {
    /// The value of a Fortran argument, which is never null.
    pub(crate) fn value(self) -> c_int {
        self.get().unwrap_or(0)
    }
}

impl Place<u32> {
    /// The value of a Fortran argument, which is never null.
    pub(crate) fn value(self) -> u32 {
        self.get().unwrap_or(0)
    }
}

impl Place<i64> {
    /// The value of a Fortran argument, which is never null.
    pub(crate) fn value(self) -> i64 {
        self.get().unwrap_or(0)
    }
}

impl Place<Status> {
    /// Writes a status unless the program ignores it; what is left out keeps its value.
    pub(crate) fn fill(self, with: impl FnOnce(&mut Status)) {
        if self.is_ignored() {
            return;
        }
        // SAFETY: neither null nor a mark, so by the contract of the call a status of the program's.
        with(unsafe { &mut *self.0 });
    }

    /// The status, which has to be one.
    pub(crate) fn read(self) -> Result<Status> {
        if self.is_ignored() { Err(Error::new(Class::Arg, "no status is given")) } else { self.get() }
    }
}

impl Place<c_char> {
    /// Writes text with its end mark, cut to `room` bytes with the mark; returns the length without the mark.
    pub(crate) fn write(self, text: &str, room: usize) -> Result<c_int> {
        if self.0.is_null() {
            return Err(null());
        }
        let mut len = text.len().min(room.saturating_sub(1));
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        // SAFETY: by the contract of the call there is room for so many bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), self.0.cast::<u8>(), len);
            self.0.add(len).write(0);
        }
        Ok(len as c_int)
    }
}

/// The address of data, null (`MPI_BOTTOM`) or `MPI_IN_PLACE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Buffer(*mut u8);

impl Buffer {
    pub(crate) const BOTTOM: Buffer = Buffer(std::ptr::null_mut());
    pub(crate) const IN_PLACE: Buffer = Buffer(usize::MAX as *mut u8);

    pub(crate) fn at(address: *mut u8) -> Buffer {
        Buffer(address)
    }

    pub(crate) fn address(self) -> *mut u8 {
        self.0
    }

    /// The buffer as a place for a pointer or another value.
    pub(crate) fn place<T>(self) -> Place<T> {
        Place(self.0.cast())
    }
}

/// Text with an end mark.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    pub(crate) fn of(text: &CStr) -> Text {
        Text(text.as_ptr())
    }

    pub(crate) fn address(self) -> *const c_char {
        self.0
    }

    /// The text; bytes that are not UTF-8 are replaced.
    pub(crate) fn read(self) -> Result<String> {
        if self.0.is_null() {
            return Err(null());
        }
        // SAFETY: not null, so by the contract of the call text with an end mark.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// A function of the program; null stands for doing nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Function(*const c_void);

// SAFETY: the address of code, which any thread may call; the program answers for what it does.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    pub(crate) fn address(self) -> *const c_void {
        self.0
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// A count that is not negative.
pub(crate) fn natural(count: c_int) -> Result<usize> {
    usize::try_from(count).map_err(|_| Error::new(Class::Count, format!("{count} is negative")))
}

fn null() -> Error {
    Error::new(Class::Arg, "a pointer is null")
}
